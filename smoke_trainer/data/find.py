"""Finds scenes below a data folder: the public ones by name, others by their layout; says which are missing and why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from smoke_trainer.data.files import is_file
from smoke_trainer.errors import SceneError, UsageError

# full_eval.py of taming-3dgs (commit fd0f7d9), mode "budget": densification every 500 iterations, as its train.sh has it.
BUDGET_REFINE_EVERY = 500


@dataclass(frozen=True)
class PublicScene:
    """A scene's data set, the divisor of its image size (images_4, images_2, images), and its published budget: the final
    number of Gaussians as a multiple of the initial points."""

    dataset: str
    divisor: int
    budget: float


def _scenes(dataset: str, divisor: int, budget: float, *names: str) -> Dict[str, PublicScene]:
    return dict.fromkeys(names, PublicScene(dataset, divisor, budget))


# Divisors: full_eval.py of the reference implementation. Budgets: full_eval.py of taming-3dgs (commit fd0f7d9).
PUBLIC_SCENES: Dict[str, PublicScene] = {
    **_scenes("Mip-NeRF 360, outdoor", 4, 15.0, "bicycle", "flowers", "garden", "stump", "treehill"),
    **_scenes("Mip-NeRF 360, indoor", 2, 2.0, "bonsai", "counter", "kitchen", "room"),
    **_scenes("Tanks and Temples", 1, 2.0, "train", "truck"),
    **_scenes("Deep Blending", 1, 5.0, "drjohnson", "playroom"),
}
# Folders below ROOT: ROOT/garden, ROOT/360_v2/garden, ROOT/tandt_db/db/playroom.
MAX_DEPTH = 3
# Where photos without a reconstruction are looked for.
PHOTOS = ("images", "input", "photos", "")


@dataclass(frozen=True)
class FoundScene:
    """A scene that was found; its layout is None where it has none that is known."""

    name: str
    folder: Path
    layout: Optional[str]

    @property
    def public(self) -> Optional[PublicScene]:
        """The public scene of that name, which is COLMAP's: a folder `train` with a Blender scene's images is not the one."""
        if self.layout != "colmap":
            return None
        return PUBLIC_SCENES.get(self.name)


def layout_of(folder: Path) -> Optional[str]:
    """`colmap`, `blender`, `nerfstudio`, or None for a folder that is no scene; by its files, COLMAP first as the field does."""
    if (folder / "sparse").is_dir() or (folder / "colmap" / "sparse").is_dir():
        return "colmap"
    if is_file(folder / "transforms_train.json"):
        return "blender"
    if is_file(folder / "transforms.json"):
        return "nerfstudio"
    return None


def survey(root: Path) -> Tuple[List[FoundScene], List[Tuple[str, str]]]:
    """All scenes of a data folder, the public ones first, or the one that the folder itself is; no scene at all is a SceneError.

    And (name, reason) of the public scenes that are missing, where at least one is there: that they are elsewhere is no news for
    somebody's own ones.
    """
    if not root.is_dir():
        raise UsageError(f"folder not found: {root}", hint="give the folder that contains the scenes")
    layout = layout_of(root)
    if layout is not None:
        return [FoundScene(root.resolve().name, root, layout)], []
    scenes: Dict[str, FoundScene] = {}
    level = [root]
    for _ in range(MAX_DEPTH):
        folders = [folder for parent in level for folder in _folders(parent)]
        level = []
        for folder in folders:
            layout = layout_of(folder)
            if layout is None:
                level.append(folder)
                continue
            # Of two folders with one name the first keeps it; the other is named by its whole path below the root.
            name = folder.name
            if name in scenes:
                name = "-".join(folder.relative_to(root).parts)
            scenes[name] = FoundScene(name, folder, layout)
    if not scenes:
        raise no_scene(root)
    known = [name for name in PUBLIC_SCENES if name in scenes and scenes[name].public]
    others = sorted(scenes.keys() - set(known))
    missing = [name for name in PUBLIC_SCENES if known and name not in known]
    reason = f"not found in {root}, or without its reconstruction (sparse/)"
    return [scenes[name] for name in known + others], [(name, reason) for name in missing]


def _folders(parent: Path) -> List[Path]:
    """The folders in one, without hidden ones; none in one that cannot be opened, such as lost+found."""
    try:
        return sorted(path for path in parent.iterdir() if path.is_dir() and path.name[0] not in "._")
    except OSError:
        return []


def locate(name: str, root: Path) -> FoundScene:
    """The scene of that name below `root`; a SceneError says which ones are there."""
    scenes, _ = survey(root)
    for scene in scenes:
        if scene.name == name:
            return scene
    raise SceneError(
        f"{name} not found in {root}",
        f"scenes found: {', '.join(scene.name for scene in scenes)}",
        "download the data set, or name another scene",
    )


def no_scene(root: Path) -> SceneError:
    """Build the error for a folder without a scene: photos without camera poses are a scene to be."""
    for folder in (root / name for name in PHOTOS):
        photos = [path for path in folder.glob("*") if path.suffix.lower() in (".png", ".jpg", ".jpeg")]
        if photos:
            return SceneError(
                f"{folder} holds photos ({len(photos)}), but {root} has no camera poses",
                "training needs to know where each photo was taken; structure from motion finds that out",
                f"run `splatfix scenes check {root}`: it says how COLMAP reconstructs them",
            )
    return SceneError(
        f"no scene found in {root}",
        f"searched {MAX_DEPTH} levels for sparse/ (COLMAP), transforms_train.json (Blender) and transforms.json (nerfstudio)",
        "give the folder of a scene, or the folder that contains the scenes",
    )
