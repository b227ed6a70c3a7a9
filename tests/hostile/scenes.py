"""Broken scenes: a file of any layout cut short, overwritten, emptied, removed or replaced; and PLY files by themselves."""

import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from smoke_trainer import ply
from smoke_trainer.data.images import ImageStore
from smoke_trainer.data.load import load_scene
from smoke_trainer.errors import SceneError
from splatfix.checks.scene import judge
from splatfix.checks.scene.size import read_scene_size
from splatfix.core.errors import SplatfixError
from splatfix.facts.scene.reader import read_scene
from splatfix.scenes.fix import FixRequest, fix_scene
from tests.smoke_trainer.tiny import LAYOUTS, SCENES, SHAPES

from .bad_files import bad_files, replace
from .harness import Case, seeded
from .mutate import damaged_text, mutants

CPU = torch.device("cpu")


def cases(count: int, seed: int) -> Iterator[Case]:
    """Scenes of each layout in turn, one damage each."""

    def run(folder: Path, number: int) -> None:
        shutil.copytree(SCENES / LAYOUTS[number % len(LAYOUTS)], folder / "scene")
        load_damaged(folder / "scene", number)

    return seeded(run, count, seed)


def load_damaged(folder: Path, seed: int) -> None:
    """Damage one file; the scene loads, or one clear error says why not."""
    torch.set_num_threads(1)
    rng = random.Random(seed)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    # most files are images; the others deserve as much attention
    rest = [path for path in files if path.suffix != ".png"]
    path = rng.choice(rest if rng.random() < 0.6 else files)
    _damage(path, rng.choice(files), rng)
    try:
        judge(read_scene(folder))
        with suppress(SplatfixError):
            fix_scene(FixRequest(folder, folder.parent / "copy", copies=(8,)), lambda text: None)
        size = read_scene_size(folder)
        assert isinstance(size, str) or min(size.photos, size.width, size.height) > 0
        scene = load_scene(str(folder), resolution=rng.choice((-1, 2, 20)))
        photos = ImageStore(CPU)
        for view in scene.train + scene.test:
            assert torch.isfinite(photos.get(view).color).all()
            assert np.isfinite(view.world_to_camera).all()
    except SceneError as error:
        assert str(folder) in error.message or "usable image" in error.message
        assert "\n" not in error.message and error.note
    else:
        assert np.isfinite(scene.points.xyz).all() and scene.extent > 0


def _damage(path: Path, other: Path, rng: random.Random) -> None:
    kind = rng.choice(("bytes", "bytes", "text", "text", "bad", "cut", "remove", "swap"))
    if kind == "bytes":
        ((_, data),) = mutants({"": path.read_bytes()}, 1, rng.getrandbits(32))
        path.write_bytes(data)
    elif kind == "text":
        path.write_bytes(damaged_text(rng, path.read_bytes()))
    elif kind == "cut":
        path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])
    elif kind == "bad":
        replace(path, rng.choice([put for _, put in bad_files()]))
    elif kind == "swap":
        shutil.copyfile(other, path) if other != path else None
    else:
        path.unlink()


def ply_files() -> dict[str, bytes]:
    """Points as text, points as bytes, a Gaussian model."""
    rng = np.random.default_rng(0)
    head = "ply\nformat {} 1.0\nelement vertex 3\n"
    head += "".join(f"property float {axis}\n" for axis in "xyz")
    head += "".join(f"property uchar {name}\n" for name in ("red", "green", "blue")) + "end_header\n"
    packed = b"".join(row.tobytes() + b"\x01\x02\x03" for row in rng.normal(size=(3, 3)).astype(">f4"))
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.ply"
        ply.write_gaussians(model, {name: rng.normal(size=(3, *shape)) for name, shape in SHAPES.items()})
        gaussians = model.read_bytes()
    return {
        "text": (head.format("ascii") + "1 2 3 4 5 6\n1e3 -2 .5 255 0 0\n0 0 0 0 0 0\n").encode(),
        "big-endian": head.format("binary_big_endian").encode() + packed,
        "gaussians": gaussians,
    }


def read_ply(path: Path) -> None:
    """Read it as points and as Gaussians; each gives rows of one length, or one error that names the file."""
    for read in (ply.read_points, ply.read_gaussians):
        try:
            found = read(path)
        except SceneError as error:
            assert path.name in str(error)
        else:
            if not isinstance(found, dict):
                assert np.isfinite(found.xyz).all()
