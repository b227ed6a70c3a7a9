"""A wheel changes its own files alone: what is another's, the environment's, or Python's start is refused; and what pip adds."""

from pathlib import Path

import pytest

from splatfix.install import revert
from splatfix.install.environment import Environment, pip_install
from splatfix.install.takeover import refuse_takeover
from splatfix.install.wheels import WheelFile, open_wheel, write_wheel
from tests.plan.machines import refused
from tests.tables import data

from .environments import install, make_environment, snapshot, write_extension

PIP_INSIDE = True
OTHER = {name: text.encode() for name, text in data(__file__)["other"].items()}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with another package, which no test changes."""
    folder = tmp_path_factory.mktemp("shared")
    return with_other(make_environment(folder / "env", pip=True), folder)


def with_other(environment: Environment, folder: Path) -> Environment:
    made = write_wheel(folder, "other", "1.0", OTHER, "")
    pip_install(environment, folder / "pip.log", made)
    return environment


def wheel(folder: Path, target: Environment, files: dict[str, bytes]) -> WheelFile:
    minor = target.version.partition(".")[2]
    named = {name.replace("{minor}", minor): content for name, content in files.items()}
    return open_wheel(write_wheel(folder, "evil", "1.0", named, ""))


@pytest.mark.parametrize(("member", "content"), data(__file__)["refused"])
def test_files_of_others_are_refused(shared: Environment, tmp_path: Path, member: str, content: str) -> None:
    evil = wheel(tmp_path, shared, {"evil.py": b"", member: content.encode()})
    assert refused(refuse_takeover, shared, [evil]).code == "takes-over"


def test_what_is_new_or_the_same_is_not(environment: Environment, tmp_path: Path) -> None:
    shared = with_other(environment, tmp_path)
    names = ["other/__init__.py", "LICENSE", "other/new.py", "evil/sitecustomize.py"]
    files = dict.fromkeys([*names, "evil/pkg-1.dist-info/METADATA"], b"")
    files |= {"evil-1.0.data/scripts/evil": b"#!python\n", "evil.pth": b"import evil\n"}
    files["evil-1.0.dist-info/entry_points.txt"] = b"[console_scripts]\nevil-run = evil:run\n"
    good = wheel(tmp_path, shared, files)
    for _ in range(2):
        (told,) = refuse_takeover(shared, [good])
        assert str(shared.purelib / "evil.pth") in told
    pip_install(shared, tmp_path / "pip.log", good.path)
    assert refuse_takeover(shared, [good]) == []


def test_an_installation_leaves_the_other_package_as_it_is(environment: Environment, tmp_path: Path) -> None:
    made = write_wheel(tmp_path, "other", "1.0", {"tiny_probe/__init__.py": b"answer = 1\n"}, "")
    pip_install(environment, tmp_path / "pip.log", made)
    before = snapshot(environment)
    error = refused(install, environment, write_extension(tmp_path / "source"))
    assert error.code == "takes-over" and "other 1.0" in error.what
    assert snapshot(environment) == before


def test_what_pip_adds_for_a_program_s_name_goes_too(environment: Environment, tmp_path: Path) -> None:
    before, names = snapshot(environment), ("pip", "easy_install")
    programs = [f"{name} = tiny_probe:answer" for name in names]
    said = f"entry_points={{'console_scripts': {programs}}}, "
    install(environment, write_extension(tmp_path / "source", said=said))
    added = {"pip3", f"easy_install-{environment.version}"}
    assert {path.name for path in environment.scripts.iterdir()} >= added
    revert(environment.python)
    assert snapshot(environment) == before
