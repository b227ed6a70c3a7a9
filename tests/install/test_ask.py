"""setup.py, asked before a build: what is found, what is refused, and what stays unknown and refuses nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from splatfix.context import make_context
from splatfix.facts import gather
from splatfix.install import WheelCache, ask
from splatfix.install.environment import Environment
from splatfix.install.scratch import copy_to_build, scratch_folder
from splatfix.model.inquiry import Inquiry
from splatfix.plan import BuildWheel
from tests.archs import archs
from tests.conftest import Splatfix
from tests.files import put
from tests.plan.machines import refused
from tests.tables import data

from .environments import install, run_in, snapshot, write_extension
from .test_build import BOTH, Heard

TABLES = data(__file__)
KEYS = {"reads", "sets", "children", "downloads", "written", "torch"}


def summary(asked: Inquiry) -> dict[str, Any]:
    """What the table compares."""
    answer, modules = asked.answer, asked.answer.modules
    return {
        **{key: getattr(answer, key) for key in KEYS},
        "names": tuple(call.name for call in answer.setups),
        "modules": tuple(module.name for module in modules),
        "sources": tuple(sorted(name for module in modules for name in module.sources)),
        "missing": tuple(name for module in modules for name in module.missing),
        "archs": tuple(flag for module in modules for flags in module.archs for flag in flags),
        "otherwise": asked.otherwise and tuple(name for m in asked.otherwise.modules for name in m.sources),
    }


@pytest.mark.parametrize("case", TABLES["case"], ids=lambda case: case["name"])
def test_what_a_setup_py_would_do(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]
) -> None:
    if flags := case.get("flags"):
        case = {**case, "torch": True, "setup": TABLES["module"].format(flags=flags), "files": {"a.cu": ""}}
    places = {"{outside}": tmp_path / "outside", "{environment}": environment.purelib}
    (tmp_path / "outside").mkdir()

    def filled(text: str) -> str:
        for blank, path in places.items():
            text = text.replace(blank, str(path))
        return text

    source = put(tmp_path / "source", {"README": "", **case.get("files", {})})
    if "setup" in case:
        (source / "setup.py").write_text(filled(case["setup"]))
    if case.get("torch"):
        put(environment.purelib, TABLES["torch"])
    if case["name"] == "no end":
        monkeypatch.setattr(ask, "_TIMEOUT", 2.0)
    step = BuildWheel(
        subject="x",
        source=str(source),
        targets=archs(*case.get("targets", ("sm_120",))),
        variables={"TORCH_CUDA_ARCH_LIST": "12.0", **case.get("variables", {})},
        downloads=case.get("planned", {}),
    )
    context, before = make_context(gather(environment.python)), snapshot(environment)
    with scratch_folder(tmp_path) as empty:
        scratch = copy_to_build(step, empty)
        asked = ask.ask_setup(step, scratch, context, environment, step.variables)
        assert {path.name for path in scratch.source.iterdir()} == {path.name for path in source.iterdir()}
    problem = ask.contradiction(step, asked, context, environment)

    for key, value in case.get("found", {}).items():
        if isinstance(value, tuple):
            value = tuple(map(filled, value))
        assert summary(asked)[key] == value, key
    assert case.get("words", "") in asked.unknown and bool(asked.unknown) == ("words" in case)
    assert (problem.code if problem else None) == case.get("refused")
    assert snapshot(environment) == before and not list((tmp_path / "outside").iterdir())
    assert all("\n" not in line for line in asked.lines)


def test_contradictions_stop_builds(environment: Environment, tmp_path: Path, fresh_wheels: None) -> None:
    gone = "import glob\nprint('not there:', glob.glob('*'))\n"
    source = write_extension(tmp_path / "source", before=gone)
    text = (source / "setup.py").read_text()
    (source / "setup.py").write_text(text.replace('["probe.c"]', '["probe.c"] + ["".join(("pro", "be2.c"))]'))
    before, heard = snapshot(environment), Heard()
    error = refused(install, environment, source, progress=heard)
    assert error.code == "source-incomplete" and "probe2.c" in error.what
    assert "tiny_probe: running its setup.py" not in heard.lines and snapshot(environment) == before

    (source / "setup.py").write_text(text)
    outcome = install(environment, source)
    assert run_in(environment, "import tiny_probe; print(tiny_probe.answer())") == "42"
    log = (Path(outcome.log) / "build-tiny_probe.log").read_text()
    assert "# setup.py, asked: tiny_probe 1.0: tiny_probe._C (1 source)\n" in log
    heard.lines.clear()
    install(environment, source, progress=heard, reinstall=True)
    assert not [line for line in heard.lines if "asking" in line], "a wheel of the cache needs no asking"


def test_two_calls_of_setup_make_two_wheels(environment: Environment, tmp_path: Path) -> None:
    """HI-SLAM2's droid_backends and lietorch: pip alone ends in "More than one .egg-info directory found"."""
    first = (write_extension(tmp_path / "source", name="one_probe") / "setup.py").read_text()
    source = write_extension(tmp_path / "source", name="two_probe", version="2.0")
    (source / "setup.py").write_text(first + (source / "setup.py").read_text())
    outcome = install(environment, source, afresh=True, jobs=2)
    assert run_in(environment, BOTH) == "42 42"
    assert [(item.subject, item.version) for item in outcome.items] == [
        ("one_probe", "1.0"),
        ("two_probe", "2.0"),
    ]
    log = (Path(outcome.log) / "build-two_probe.log").read_text()
    assert (
        "# setup.py, asked: two_probe 2.0: two_probe._C (1 source)\n" in log and "asked: one_probe" not in log
    )


def test_a_variable_that_only_a_run_shows_keeps_a_wheel_out_of_the_cache(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key that is looked up has what is read by a name that stands there."""
    cache = WheelCache(tmp_path / "wheels")
    computed = "import os\nos.environ.get('_'.join(('MY', 'ANSWER')))\n"
    source = write_extension(tmp_path / "source", before=computed)
    monkeypatch.setenv("MY_ANSWER", "7")
    install(environment, source, cache=cache)
    assert not cache.entries()
    monkeypatch.delenv("MY_ANSWER")
    install(environment, source, cache=cache)
    assert len(cache.entries()) == 1


def test_asked_in_a_dry_run(environment: Environment, tmp_path: Path, splatfix: Splatfix) -> None:
    source = write_extension(tmp_path / "source", before="import os\nos.environ.get('MY_FLAGS')\n")
    before = snapshot(environment)
    words = ("install", source, "--python", environment.python, "--dry-run", "--why")
    text = splatfix(*words, "--ask-setup").stdout
    assert "tiny_probe 1.0: tiny_probe._C (1 source)" in text and "reads MY_FLAGS" in text
    assert "build tiny_probe" in text and "MAX_JOBS=" in text and "Nothing was changed" in text
    assert "Asked of setup.py" not in splatfix(*words).stdout, "a plain dry run runs nothing of a checkout"
    (asked,) = json.loads(splatfix(*words, "--ask-setup", "--json").stdout)["inquiries"]
    assert asked["answer"]["setups"][0]["modules"][0]["sources"] == ["probe.c"] and not asked["unknown"]

    (source / "probe.c").rename(source / "other.c")
    (source / "setup.py").write_text((source / "setup.py").read_text().replace('"probe.c"', '"pro" + "be.c"'))
    said = splatfix(*words, "--ask-setup")
    assert said.returncode == 1 and "(source-incomplete)" in said.stderr
    assert snapshot(environment) == before and not environment.state_folder.exists()
