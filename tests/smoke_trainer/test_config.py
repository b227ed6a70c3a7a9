"""The documented quality of the presets, measured again."""

import pytest

from smoke_trainer.__main__ import config_from, parser
from smoke_trainer.config import PRESETS
from smoke_trainer.train import train
from splatfix.certify.scenes import find_samples


def test_every_sample_has_a_standard_preset_with_a_floor():
    assert set(PRESETS["standard"]) == {sample.name for sample in find_samples()}
    for preset in PRESETS.values():
        assert all(entry.psnr_floor > 15.0 for entry in preset.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "scene"), [(preset, scene) for preset in PRESETS for scene in sorted(PRESETS[preset])]
)
def test_a_preset_exceeds_its_floor(preset, scene, tmp_path):
    arguments = [scene, "--preset", preset, "--seed", "7", "--out", str(tmp_path / scene)]
    document = train(config_from(parser().parse_args(arguments))).document
    assert document["heldout"]["psnr"] > PRESETS[preset][scene].psnr_floor
    if preset == "quick":
        assert document["heldout"]["psnr"] > document["initial_heldout"]["psnr"] + 6.0
        counts = document["gaussians"]
        assert counts["cloned"] > 0 and counts["split"] > 0 and counts["pruned"] > 0
        assert document["opacity_resets"] == 1
