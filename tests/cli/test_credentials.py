"""A secret in everything that can hold one is in nothing that splatfix prints, saves or keeps."""

import os
import subprocess
from pathlib import Path

import pytest

from splatfix.core.redact import own_secrets
from tests.cli import secrets
from tests.conftest import Splatfix
from tests.install.environments import make_environment

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="programs are scripts")]


class Place:
    """A machine full of secrets; what splatfix leaves on it is in ``kept``."""

    def __init__(self, root: Path, splatfix: Splatfix) -> None:
        self.splatfix, self.kept = splatfix, root / "kept"
        self.kept.mkdir()
        self.environment = make_environment(root / "env", pip=True)
        secrets.write_secret_home(root / "home")
        secrets.write_secret_packages(self.environment.purelib)
        secrets.write_speaking_tools(root / "bin")
        self.checkout = root / "checkout"
        secrets.write_secret_checkout(self.checkout)
        self.env = {
            **os.environ,
            **secrets.environment_variables(),
            "HOME": str(root / "home"),
            "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
            "SPLATFIX_CACHE": str(self.kept / "cache"),
            "TMPDIR": str(self.kept),
        }

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Every way to print it is looked at."""
        own_secrets.cache_clear()
        done = self.splatfix(*words, env=self.env, cwd=self.kept)
        own_secrets.cache_clear()
        assert "internal-error" not in done.stdout + done.stderr
        leaks = secrets.found_in(done.stdout + done.stderr)
        assert not leaks, "\n".join([" ".join(map(str, words)), *leaks])
        return done

    def left(self) -> dict[str, list[str]]:
        """Files of splatfix that hold the secret, with the lines."""
        files = [*self.kept.rglob("*"), *(self.environment.prefix / ".splatfix").rglob("*")]
        texts = {path: secrets.found_in(path.read_bytes()) for path in files if path.is_file()}
        return {str(path.relative_to(self.kept.parent)): lines for path, lines in texts.items() if lines}


@pytest.fixture
def place(tmp_path: Path, splatfix: Splatfix) -> Place:
    return Place(tmp_path, splatfix)


def test_reading_commands(place: Place) -> None:
    python, repo = ("--python", place.environment.python), ("--repo", place.checkout)
    for form in ((), ("-v",), ("--json",), ("--imports", "-v")):
        assert place.run("diagnose", *python, *repo, *form).returncode in (1, 3)
    place.run("diagnose", *python, *repo, "--save", "facts.json", "--record", "record", "--imports")
    place.run("diagnose", *python, "--record", "whole", "--no-redact", "--imports")
    for saved in ("facts.json", "record", "whole"):
        place.run("diagnose", "--facts", saved, "-v")
        place.run("diagnose", "--facts", saved, "--json")
    for source in (
        place.checkout,
        place.checkout / "submodules/simple-knn",
        *secrets.ADDRESSES,
        *secrets.TOKENS,
    ):
        for form in ((), ("--why",), ("--why", "--json")):
            place.run("install", source, "--dry-run", *form, *python, "-t", "sm_90")
    place.run("install", "--dry-run", "--why", "--facts", "facts.json")
    place.run("inspect", place.environment.purelib, "-v")
    place.run("inspect", secrets.LOGIN)
    place.run("certify", "--level", "2", *python)
    place.run("certify", *python, "--out", place.kept / "report")
    place.run("certify", "--data", secrets.LOGIN, *python)
    place.run("certify", "--container", "cpu", "--out", place.kept / "lane")
    place.env["DOCKER_HOST"] = secrets.LOGIN
    place.run("certify", "--container", "cpu")
    place.run("monitor", "--out", place.kept / "watch", "true", *secrets.EVERYTHING)
    place.run("monitor", "--out", place.kept / "watch", "--json", "true", *secrets.EVERYTHING)
    place.run("monitor", "--out", place.kept / "watch", secrets.LOGIN)
    assert place.left() == {}


def test_installing_commands(place: Place, tmp_path: Path) -> None:
    python = ("--python", place.environment.python)
    good = secrets.write_speaking_extension(tmp_path / "good")
    broken = secrets.write_speaking_extension(tmp_path / "broken", broken=True)
    for form in ((), ("-v",), ("--json",)):
        assert place.run("install", broken, "--yes", *python, *form).returncode == 1
    assert place.run("install", good, "--yes", *python, "-v").returncode == 0
    assert place.run("install", good, "--yes", *python, "--json", "--reinstall").returncode == 0
    place.run("cache", "list")
    place.run("cache", "list", "--json")
    place.run("revert", "--list", *python)
    place.run("revert", "--list", "--json", *python)
    place.run("revert", "--all", "--json", *python)
    place.run("cache", "clear", "--yes", "--json")
    assert place.left() == {}
