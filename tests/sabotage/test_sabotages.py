"""Every sabotage of the table, in an environment of its own, by the processes that certify starts."""

import os
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.certify import Certificate, Criterion, Outcome, Suite, Verdict, certify, kernels
from splatfix.certify.criteria.criterion import REGISTERED
from splatfix.core.runner import Runner
from splatfix.install.dropins import make_dropin_wheel
from splatfix.knowledge.dropins import DROPINS
from splatfix.model import Facts
from tests.certify import test_levels, test_loaded_files
from tests.certify import test_sabotage as of_the_trainer
from tests.certify import test_stack as of_stacks
from tests.certify.conftest import SHORT, RecordedKernels, subject
from tests.sabotage.table import KERNELS, TABLE, Sabotage

SWITCH = "SPLATFIX_SABOTAGE"
by_hand = pytest.mark.skipif("SPLATFIX_SLOW" in os.environ, reason="make sabotage runs it")
ELSEWHERE = {
    "code-as-installed": test_loaded_files.test_an_altered_file_is_the_first_reason,
    "extensions-built": test_levels.test_extensions_are_judged_for_a_gpu_that_is_not_here,
    "extensions-ran": of_stacks.test_a_camera_model_that_it_does_not_take,
    "held-out-quality": of_the_trainer.test_quality_below_the_floor,
    "observed": of_stacks.test_what_the_observer_misses_is_no_fault_of_the_trainer,
    "runs-as-it-is": of_stacks.test_names_that_numpy_removed_are_mended_in_a_copy,
}
"""Criteria whose sabotage is a test of its own."""


def environment(folder: Path, row: Sabotage | None) -> str:
    """A virtual environment with the packages of this one, and what the row puts into it; returns its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    (site / "base.pth").write_text(sysconfig.get_path("purelib") + "\n")
    if row is None:
        return str(python)
    if row.dropin:
        dropin = next(item for item in DROPINS if item.distribution == row.dropin)
        with zipfile.ZipFile(make_dropin_wheel(dropin, "0+test", folder / "wheels")) as wheel:
            wheel.extractall(site)
        with (site / row.file).open("a", encoding="utf-8") as target:
            target.write(f"\n\n{row.lines}")
    if row.code:
        (site / "hooks_of_sabotage.py").write_bytes(Path(__file__).with_name("hooks.py").read_bytes())
        code = f"from hooks_of_sabotage import after, instead\n{row.code}"
        if row.put == "sitecustomize":
            (site / "sitecustomize.py").write_text(code)
        else:
            (site / "of_sabotage.py").write_text(code)
            condition = f"os.environ.get('{SWITCH}') and " if row.put == "variable" else ""
            (site / "zz.pth").write_text(f"import os; {condition}__import__('of_sabotage')\n")
    return str(python)


def certified(
    folder: Path, row: Sabotage | None, known: Facts, monkeypatch: pytest.MonkeyPatch
) -> Certificate:
    """The certificate of such an environment, without the comparison of its files with what was installed."""
    as_it_was = Criterion("code-as-installed", Outcome.NOT_MEASURED, "", "")
    monkeypatch.setattr("splatfix.certify.certificate.as_installed", lambda *_: as_it_was)
    monkeypatch.setenv(SWITCH, "1")
    python = environment(folder / "environment", row)
    runner: Any = Runner()
    if row is not None and row.refused_by not in KERNELS:
        runner = RecordedKernels()  # what is wrong in a training only is looked for there only
        suite = replace(SHORT, iterations=row.iterations)
        return certify(subject(suite, folder / "report", python=python), known, runner=runner)
    if row is not None:
        rows = tuple(item for item in kernels.IMPLEMENTATIONS if item[0] in ("arithmetic", row.refused_by))
        monkeypatch.setattr(kernels, "IMPLEMENTATIONS", rows)
    return certify(subject(Suite(), folder / "report", python=python, level=2), known, runner=runner)


@pytest.mark.slow
@by_hand
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_refused_for_its_first_cause(
    row: Sabotage, tmp_path: Path, known: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = certified(tmp_path, row, known, monkeypatch)
    assert made.verdict is Verdict.NOT_CERTIFIED
    print(*made.reasons, sep="\n")
    first = made.reasons[0]
    if row.refused_by in KERNELS:
        assert first.startswith(f"kernel: {row.refused_by}: ") and row.cause in first
        failed = {item.name for item in made.kernels if item.outcome is Outcome.FAILED}
        assert failed == {row.refused_by}
    else:
        assert f": {row.refused_by}: " in first and row.cause in first


@pytest.mark.slow
@by_hand
def test_a_healthy_environment_is_certified(
    tmp_path: Path, known: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its files compared, a setting or two that are nobody's sabotage, and one that its child does not hear of."""
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit('from PYTHONPATH')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    python = environment(tmp_path / "environment", None)
    made = certify(subject(replace(SHORT, iterations=100), tmp_path / "report", python=python), known)
    assert made.verdict is Verdict.CERTIFIED, made.reasons


def test_every_criterion_has_a_sabotage() -> None:
    """Here, in a trainer that was changed, or in a stack's checkout."""
    sabotaged = {row.refused_by for row in TABLE} | {*of_the_trainer.BROKEN, *ELSEWHERE}
    for broken in of_stacks.BROKEN.values():
        sabotaged |= set(broken["criteria"])
    codes = {"gradients-xyz" if item.code == "gradients" else item.code for item in REGISTERED}
    assert codes - sabotaged == {"metrics-finishes"}, "which is as rendering-finishes"
