"""What is asked before the first step: usage, packages, a GPU; each answered in one line."""

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import splatfix.facts
from splatfix.core.files import read_json
from splatfix.core.runner import Completed
from splatfix.core.toml import parse_toml
from splatfix.facts import Fact
from splatfix.facts.machine import nvml
from tests import standins

from . import command, needs, rehearsal
from .command import main
from .context import Context, changes
from .plan import PLAN
from .record import Claim, Outcome, StepResult, read_record
from .visit import Visit

ROOT = Path(__file__).resolve().parents[2]
Script = Callable[[Path, str], Path]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sources; what the command changes for its children is put back."""
    monkeypatch.delenv("GPU_SOURCES", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("PATH", "PYTHONPATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))


Answer = Callable[..., str]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Answer:
    """The one line that the command ends with where nothing is run; nothing is left behind but what was there."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path, code: int) -> str:
        before = sorted(tmp_path.rglob("*"))
        assert main(list(map(str, arguments))) == code
        assert sorted(tmp_path.rglob("*")) == before
        printed = capsys.readouterr()
        (line,) = (printed.out + printed.err).splitlines()
        return line

    return run


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--sources", "nowhere"), "nowhere"),
        (("--sources", "."), "holds none of"),
        (("--only", "facts,dance"), "'dance'"),
        (("--only", ""), "''"),
        (("--budget", "0"), "--budget"),
        (("--budget", "nan"), "--budget"),
        (("--rehearse", "--out", "file/folder"), "file/folder"),
        (("--rehearse", "--work", "file/folder"), "file/folder"),
    ],
)
def test_wrong_usage(
    arguments: tuple[str, ...], named: str, answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(needs, "lacking", lambda wants: "")
    monkeypatch.setattr(rehearsal, "prepare", lambda work: ({}, {}))
    assert named in answer(*arguments, code=command.USAGE)


def test_missing_packages_are_one_line(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    monkeypatch.setattr(needs, "PACKAGES", {"torch": "torch", "no-such-thing": "no_such", "nor-this": "nor"})
    line = answer(code=command.UNDETERMINED)
    assert "lacks no-such-thing, nor-this" in line and "--dest DIR no-such-thing nor-this;" in line
    assert "--no-deps" not in line, "pip brings what they need"


@pytest.mark.parametrize(
    ("code", "absent", "broken"),
    [
        ("", [], ""),
        ("import cliquer", ["thing"], ""),
        ("raise OSError('libcudart.so.13: not found')", [], "libcudart.so.13"),
        ("import os; os.abort()", [], "SIGABRT"),
    ],
)
def test_what_is_there_is_imported(
    code: str, absent: list[str], broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lacks another package is fetched again, for with it pip fetches that; anything else is told."""
    (tmp_path / "thing.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    missing, failing = needs.missing({"packaging": "packaging", "thing": "thing"})
    assert missing == absent and bool(failing) == bool(broken)
    assert broken in "".join(failing)


def test_setuptools_is_imported_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older ones refuse to be imported after distutils, which pip imports; and they may bring wheel."""
    names: list[str] = []
    monkeypatch.setattr(needs, "missing", lambda modules: (names.extend(modules), ([], []))[1])
    needs.lacking(["pip", "setuptools"])
    assert names == ["setuptools", "pip"]
    monkeypatch.undo()
    assert needs.missing({"wheel": "no_such_module|setuptools"}) == ([], [])


@pytest.mark.parametrize("lost", [("toolkits",), ("toolkits", "compilers")])
def test_a_compiler_is_asked_for_first(lost: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    facts = splatfix.facts.gather(sys.executable)
    none: dict[str, Any] = {name: Fact((), "nowhere") for name in lost}
    without = replace(facts, machine=replace(facts.machine, **none))
    monkeypatch.setattr(splatfix.facts, "gather", lambda python: without)
    line = needs.lacking([needs.NVCC, needs.COMPILER])
    assert "nvcc" in line and ("C++" in line) == (len(lost) == 2)
    assert needs.lacking_for((needs.NVCC,)) == needs.lacking([needs.NVCC]) != needs.lacking_for(()) == ""
    needs.lacking_for.cache_clear()


def test_what_is_needed_is_what_splatfix_declares() -> None:
    project = parse_toml((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["certify"]]
    names = {re.match(r"[\w-]+", text)[0] for text in declared}  # type: ignore[index]
    # fastjsonschema is imported for a --knowledge file only, tomlkit for `project write`, tomli before Python 3.11
    assert names - {"fastjsonschema", "tomlkit", "tomli"} <= needs.PACKAGES.keys() | needs.MORE.keys()


def test_an_older_python_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(__file__).with_name("__main__.py")
    text = path.read_text(encoding="ascii")
    ast.parse(text, feature_version=(3, 4))
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    with pytest.raises(SystemExit) as end:
        exec(compile(text, str(path), "exec"), {"__file__": str(path), "__name__": "__main__"})
    assert end.value.code == 3
    assert "3.10" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_make_says_the_exit_code(script: Script, tmp_path: Path) -> None:
    python = script(tmp_path / "python", "#!/bin/sh\nexit 3\n")
    argv = ["make", "-s", "-C", str(ROOT), "gpu-check", f"PYTHON={python}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "exit code 3" in done.stderr.splitlines()[0]


@pytest.mark.parametrize(
    ("torch", "named"),
    [
        ('{"torch": "2.13.0+cpu", "cuda": null, "available": false, "gpus": []}', "without CUDA"),
        ('{"torch": "2.11.0", "cuda": "13.0", "available": false, "gpus": []}', "no GPU"),
        ("Traceback", "cannot be asked"),
    ],
)
def test_without_a_usable_gpu_nothing_is_run(
    torch: str, named: str, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    python = script(tmp_path / "python", f"#!/bin/sh\necho '{torch}'\n")
    monkeypatch.setattr(needs, "lacking", lambda wants: "")
    monkeypatch.setattr(sys, "executable", str(python))
    assert named in answer(code=command.UNDETERMINED)


def wheel(folder: Path, name: str, files: dict[str, str]) -> None:
    """A pure one."""
    path, info = folder / f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    files = {**files, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"}
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            about = zipfile.ZipInfo(file)
            about.external_attr = 0o100755 << 16
            archive.writestr(about, text)


def test_carried_wheels_are_found(tmp_path: Path) -> None:
    """Their programs too: ninja's lies where only an installer looks."""
    program = {"carried_thing-1.0.data/scripts/carried-program": "#!python\nprint('here')\n"}
    wheel(tmp_path, "carried_thing", {"carried_thing.py": "", **program})
    modules = {"carried_thing": "carried_thing"}
    assert needs.missing(modules) == (["carried_thing"], [])
    needs.unpack_wheels(tmp_path, tmp_path / "site")
    assert needs.missing(modules) == ([], [])
    assert shutil.which("carried-program") == str(tmp_path / "site" / "bin" / "carried-program")
    environment = Context(str(tmp_path), "out", {}).python("env")
    done = subprocess.run([environment, "-c", "import carried_thing"], check=False)
    assert done.returncode == 0, "the environments under test see it"


@pytest.mark.parametrize("damaged", [b"", b"PK\x03\x04 no archive"])
def test_a_damaged_wheel_is_one_line(damaged: bytes, tmp_path: Path, answer: Answer) -> None:
    (tmp_path / "carried_thing-1.0-py3-none-any.whl").write_bytes(damaged)
    assert "carried_thing-1.0" in answer("--sources", tmp_path, code=command.USAGE)


def test_what_is_not_tried_is_in_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sources" / "gsplatt").mkdir(parents=True)
    (tmp_path / "sources" / "gsplat").mkdir()
    monkeypatch.setattr(needs, "lacking", lambda wants: "")
    monkeypatch.setattr(needs, "machine", lambda: ({"gpu": "a card"}, ""))

    def passes(visit: Visit, names: list[str]) -> None:
        assert names == ["facts"] and list(visit.context.sources) == ["gsplat"]
        visit.ended(StepResult(1, "facts", "Facts", Outcome.PASSED, claims=(Claim("a", "b"),)))

    monkeypatch.setattr(command, "run_steps", passes)
    argv = ["--sources", str(tmp_path / "sources"), "--out", str(tmp_path / "out"), "--only", "facts"]
    assert main(argv) == command.PASSED
    record = read_record(read_json(tmp_path / "out" / "record.json", "the record"))
    assert len(record.notes) == 1 and "gsplatt" in record.notes[0]
    printed = capsys.readouterr()
    assert "gsplatt" in printed.out and "Exit code 0" in printed.err.splitlines()[-1]
    assert (tmp_path / "out" / "table.md").read_text() == printed.out[:-1]


def test_changes_name_what_differs() -> None:
    assert changes({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "9", "d": "4"}) == ["b", "c", "d"]


@pytest.mark.parametrize(
    ("answer", "driver"),
    [({"driver": "580.95.05"}, "580.95.05"), ({"error": "Not Found"}, "unknown (Not Found)")],
)
def test_the_driver_is_named(answer: dict[str, str], driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = '{"torch": "2.11.0", "cuda": "13.0", "gpus": [{"name": "H200", "cc": "9.0"}]}'
    monkeypatch.setattr(needs.ProcessRunner, "run", lambda *_, **__: Completed((), 0, torch, "", 1.0, ""))
    monkeypatch.setattr(nvml, "ask", lambda: answer)
    about, obstacle = needs.machine()
    assert about["driver"] == driver and obstacle == ""


@pytest.mark.slow
@pytest.mark.skipif(bool(standins.missing()), reason=standins.missing())
def test_every_step_is_rehearsed(tmp_path: Path) -> None:
    """As ``make gpu-check-rehearse`` runs it."""
    argv = [sys.executable, str(Path(__file__).parent), "--rehearse", "--out", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    record = read_record(read_json(tmp_path / "record.json", "the record"))
    endings = {step.name: (step.outcome.value, step.problems) for step in record.steps}
    assert list(endings) == [step.name for step in PLAN]
    assert {name: end for name, end in endings.items() if end[0] != "rehearsed"} == {}
    assert (done.returncode, record.exit_code, record.rehearsal) == (0, 0, True)
    assert "REHEARSAL" in done.stdout and "| passed |" not in done.stdout
    assert (tmp_path / "rasterizer_cuda.npz").is_file() and (tmp_path / "table.md").is_file()
