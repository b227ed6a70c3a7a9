"""What ran is compared with what was installed: real processes, and wheels whose files were changed afterwards."""

import base64
import dataclasses
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib._bootstrap_external import _code_to_timestamp_pyc  # type: ignore[import-not-found]
from pathlib import Path
from typing import Any

import pytest

from splatfix.app.certify import next_step
from splatfix.certify import Outcome, Verdict, certify
from splatfix.certify.criteria.installed import as_installed
from splatfix.certify.inside import loaded
from splatfix.certify.loaded_files import SURELY_LOADED, LoadedCode, LoadedFiles
from splatfix.certify.smoke_training import process_of, resident_memory
from splatfix.core.data import replace
from splatfix.core.files import write_json
from splatfix.core.runner import Completed, ProcessRunner
from splatfix.facts import Distribution, EnvironmentFacts, Fact, Facts
from tests.certify import conftest
from tests.certify.conftest import SHORT, RecordedTrainer, subject

SOURCE = "def fused_ssim(first, second):\n    return first - second\n"
PATCH = "import fused_ssim\ndef replaced(first, second):\n    return 0\nfused_ssim.fused_ssim = replaced\n"
LOAD = """
import sys; sys.path.insert(0, sys.argv[1]); import loaded; loaded.at_exit(); sys.path[0] = sys.argv[2]
try:
    import patch
except ImportError:
    pass
import fused_ssim
"""


def record_of(site: Path) -> Path:
    return site / "fused_ssim-0.3.dist-info" / "RECORD"


def write_record(site: Path, *, digest: bool = True) -> None:
    lines = []
    for path in sorted((site / "fused_ssim").glob("*.py")):
        content = path.read_bytes()
        digest_of = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        known = f"sha256={digest_of},{len(content)}" if digest else ","
        lines.append(f"fused_ssim/{path.name},{known}\n")
    record_of(site).write_text("".join(lines), encoding="utf-8")


def edit(site: Path, first: Path) -> None:
    """Of the same size, so that only its content tells."""
    path = site / "fused_ssim" / "ssim.py"
    path.write_text(SOURCE.replace("first - second", "second - first"), encoding="utf-8")


def edit_with_record(site: Path, first: Path) -> None:
    edit(site, first)
    write_record(site)


def stale_bytecode(site: Path, first: Path) -> None:
    path = site / "fused_ssim" / "ssim.py"
    cached = Path(importlib.util.cache_from_source(str(path)))
    cached.parent.mkdir()
    status = path.stat()
    code = compile(SOURCE.replace("-", "+"), str(path), "exec")
    cached.write_bytes(_code_to_timestamp_pyc(code, int(status.st_mtime), status.st_size))


def patch(site: Path, first: Path) -> None:
    (first / "patch.py").write_text(PATCH, encoding="utf-8")


def shadow(site: Path, first: Path) -> None:
    shutil.copytree(site / "fused_ssim", first / "fused_ssim")


def compiled_beside(site: Path, first: Path) -> None:
    path = site / "fused_ssim" / "ssim.py"
    path.unlink()
    code = compile(SOURCE, str(path), "exec")
    path.with_suffix(".pyc").write_bytes(_code_to_timestamp_pyc(code, 0, 0))


SABOTAGES: dict[str, tuple[Callable[[Path, Path], object], str, str]] = {
    "edited": (edit, "fused_ssim/ssim.py differs from what fused_ssim 0.3 installed", "fused_ssim"),
    "edited with its RECORD": (edit_with_record, "fused_ssim/ssim.py differs", "fused_ssim"),
    "bytecode of another source": (stale_bytecode, "{site}/fused_ssim/__pycache__/", "fused_ssim"),
    "replaced in memory": (patch, "code of {first}/patch.py ran in place of fused_ssim.fused_ssim", ""),
    "another copy is found first": (shadow, "fused_ssim was loaded from {first}", ""),
    "compiled in its place": (compiled_beside, "fused_ssim was loaded from {site}", ""),
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Site-packages with fused_ssim 0.3, and beside it an empty folder ``first``, which Python searches first."""
    folder = tmp_path / "env" / "site-packages"
    (folder / "fused_ssim").mkdir(parents=True)
    (tmp_path / "first").mkdir()
    (folder / "fused_ssim" / "__init__.py").write_text(
        "from fused_ssim.ssim import fused_ssim\n", encoding="utf-8"
    )
    (folder / "fused_ssim" / "ssim.py").write_text(SOURCE, encoding="utf-8")
    record_of(folder).parent.mkdir()
    write_record(folder)
    return folder


def compared(site: Path, known: Facts, **distribution: Any) -> LoadedCode:
    """What a process that imports fused_ssim loaded, compared; the journal has it as the fixture made it."""
    first = site.parents[1] / "first"
    interpreter = known.environment.interpreter.value
    assert interpreter is not None
    installed = Distribution("fused_ssim", "0.3", str(site), **distribution)
    facts = replace(
        known,
        environment=EnvironmentFacts(
            interpreter=Fact(replace(interpreter, site_packages=(str(site),))),
            distributions=Fact((installed,)),
        ),
    )
    inside = Path(loaded.__file__).parent
    journal = {str(site / "fused_ssim" / "ssim.py"): hashlib.sha256(SOURCE.encode()).hexdigest()}
    files = LoadedFiles(facts, sys.executable, ProcessRunner(), site.parents[1] / "told", [inside], journal)
    variables = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "",
        loaded.VARIABLE: str(files.folder),
        "PYTHONPATH": f"{first}{os.pathsep}{site}",
    }
    done = ProcessRunner().run(
        [sys.executable, "-S", "-c", LOAD, str(inside), str(first)], timeout=60.0, env=variables
    )
    assert done.ok, done.stderr
    files.look()
    code = files.result(wait=True)
    assert code is not None
    return code


def test_what_is_as_it_was_installed_is_counted(site: Path, known: Facts) -> None:
    code = compared(site, known)
    assert (code.differences, code.unknown, code.compared) == ((), (), 4), "two sources, and their bytecode"
    (item,) = as_installed(code)
    assert item.outcome is Outcome.MET


@pytest.mark.parametrize("name", SABOTAGES)
def test_what_ran_and_was_not_installed_is_named(name: str, site: Path, known: Facts) -> None:
    sabotage, text, distribution = SABOTAGES[name]
    first = site.parents[1] / "first"
    sabotage(site, first)
    code = compared(site, known, made_by_splatfix="drop-in")
    (difference,) = code.differences
    assert difference.text.startswith(text.format(site=site, first=first))
    assert difference.distribution == distribution
    (item,) = as_installed(code)
    assert item.outcome is Outcome.FAILED and (
        ("splatfix install --repair fused_ssim" in item.advice) is bool(distribution)
    )


def test_what_no_digest_is_known_of_is_no_difference(site: Path, known: Facts) -> None:
    edit(site, site)
    write_record(site, digest=False)
    assert len(compared(site, known).unknown) == 2
    record_of(site).unlink()
    assert len(compared(site, known).unknown) == 2
    editable = compared(site, known, editable=True, origin=(site / "fused_ssim").as_uri())
    assert (editable.differences, editable.compared) == ((), 0)
    (item,) = as_installed(editable)
    assert item.outcome is Outcome.NOT_MEASURED


def test_an_altered_file_is_the_first_reason(site: Path, known: Facts, tmp_path: Path) -> None:
    edit(site, site)

    class Telling(RecordedTrainer):
        def run(self, argv: Any, **options: Any) -> Completed:
            if "smoke_trainer" in map(str, argv):
                document = {
                    "path": [str(site)],
                    "modules": {"fused_ssim.ssim": [str(site / "fused_ssim" / "ssim.py"), ""]},
                }
                write_json(Path(options["env"][loaded.VARIABLE], "loaded-1.json"), document)
            return super().run(argv, **options)

    made = certify(subject(SHORT, tmp_path / "out"), known, runner=Telling(figurine={}))
    assert made.verdict is Verdict.NOT_CERTIFIED and len(made.reasons) > 1
    assert made.reasons[0].startswith("code-as-installed: fused_ssim/ssim.py differs")
    step = next_step(made, None)
    assert step is not None and "splatfix install --repair fused_ssim --python" in step.text


@pytest.mark.parametrize(
    ("told", "verdict", "words"),
    [
        (None, Verdict.UNDETERMINED, "because of code that ran, and was not told of by any process"),
        ([], Verdict.NOT_CERTIFIED, "the training of figurine does not tell of smoke_trainer.data.images, "),
        (
            SURELY_LOADED[:-1],
            Verdict.NOT_CERTIFIED,
            "the training of figurine does not tell of PIL.Image, which",
        ),
        (SURELY_LOADED, Verdict.CERTIFIED, "This environment trained 1 scene"),
    ],
)
def test_what_a_training_surely_loaded_must_be_told(
    told: Any, verdict: Verdict, words: str, known: Facts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if told is None:
        monkeypatch.setattr(conftest, "tell_loaded", lambda variables: None)
    else:
        monkeypatch.setattr(conftest, "SURELY_LOADED", told)
    whole = dataclasses.replace(SHORT, iterations=None)
    made = certify(subject(whole, tmp_path / "out"), known, runner=RecordedTrainer())
    assert made.verdict is verdict, made.reasons
    assert words in " ".join((made.summary, *made.reasons))


@pytest.mark.skipif(sys.platform != "linux", reason="no other system tells")
def test_libraries_of_a_process_are_read_by_its_argument(tmp_path: Path) -> None:
    code = "import sys, _ctypes; print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdout.readline()
        assert any("_ctypes" in file for file in loaded.mapped(process_of(str(tmp_path))))
        assert 1 << 20 < next(resident_memory(process_of(str(tmp_path)))) < 1 << 30
        child.stdin.close()
    assert process_of(str(tmp_path)) == ""


def test_a_list_that_was_read_before_its_training_was_known(known: Facts, tmp_path: Path) -> None:
    """Beside other work the comparison begins late: what it reads then is held against the training all the same."""
    files = LoadedFiles(known, sys.executable, ProcessRunner(), tmp_path / "told", [], {})
    told = files.folder_of("figurine") / "loaded-1.json"
    told.write_text(json.dumps({"libraries": []}), encoding="utf-8")
    files.look()
    files.result(wait=True)
    files.trained("figurine", ())
    files.look()
    result = files.result(wait=True)
    assert result is not None and "does not tell of smoke_trainer.data.images" in str(result.differences)


def test_the_last_process_of_a_training_completes_its_list(known: Facts, tmp_path: Path) -> None:
    files = LoadedFiles(known, sys.executable, ProcessRunner(), tmp_path / "told", [], {})
    folder = files.folder_of("figurine")
    files.trained("figurine", ())
    for name, told in (("loaded-1.json", SURELY_LOADED[:3]), ("loaded-2.json", SURELY_LOADED[3:])):
        write_json(folder / name, {"libraries": told})
        files.look()
        result = files.result(wait=True)
        assert result is not None
        assert bool(result.differences) is (name == "loaded-1.json")
