"""What an image build is told about packages, and which files of a checkout travel."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from packaging.requirements import Requirement

from splatfix.containers.image import ImageRecipe, sources_of
from splatfix.containers.packages import PipSettings, constraints, pip_settings, requirements, wheels_of_torch
from splatfix.core.runner import Completed
from splatfix.knowledge.lanes import find_lane
from tests.files import put
from tests.tables import data

LISTED: str = data(__file__)["texts"]["listed"]
"""By `pip config list`."""


def settings_of(said: str) -> PipSettings:
    """The settings where this is what pip lists."""
    runner = Mock(**{"run.return_value": Completed((), stdout=said)})
    found = pip_settings(runner)
    assert runner.run.call_args.args[0][-2:] == ["config", "list"]
    return found


def test_pip_s_own_settings_go_with_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what lies on this disk; a variable wins over a file, as in pip."""
    for name in ("CERT", "FIND_LINKS", "EXTRA_INDEX_URL", "TRUSTED_HOST"):
        monkeypatch.delenv(f"PIP_{name}", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:secret@own.example/simple")
    (tmp_path / "ca.pem").write_text("PEM")
    said = LISTED.replace("CERT", str(tmp_path / "ca.pem")).replace("FOLDER", str(tmp_path))
    arguments = {"PIP_INDEX_URL": "https://user:secret@own.example/simple", "PIP_TRUSTED_HOST": "own.example"}
    arguments["PIP_EXTRA_INDEX_URL"] = "https://more.example/simple"
    arguments["PIP_FIND_LINKS"] = "https://wheels.example/list"
    assert settings_of(said) == PipSettings(arguments, (tmp_path,), b"PEM")


def test_wheels_of_the_lane_s_torch_travel(tmp_path: Path) -> None:
    good = "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"
    others = ("torch-x.whl", "numpy-2.0-py3-none-any.whl")
    put(tmp_path, dict.fromkeys((good, good.replace("311", "312"), good.replace("+cpu", ""), *others), ""))
    found = wheels_of_torch(find_lane("cpu"), PipSettings({}, (tmp_path,)))
    assert [path.name for path in found] == [good]


def test_a_lane_s_own_pins_win() -> None:
    lane = find_lane("cuda-from-pypi")
    named = {Requirement(line).name for line in constraints(lane).splitlines()}
    assert "numpy" in named and not named & {"torch", "setuptools", "wheel", "ninja"}
    needed = requirements(lane).splitlines()
    assert needed[-3:] == ["setuptools<82", "wheel", "ninja"] and "numpy>=1.21" in needed
    assert not any("extra" in line or line.startswith(("pytest", "docker")) for line in needed)
    assert "setuptools" in constraints(find_lane("cpu"))


def test_a_checkout_travels_without_its_history(tmp_path: Path) -> None:
    kept = ("HEAD", "refs/heads/main", "modules/sub/HEAD")
    git = put(
        tmp_path / ".git", dict.fromkeys((*kept, "objects/ab/cd", "hooks/x", "modules/sub/objects/ab"), "x")
    )
    (git / "config").write_text('[remote "origin"]\n\turl = https://user:secret@host.example/a/b\n')
    (git / "packed-refs").symlink_to("/etc/passwd")
    left = (".env", "env/pyvenv.cfg", "datasets/garden/1.jpg", "__pycache__/train.pyc")
    put(tmp_path, dict.fromkeys(("train.py", *left), ""))
    (tmp_path / "run.py").symlink_to(tmp_path / "train.py")
    (tmp_path / "passwd").symlink_to("/etc/passwd")
    told: list[str] = []
    found = sources_of(ImageRecipe(find_lane("cpu"), checkout=tmp_path), told.append)
    travelled = {*(f".git/{name}" for name in (*kept, "config")), "run.py", "train.py"}
    assert {name.removeprefix("sources/checkout/") for name in found} == travelled
    config = found["sources/checkout/.git/config"]
    assert isinstance(config, bytes) and b"secret" not in config and b"host.example/a/b" in config
    assert found["sources/checkout/run.py"] == "train.py", "it leads where the copy has it"
    assert ["/etc/passwd" in line or ".env" in line for line in told] == [True, True]


@pytest.mark.parametrize(
    "text", ["", "global.find-links='nowhere'\n", "global.index-url='https://***@hidden.example'\n"]
)
def test_no_settings(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_CERT", "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST"):
        monkeypatch.delenv(name, raising=False)
    for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert settings_of(text) == PipSettings({}, ())
