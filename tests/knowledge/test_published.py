"""Published figures: transcribed rightly, plausible, of the scenes the trainer knows."""

import re
from pathlib import Path
from typing import Any

import pytest

from smoke_trainer.data.find import PUBLIC_SCENES
from splatfix.knowledge.published import methods, public_scenes
from splatfix.knowledge.tables import table

ROWS: dict[str, Any] = table("published")["methods"]
AVERAGES = [
    (name, average, key)
    for name, row in ROWS.items()
    for average in row["averages"]
    for key in ("psnr", "ssim", "lpips")
]
DECIMALS = {"psnr": 2, "ssim": 3, "lpips": 3}


@pytest.mark.parametrize(
    ("name", "average", "key"), AVERAGES, ids=[f"{name}-{one['of'][0]}-{key}" for name, one, key in AVERAGES]
)
def test_scenes_have_the_published_mean(name: str, average: dict[str, Any], key: str) -> None:
    """Each digit that is wrong in one of nine scenes moves the mean: this is how the transcription was checked."""
    values = [ROWS[name]["scenes"][scene][key] for scene in average["of"]]
    places = 2 if name == "3dgs-mcmc" else DECIMALS[key]
    # half a unit of the mean's last digit, and half of one of the scenes' own
    spare = 0.5 * 10**-places + 0.5 * 10 ** -(2 if name == "3dgs-mcmc" else 3)
    assert sum(values) / len(values) == pytest.approx(average[key], abs=spare)


def test_most_methods_publish_means() -> None:
    assert len(AVERAGES) == 27
    assert {name for name, row in ROWS.items() if not row["averages"]} == {
        "gsplat-30k",
        "gsplat-7k",
        "taming-3dgs",
    }


def test_scenes_are_the_trainers_own() -> None:
    assert public_scenes() == {name: scene.divisor for name, scene in PUBLIC_SCENES.items()}
    for method in methods().values():
        assert set(method.scenes) <= set(PUBLIC_SCENES)
    assert set(methods()["inria-2023"].scenes) == set(PUBLIC_SCENES)


def test_figures_are_plausible() -> None:
    """Also of the methods without a published mean: each scene lies within 2 dB of the first paper at the same length."""
    first = {30_000: methods()["inria-2023"], 7_000: methods()["inria-2023-7k"]}
    for method in methods().values():
        assert method.source.count("https://") == 1, method.name
        for scene, found in method.scenes.items():
            reference = first[method.iterations].scenes[scene]
            assert abs(found.psnr - reference.psnr) < 2.0, (method.name, scene)
            if found.ssim is not None and reference.ssim is not None:
                assert abs(found.ssim - reference.ssim) < 0.05, (method.name, scene)
            assert found.lpips is None or 0.05 < found.lpips < 0.45
            assert found.seconds is None or 60 < found.seconds < 7200
            assert found.gaussians is None or 5e5 < found.gaussians < 1e7
        lengths = method.iterations in (7_000, 30_000)
        assert lengths and (method.renderer in ("inria", "gsplat") or not method.gpu)
    for scene, long in methods()["gsplat-30k"].scenes.items():
        short = methods()["gsplat-7k"].scenes[scene]
        assert short.psnr < long.psnr and short.seconds is not None and long.seconds is not None
        assert 3 < long.seconds / short.seconds < 10


def test_the_page_and_the_help_name_every_method() -> None:
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "commands" / "certify.md").read_text(encoding="utf-8")
    help_text = (root / "splatfix" / "cli" / "options.toml").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `") and line.count("|") == 5]
    for name, method in methods().items():
        (row,) = [line for line in rows if f"`{name}`" in line]
        assert f"| {len(method.scenes)} |" in row and ("shown only" in row) is bool(method.differs)
        assert re.search(rf"[ ,\"]{name}[,.]", help_text)
