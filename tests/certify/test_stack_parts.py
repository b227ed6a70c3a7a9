"""Parts of a rehearsal: a scene's copy, how far the trainer is, its threads, and what it left."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from smoke_trainer.errors import Damage
from smoke_trainer.progress import words
from splatfix.certify.scenes import copy_scene
from splatfix.certify.stacks.prepare import threads_for
from splatfix.certify.stacks.subject import latest
from splatfix.model import Facts, Resources
from tests.plan.machines import refused
from tests.tables import data

pytest.importorskip("torch")

from splatfix.certify.stacks import compare_renders


def test_a_copy_of_a_scene_ends(tmp_path: Path, scene: Path) -> None:
    """Photos behind links come with it; what leads back to it, or nowhere, does not."""
    (scene / "images").rename(tmp_path / "photos")
    (tmp_path / "photos" / "a.png").touch()
    (scene / "images").symlink_to(tmp_path / "photos")
    for name, target in (("here", "."), ("above", "../.."), ("gone", "nowhere")):
        (scene / name).symlink_to(target)
    copy = copy_scene(scene, tmp_path / "copy")
    assert {path.name for path in copy.iterdir()} == {"images", "sparse"}
    assert (copy / "images" / "a.png").is_symlink() and not (copy / "images").is_symlink()
    assert refused(copy_scene, scene, copy).code == "cannot-write", "it is there already"


def test_progress_is_that_of_the_record_so_far() -> None:
    assert latest({}, 100) == latest({"record": {"iterations": 0}}, 100) == {}
    seen = {
        "iterations": 3,
        "train_loss": {"last": None},
        "gaussians": {"final": 300},
        "seconds": {"train": 0.75},
    }
    assert words(latest({"record": seen}, 100)) == "iteration 3 of 100, 4.0 it/s, 300 Gaussians, 0:24 left"


@pytest.mark.parametrize(("own", "cores", "load", "count"), data(__file__)["threads"])
def test_threads(
    known: Facts, monkeypatch: pytest.MonkeyPatch, own: str, cores: int, load: float, count: str
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", own)
    machine = replace(known.machine, resources=Resources(cores=cores))
    assert threads_for(replace(known, machine=machine), load) == count


HEAD = (
    "ply\nformat binary_little_endian 1.0\nelement vertex 5\nproperty float x\nproperty float y\nend_header\n"
)


def test_values_of_a_point_cloud_are_counted(tmp_path: Path) -> None:
    values = np.zeros((5, 2), "<f4")
    values[0, 1], values[4, 1] = np.nan, np.inf
    path = tmp_path / "point_cloud.ply"
    path.write_bytes(HEAD.encode() + values.tobytes())
    assert compare_renders.point_cloud(path) == {"count": 5, "non_finite": 2}
    path.write_bytes(HEAD.encode() + values[:4].tobytes())
    with pytest.raises(Damage, match="fewer than the 5 vertices"):
        compare_renders.point_cloud(path)
