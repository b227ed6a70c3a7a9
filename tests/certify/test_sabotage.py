"""Every criterion against a trainer that is broken in just that: the certificate is refused for that reason, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.certify import SUITES, Outcome, Suite, Verdict, certify
from splatfix.certify.criteria.learning import REQUIRED_GROUPS
from splatfix.core.toml import parse_toml
from splatfix.model import Facts
from tests.certify.conftest import RecordedKernels, sabotage, subject

pytestmark = pytest.mark.slow

TRAIN = "smoke_trainer/train.py"
SHORT = Suite("quick", ("figurine",), 600.0, iterations=100)
WHOLE = replace(SUITES["quick"], scenes=("figurine",))
"""With its floor of held-out PSNR."""

NO_GRADIENT = """
_norms = gradient_norms
def gradient_norms(model):
    model.params[{group!r}].grad.zero_()
    return _norms(model)
"""
_ROWS = parse_toml(Path(__file__).with_name("sabotages.toml").read_text(encoding="utf-8"))
BROKEN = {code: (row["file"], row["lines"]) for code, row in _ROWS.items()}
for _group in REQUIRED_GROUPS:
    BROKEN[f"gradients-{_group.replace('_', '-')}"] = (TRAIN, NO_GRADIENT.format(group=_group))
"""File and lines for each criterion."""


def refusals(out: Path, known: Facts, file: str, lines: str, suite: Suite = SHORT) -> set[str]:
    """The criteria for which a broken trainer is refused."""
    broken = subject(suite, out, stage_files=sabotage(file, lines))
    certificate = certify(broken, known, runner=RecordedKernels())
    failed = [item for run in certificate.scenes for item in run.criteria if item.outcome is Outcome.FAILED]
    assert (certificate.verdict is Verdict.NOT_CERTIFIED) == bool(failed), certificate.reasons
    assert len(certificate.reasons) == len(failed)
    print(*certificate.reasons, sep="\n")
    return {item.code for item in failed}


@pytest.mark.parametrize("code", BROKEN)
def test_refused_for_that_and_nothing_else(code: str, tmp_path: Path, known: Facts) -> None:
    assert refusals(tmp_path, known, *BROKEN[code]) == {code}


def test_quality_below_the_floor(tmp_path: Path, known: Facts) -> None:
    """A camera that is off by a pixel."""
    shifted = BROKEN["held-out-psnr-rises"][1].replace("cx + 6", "cx + 1")
    assert refusals(tmp_path, known, TRAIN, shifted, WHOLE) == {"held-out-quality"}


def test_every_criterion_is_sabotaged(tmp_path: Path, known: Facts) -> None:
    certificate = certify(subject(SHORT, tmp_path), known, runner=RecordedKernels())
    codes = {item.code for run in certificate.scenes for item in run.criteria}
    assert certificate.verdict is Verdict.CERTIFIED, certificate.reasons
    assert codes - {"held-out-quality"} == BROKEN.keys() - {"no-cuda-error", "memory-spill"}, "of a GPU"


def test_an_installed_kernel_that_is_not_the_own_one(tmp_path: Path, known: Facts) -> None:
    """Both lie within their tolerance of float64, on opposite sides: only side by side they are seen to differ."""
    scaled = "def fused_ssim(*images):\n    return _fused(*images) * (1 {})\n"

    def stage_files(folder: Path) -> Path:
        path = sabotage("splatfix/kernels/ssim.py", f"_fused = fused_ssim\n{scaled.format('+ 8e-7')}")(folder)
        installed = path / "fused_ssim"
        installed.mkdir()
        text = f"from splatfix.kernels.ssim import _fused\n\n\n{scaled.format('- 9.5e-6')}"
        (installed / "__init__.py").write_text(text)
        return path

    certificate = certify(subject(Suite(), tmp_path, level=2, stage_files=stage_files), known)
    assert certificate.verdict is Verdict.NOT_CERTIFIED
    (reason,) = certificate.reasons
    assert reason.startswith("kernel: ssim: fused_ssim of ")
    assert "differs from splatfix's own kernel on the same input: value 1.0e-05" in reason
    (wrong,) = [item for item in certificate.kernels if item.outcome is Outcome.FAILED]
    assert wrong.implementation == "fused_ssim"
    assert wrong.value_error is not None and wrong.value_error <= wrong.value_allowed
