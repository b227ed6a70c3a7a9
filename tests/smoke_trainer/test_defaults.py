"""The defaults that the documentation states are the trainer's, and the quality of the presets is measured again."""

from dataclasses import fields
from pathlib import Path

import pytest

from smoke_trainer import config
from smoke_trainer.__main__ import config_from, parser
from smoke_trainer.train import train
from splatfix.certify.scenes import find_samples

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "trainer.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.endswith("` |") and "| `" in line
]
FIELDS = {row[3].strip("`"): row for row in ROWS}
# What no reference has, or what is a bound of ours.
OWN = {"cap_max", "budget", "reset_at_start", "grow_below3d"}


def value_of(name: str) -> float:
    result: object = config.scaled_to(config.TrainConfig("scene", config.PAPER_ITERATIONS, Path("out")))
    for part in name.split("."):
        result = getattr(result, part)
    assert isinstance(result, (int, float))
    return float(result)


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_the_page_states_the_default(name: str) -> None:
    assert float(FIELDS[name][2]) == pytest.approx(value_of(name))


def test_every_default_of_the_method_is_on_the_page() -> None:
    requested = {f"lrs.{field.name}" for field in fields(config.LearningRates)}
    requested |= {f"densify.{field.name}" for field in fields(config.DensifyConfig) if field.name not in OWN}
    assert requested <= set(FIELDS)


def test_the_defaults_are_the_references() -> None:
    assert all(float(row[1]) == float(row[2]) for row in ROWS)


def test_every_sample_has_a_standard_preset_with_a_floor():
    assert set(config.PRESETS["standard"]) == set(find_samples())
    for preset in config.PRESETS.values():
        assert all(entry.psnr_floor > 15.0 for entry in preset.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("preset", "scene"),
    [(preset, scene) for preset in config.PRESETS for scene in sorted(config.PRESETS[preset])],
)
def test_a_preset_exceeds_its_floor(preset, scene, tmp_path):
    arguments = [scene, "--preset", preset, "--seed", "7", "--out", str(tmp_path / scene)]
    record = train(config_from(parser().parse_args(arguments)))
    assert record.heldout.psnr > config.PRESETS[preset][scene].psnr_floor
    if preset == "quick":
        assert record.heldout.psnr > record.initial_heldout.psnr + 6.0
        counts = record.gaussians
        assert counts.cloned > 0 and counts.split > 0 and counts.pruned > 0
        assert record.opacity_resets == 1
