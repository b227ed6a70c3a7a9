"""What the code imports, installed with it by pip from wheels of our own, in the same journal, and taken back with it."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from splatfix.facts import gather
from splatfix.install import InstallOutcome, Journal, revert
from splatfix.install.dependencies import Fetcher
from splatfix.install.downloads import Pip
from splatfix.install.environment import Environment
from splatfix.install.wheels import write_wheel
from splatfix.model import Distribution
from splatfix.model.option import Plan
from splatfix.model.steps import InstallDependencies, InstallStep
from tests.archs import request_for
from tests.files import put
from tests.plan.machines import make_plan, refused
from tests.tables import data

from .environments import install, pip, run_in, snapshot, write_extension

PIP_INSIDE = True


def offer(folder: Path, name: str, version: str = "1.0", needs: str = "", text: str = "x = 1\n") -> None:
    """A pure wheel in a folder that pip looks into."""
    write_wheel(folder, name, version, {f"{name}.py": text.encode()}, "", requires=[needs] if needs else [])


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all pip knows."""
    folder = tmp_path / "wheels here"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", folder.as_uri())
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "no index").as_uri())
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    return folder


@pytest.fixture
def needing(tmp_path: Path) -> Path:
    """An extension whose package imports what it declares nowhere."""
    return write_extension(tmp_path / "source", module="import dacite")


def planned(environment: Environment, source: Path, **options: bool) -> Plan:
    return make_plan(request_for((str(source),), **options), gather(environment.python))


def installed(environment: Environment, source: Path) -> InstallOutcome:
    return install(environment, source, with_dependencies=True)


def test_installed_and_reverted_together(environment: Environment, needing: Path, offered: Path) -> None:
    offer(offered, "dacite", needs="deeper>=1")
    offer(offered, "deeper", "1.5")
    before = snapshot(environment)
    outcome = installed(environment, needing)
    assert isinstance(outcome.plan.steps[0], InstallDependencies)
    assert run_in(environment, "import tiny_probe, dacite, deeper; print(dacite.x)") == "1"
    assert "dacite 1.0, deeper 1.5" in outcome.notes[0]
    (entry,) = Journal(environment.state_folder).entries()
    assert [step.subject for step in entry.changes] == ["dacite", "deeper", "tiny_probe"]
    (log,) = environment.state_folder.rglob("pip.log")
    assert log.read_text().count("Successfully installed") == 2, "all that is needed comes in one run of pip"
    assert {item.subject for item in revert(environment.python).items} == {"dacite", "deeper", "tiny_probe"}
    assert snapshot(environment) == before


PINNED = [(row["pin"], row["version"], row["told"]) for row in data(__file__)["pinned"]]


def fetcher_of(
    environment: Environment, step: InstallStep, there: Iterable[Distribution], folder: Path
) -> Fetcher:
    assert isinstance(step, InstallDependencies)
    pip = Pip.of(environment, folder / "pip.log")
    return Fetcher(step, there, pip, folder / "to", list[str]().append)


@pytest.mark.parametrize("imported", ["", "plyfile"])
def test_pins_are_followed(
    environment: Environment, needing: Path, offered: Path, tmp_path: Path, imported: str
) -> None:
    """Of what it imports, and of what only that needs."""
    modules = {pin: re.split(r"\W", pin)[0] for pin, _, _ in PINNED}
    for name in modules.values():
        for version in ("1.0", "1.7", "2.0"):
            offer(offered, name, version)
    write_wheel(offered, "plyfile", "1.0", {"plyfile.py": b""}, "", requires=[*modules.values()])
    importing(needing, imported or ", ".join(modules.values()))
    (needing / "requirements.txt").write_text("\n".join([*modules, "not-needed==7\n"]))
    fetcher = fetcher_of(
        environment, planned(environment, needing, with_dependencies=True).steps[0], (), tmp_path
    )
    fetched = {path.name.split("-")[0]: path.name.split("-")[1] for path in fetcher.fetch()}
    for pin, version, told in PINNED:
        assert fetched[modules[pin]] == version
        about = " ".join(note for note in fetcher.told if note.startswith(modules[pin]))
        assert told in about and ("fits here" in about) is bool(told)


def test_a_broken_import_stops_the_build(environment: Environment, needing: Path, offered: Path) -> None:
    """kaolin-wisp imports attrdict, which no Python since 3.10 imports: known after 16 minutes of compiling."""
    offer(offered, "dacite", text="from collections import Mapping\n")
    wheel = next(offered.glob("dacite-*.whl"))
    assert pip(environment, "install", "--no-index", "--no-deps", str(wheel)).ok
    before = snapshot(environment)
    error = refused(install, environment, needing)
    assert error.code == "import-failed" and "dacite is installed" in error.what and "Mapping" in error.what
    assert snapshot(environment) == before and not list(environment.state_folder.rglob("build-*.log"))


def test_nothing_that_is_installed_changes(environment: Environment, needing: Path, offered: Path) -> None:
    offer(offered, "dacite")
    installed(environment, needing)
    offer(offered, "dacite", "2.0")
    offer(offered, "plyfile", needs="dacite>=2")
    importing(needing, "dacite, plyfile")
    before = snapshot(environment)
    assert refused(installed, environment, needing).code == "dependencies-not-found"
    assert snapshot(environment) == before


@pytest.mark.slow
def test_imports_of_scripts_are_optional(environment: Environment, needing: Path, offered: Path) -> None:
    """mmcv has no wheel for a new Python, and its sdist needs an old setuptools: SpacetimeGaussians' scripts import it.
    cv2 wants a libGL that a server lacks. The extension needs neither."""
    optional = "try:\n    import wandb\nexcept ImportError:\n    wandb = 0\n"
    scripts = {"train.py": f"import plyfile, mmcv, lpips\n{optional}"}
    put(needing, scripts)
    for name in ("dacite", "plyfile"):
        offer(offered, name)
    offer(offered, "lpips", text="raise ImportError('libGL.so.1')\n")
    plain = put(write_extension(needing.parent / "plain"), scripts)
    (note,) = (text for text in planned(environment, plain).notes if "plyfile" in text)
    assert "(--with-dependencies" in note and "wandb" not in note
    outcome = installed(environment, needing)
    assert run_in(environment, "import tiny_probe, plyfile; print(plyfile.x)") == "1"
    left_out, broken = outcome.notes[1:]
    assert "mmcv" in left_out and "satisfies the requirement" in left_out
    assert "lpips" in broken and "libGL.so.1" in broken


@pytest.mark.slow
def test_only_declared_is_optional(environment: Environment, tmp_path: Path, offered: Path) -> None:
    """MASt3R-SLAM pins torchcodec==0.1 for reading videos, and lietorch, which pip would build without torch."""
    declared = 'install_requires=["torchcodec==0.1", "lietorch"], '
    offer(offered, "dacite")
    source = write_extension(tmp_path / "source", module="import dacite", said=declared)
    outcome = installed(environment, source)
    assert [note for note in outcome.notes if "torchcodec==0.1" in note]
    assert [note for note in outcome.plan.notes if "asks for lietorch, which has to be built" in note]


@pytest.mark.parametrize(("dacite", "c_code", "told"), data(__file__)["fails"])
def test_what_fails_takes_them_back(
    environment: Environment, needing: Path, offered: Path, dacite: str, c_code: str, told: tuple[str, ...]
) -> None:
    if dacite:
        offer(offered, "dacite", text=dacite)
    if c_code:
        put(needing, {"probe.c": c_code})
    before = snapshot(environment)
    error = refused(installed, environment, needing)
    status = Journal(environment.state_folder).entries()[-1].status.value
    assert (error.code, status) == told[:2] and told[2] in error.what
    assert snapshot(environment) == before


@pytest.mark.parametrize(("torch", "brought"), [("2.13.0+cpu", ()), ("2.13.0", ("torchvision",))])
def test_a_torchvision_of_another_torch(
    environment: Environment, offered: Path, tmp_path: Path, torch: str, brought: tuple[str, ...]
) -> None:
    """PyTorch's own index cannot be reached, and PyPI's torchvision is for its CUDA torch."""
    both = ("torchvision", "plyfile")
    for name in both:
        offer(offered, name)
    step = InstallDependencies(requirements=both, optional=both)
    fetcher = fetcher_of(environment, step, [Distribution("torch", torch, "")], tmp_path)
    assert {wheel.name.split("-")[0] for wheel in fetcher.fetch()} == {"plyfile", *brought}
    assert ["for a CUDA torch" in text for text in fetcher.told] == [True] * (not brought)


def importing(source: Path, module: str, instead_of: str = "dacite") -> None:
    package = source / "tiny_probe" / "__init__.py"
    package.write_text(package.read_text().replace(f"import {instead_of}", f"import {module}"))


def test_a_compiled_import_is_built_first(environment: Environment, needing: Path, tmp_path: Path) -> None:
    importing(needing, "torch_scatter")
    for options in ({}, {"with_dependencies": True}):
        error = refused(planned, environment, needing, **options)
        assert error.code == "import-not-built"
        commands = [step.command.argv for step in error.todo if step.command]
        assert commands[0][:3] == ("git", "clone", "--recursive")
        assert commands[1][:3] == ("splatfix", "install", "./pytorch_scatter")
    other = write_extension(tmp_path / "other", name="other_probe")
    old = write_extension(tmp_path / "old", name="old_probe", said='python_requires="<3.9", ')
    request = request_for((str(needing), str(old), str(other)), with_dependencies=True)
    step = refused(make_plan, request, gather(environment.python)).todo[-1]
    assert step.command, "the others of a checkout are named"
    assert step.command.argv[:4] == ("splatfix", "install", str(other), "--with-dependencies")
    # those that are installed together bring each other
    importing(needing, "other_probe", instead_of="torch_scatter")
    assert make_plan(request_for((str(other), str(needing))), gather(environment.python)).steps


def test_what_setup_py_imports_is_there_before_it(environment: Environment, tmp_path: Path) -> None:
    """SplattingAvatar's simple_phongsurf: pybind11 at the top of setup.py, and declared nowhere."""
    lines = "import pybind11, os, helper\ndef fetch():\n    import requests\ntry:\n    import Cython\nexcept ImportError: pass\n"
    source = write_extension(tmp_path / "source", module="import dacite", before=lines)
    (source / "helper.py").write_text("")
    error = refused(planned, environment, source)
    assert error.code == "build-tools-missing"
    assert "pybind11, requests to be built and dacite to be imported" in error.what
    commands = [step.command.argv for step in error.todo if step.command]
    assert commands[0][-4:] == ("install", "pybind11", "requests", "dacite")
    assert (str(source), "--with-dependencies") == commands[1][2:4]
    step = planned(environment, source, with_dependencies=True).steps[0]
    assert isinstance(step, InstallDependencies)
    assert step.requirements == ("pybind11", "requests", "dacite") and step.optional == ()
