"""The documented quality of the presets, measured again."""

from pathlib import Path
from typing import Any

import pytest

from smoke_trainer.__main__ import config_from, parser
from smoke_trainer.config import PRESETS
from smoke_trainer.train import train
from splatfix.certify.scenes import find_samples


def run(scene: str, preset: str, seed: int, tmp_path: Path) -> dict[str, Any]:
    arguments = [scene, "--preset", preset, "--seed", str(seed), "--out", str(tmp_path / scene)]
    return train(config_from(parser().parse_args(arguments))).document


def test_every_sample_has_a_standard_preset_with_a_floor():
    assert set(PRESETS["standard"]) == {sample.name for sample in find_samples()}
    for preset in PRESETS.values():
        assert all(entry.psnr_floor > 15.0 for entry in preset.values())


@pytest.mark.slow
@pytest.mark.parametrize("scene", sorted(PRESETS["quick"]))
def test_quick_exceeds_its_floor_and_really_densifies(scene, tmp_path):
    document = run(scene, "quick", 7, tmp_path)
    assert document["heldout"]["psnr"] > PRESETS["quick"][scene].psnr_floor
    assert document["heldout"]["psnr"] > document["initial_heldout"]["psnr"] + 6.0
    counts = document["gaussians"]
    assert counts["cloned"] > 0 and counts["split"] > 0 and counts["pruned"] > 0
    assert document["opacity_resets"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("scene", sorted(PRESETS["standard"]))
def test_standard_exceeds_its_floor(scene, tmp_path):
    document = run(scene, "standard", 7, tmp_path)
    assert document["heldout"]["psnr"] > PRESETS["standard"][scene].psnr_floor
