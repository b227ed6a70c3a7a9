"""Any file of any layout cut short, overwritten, emptied, removed or replaced: a scene loads, or one clear error says why not."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smoke_trainer.data.images import ImageStore
from smoke_trainer.data.load import load_scene
from smoke_trainer.errors import SceneError

CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
QUICK = settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=CHECKS)
LONG = settings(max_examples=600, deadline=None, derandomize=True, suppress_health_check=CHECKS)
LAYOUTS = ["colmap-binary", "colmap-text", "blender", "nerfstudio"]
CPU = torch.device("cpu")


def damage(path: Path, other: Path, data: st.DataObject) -> None:
    """One of the ways in which downloads, disks and people break a file."""
    whole = path.read_bytes()
    kind = data.draw(st.sampled_from(["cut", "overwrite", "insert", "empty", "remove", "folder", "swap"]))
    at = data.draw(st.integers(0, max(0, len(whole) - 1)))
    if kind == "cut":
        path.write_bytes(whole[:at])
    elif kind in ("overwrite", "insert"):
        patch = data.draw(
            st.binary(min_size=1, max_size=12) | st.sampled_from([b"1e999", b"nan", b"-", b"\xff" * 8])
        )
        path.write_bytes(whole[:at] + patch + whole[at + (len(patch) if kind == "overwrite" else 0) :])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "swap":
        path.write_bytes(other.read_bytes())
    else:
        path.unlink()
        if kind == "folder":
            path.mkdir()


def loads_or_is_refused(folder: Path, data: st.DataObject) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    # Most files are images; the others deserve as much attention.
    rest = [path for path in files if path.suffix != ".png"]
    path = data.draw(st.sampled_from(rest) | st.sampled_from(files))
    damage(path, data.draw(st.sampled_from(files)), data)
    try:
        scene = load_scene(str(folder), resolution=data.draw(st.sampled_from([-1, 2, 20])))
        photos = ImageStore(CPU, CPU)
        for view in scene.train + scene.test:
            assert torch.isfinite(photos.get(view).color).all()
            assert np.isfinite(view.world_to_camera).all()
    except SceneError as error:
        assert str(folder) in error.message or "usable image" in error.message
        assert "\n" not in error.message and error.note
    else:
        assert np.isfinite(scene.points.xyz).all() and scene.extent > 0


@pytest.mark.parametrize("layout", LAYOUTS)
@QUICK
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(layout, scene_folder, data):
    folder = scene_folder(layout)
    try:
        loads_or_is_refused(folder, data)
    finally:
        shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@LONG
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused_many_times(layout, scene_folder, data):
    folder = scene_folder(layout)
    try:
        loads_or_is_refused(folder, data)
    finally:
        shutil.rmtree(folder)
