"""What ran is compared with what was installed: real processes, and wheels whose files were changed afterwards."""

import base64
import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from importlib._bootstrap_external import _code_to_timestamp_pyc  # type: ignore[import-not-found]
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.app.certify import next_step
from splatfix.certify import Outcome, Verdict, certify
from splatfix.certify.inside import loaded
from splatfix.certify.loaded_files import as_installed
from splatfix.certify.model import Criterion
from splatfix.core.files import make_folder, write_json
from splatfix.core.runner import Completed, Runner
from splatfix.model import Distribution, Fact, Facts
from tests.certify.conftest import SHORT, RecordedTrainer, subject

RECORD = "fused_ssim-0.3.dist-info/RECORD"
SOURCE = "def fused_ssim(first, second):\n    return first - second\n"
LOAD = """
import sys; sys.path.insert(0, sys.argv[1]); import loaded; loaded.at_exit(); sys.path[0] = sys.argv[2]
import fused_ssim
"""


def write_record(site: Path, *, digest: bool = True) -> None:
    lines = []
    for path in sorted((site / "fused_ssim").glob("*.py")):
        content = path.read_bytes()
        digest_of = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        known = f"sha256={digest_of},{len(content)}" if digest else ","
        lines.append(f"fused_ssim/{path.name},{known}\n")
    (site / RECORD).write_text("".join(lines), encoding="utf-8")


def edit(site: Path, first: Path) -> None:
    """Of the same size, so that only its content tells."""
    path = site / "fused_ssim" / "ssim.py"
    path.write_text(SOURCE.replace("first - second", "second - first"), encoding="utf-8")


def shadow(site: Path, first: Path) -> None:
    shutil.copytree(site / "fused_ssim", first / "fused_ssim")


def compiled_beside(site: Path, first: Path) -> None:
    path = site / "fused_ssim" / "ssim.py"
    path.unlink()
    code = compile(SOURCE, str(path), "exec")
    path.with_suffix(".pyc").write_bytes(_code_to_timestamp_pyc(code, 0, 0))


SABOTAGES: dict[str, tuple[Callable[[Path, Path], object], str, str]] = {
    "edited": (edit, "fused_ssim/ssim.py differs from what fused_ssim 0.3 installed", "fused_ssim"),
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
    (folder / RECORD).parent.mkdir()
    write_record(folder)
    return folder


def with_site(site: Path, known: Facts, **distribution: Any) -> Facts:
    """Facts of an environment that has fused_ssim too, in a site-packages folder of its own."""
    interpreter = known.environment.interpreter.value
    assert interpreter is not None
    installed = Distribution("fused_ssim", "0.3", str(site), **distribution)
    environment = replace(
        known.environment,
        interpreter=Fact(replace(interpreter, site_packages=(str(site),))),
        distributions=Fact((installed, *(known.environment.distributions.value or ()))),
    )
    return replace(known, environment=environment)


def compared(site: Path, known: Facts, **distribution: Any) -> Criterion:
    """What a process that imports fused_ssim loaded, compared."""
    first, inside = site.parents[1] / "first", Path(loaded.__file__).parent
    told = make_folder(site.parents[1] / "told")
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", loaded.VARIABLE: str(told)}
    variables["PYTHONPATH"] = f"{first}{os.pathsep}{site}"
    argv = [sys.executable, "-S", "-c", LOAD, str(inside), str(first)]
    done = Runner().run(argv, timeout=60.0, env=variables)
    assert done.ok, done.stderr
    return as_installed(with_site(site, known, **distribution), told, [inside], "python")


def test_what_is_as_it_was_installed_is_counted(site: Path, known: Facts) -> None:
    item = compared(site, known)
    assert item.outcome is Outcome.MET
    assert item.measured == "2 files of fused_ssim 0.3 are as they were installed"


@pytest.mark.parametrize("name", SABOTAGES)
def test_what_ran_and_was_not_installed_is_named(name: str, site: Path, known: Facts) -> None:
    sabotage, text, distribution = SABOTAGES[name]
    first = site.parents[1] / "first"
    sabotage(site, first)
    item = compared(site, known, made_by_splatfix="drop-in")
    assert item.outcome is Outcome.FAILED and ";" not in item.measured
    assert item.measured.startswith(text.format(site=site, first=first))
    assert ("splatfix install --repair fused_ssim" in item.advice) is bool(distribution)


def test_what_no_digest_is_known_of_is_no_difference(site: Path, known: Facts) -> None:
    edit(site, site)
    write_record(site, digest=False)
    assert compared(site, known).measured.count("fused_ssim/") == 2
    (site / RECORD).unlink()
    item = compared(site, known)
    assert (item.outcome, item.measured.count(".py")) == (Outcome.NOT_MEASURED, 2)
    editable = compared(site, known, editable=True, origin=(site / "fused_ssim").as_uri())
    assert editable.outcome is Outcome.NOT_MEASURED


def test_an_altered_file_is_the_first_reason(site: Path, known: Facts, tmp_path: Path) -> None:
    edit(site, site)

    class Telling(RecordedTrainer):
        def run(self, argv: Any, **options: Any) -> Completed:
            if "smoke_trainer" in map(str, argv):
                files = {"fused_ssim.ssim": str(site / "fused_ssim" / "ssim.py")}
                document = {"modules": files, "libraries": []}
                write_json(Path(options["env"][loaded.VARIABLE], "loaded-1.json"), document)
            return super().run(argv, **options)

    made = certify(subject(SHORT, tmp_path / "out"), with_site(site, known), runner=Telling(figurine={}))
    assert made.verdict is Verdict.NOT_CERTIFIED and len(made.reasons) > 1
    assert made.reasons[0].startswith("diagnosis: code-as-installed: fused_ssim/ssim.py differs")
    step = next_step(made)
    assert step is not None and "splatfix install --repair fused_ssim --python" in step.text
