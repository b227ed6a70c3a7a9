"""A report folder with one scene, and a certificate of it."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from PIL import Image

from splatfix.certify.model import Criterion, KernelCheck, Outcome, SceneRun
from splatfix.context.coverage import Coverage
from splatfix.context.model import BinaryFit, BinaryMatrix
from splatfix.core.step import Command
from splatfix.report.certificate import certificate_page
from tests.certify.conftest import RESULT, record_of
from tests.report.test_certificate import certificate, document

NATIVE = Coverage("sm_86", True, "sass", (), (), False, 1)
FITS = (NATIVE, Coverage("sm_120", False, "none", (0,), (), False, 1))
MATRIX = BinaryMatrix(("sm_86 (GPU 0)", "sm_120 (GPU 1)"), (BinaryFit("diff/_C.so", "sm_86", FITS),))
Render = Callable[..., str]


def png(width: int, height: int, pixel: Callable[[int, int], tuple[int, int, int]]) -> bytes:
    """A PNG, eight bits of red, green and blue."""
    picture, file = Image.new("RGB", (width, height)), io.BytesIO()
    picture.putdata([pixel(x, y) for y in range(height) for x in range(width)])
    picture.save(file, "PNG")
    return file.getvalue()


def metrics() -> str:
    """A metrics.jsonl."""
    ms = {"densify": 1.0, "data": 1.0, "forward": 10.0, "backward": 30.0, "optimizer": 2.0}
    rows = []
    for step in range(1, 31):
        row = {"iteration": step, "loss": 1 / step, "psnr": 20 + step / 10, "gaussians": 100 * step}
        rows.append(row | {"opacity_reset": step == 20, "ms": ms, "rss_gb": 0.3})
    return "\n".join(map(json.dumps, rows))


@pytest.fixture
def scene(tmp_path: Path) -> SceneRun:
    """A scene of two halves that are equal, in its folder."""
    folder = tmp_path / "figurine"
    (folder / "renders").mkdir(parents=True)
    (folder / "metrics.jsonl").write_text(metrics())
    (folder / "trainer.log").write_text("first line\nlast line\n")
    picture = png(64, 24, lambda x, y: (7 * (x % 32), 10 * y, 5 * ((x % 32) ^ y)))
    (folder / "renders/000030_view.png").write_bytes(picture)
    criteria = (
        Criterion("loss-falls", Outcome.MET, "0.3 to 0.1", "below 80% of the start", "", "a measured spread"),
        Criterion("held-out-quality", Outcome.NOT_MEASURED, "26.10 dB", "no floor known"),
    )
    renders = ("figurine/renders/000030_view.png",)
    return SceneRun("figurine", criteria, 12.0, record_of(RESULT), renders, "figurine/trainer.log")


@pytest.fixture
def render(tmp_path: Path, scene: SceneRun) -> Render:
    """The page of a certificate of the scene, with changes to the certificate."""

    def made(matrix: BinaryMatrix = MATRIX, **changes: Any) -> str:
        kernel = KernelCheck("ssim", "splatfix", Outcome.MET, 1e-8, 1e-6, kind="ours")
        repeat = Command(("splatfix", "certify", "--suite", "quick"))
        made = certificate(suite="quick", kernels=(kernel,), scenes=(scene,), skipped=(), repeat=repeat)
        made = replace(made, issued="2026-01-01T00:00:00+00:00")
        return certificate_page(document(replace(made, **changes), folder=str(tmp_path), matrix=matrix))

    return made
