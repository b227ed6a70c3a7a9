"""Whether a folder is a scene: its layout, the files of its reconstruction, and the split into training and test views."""

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

from splatfix.checks.registry import Check
from splatfix.checks.scene.model import check, fix_command, listed
from splatfix.core.step import run
from splatfix.core.words import counted, few
from splatfix.facts.scene.colmap import PARTS
from splatfix.facts.scene.model import Scene
from splatfix.model import Finding

FEWEST_VIEWS = 3
FEW_VIEWS = 10


@check("scene-not-found", "The folder has a scene")
def no_scene(scene: Scene, this: Check) -> Iterator[Finding]:
    """Neither a reconstruction nor photos."""
    if not scene.layout:
        yield this.fail(
            "There is no reconstruction and no photo in this folder.",
            remedy="Give the folder that has sparse/ and images/, or transforms_train.json, or transforms.json.",
        )


@check("scene-not-reconstructed", "The photos have poses")
def no_reconstruction(scene: Scene, this: Check) -> Iterator[Finding]:
    """Photos alone."""
    if scene.layout == "photos":
        workspace = f"{scene.folder}-scene"
        yield this.fail(
            f"The folder has {counted(len(scene.photos), 'photo')} and no reconstruction, which every trainer needs.",
            remedy=(
                f"Copy the photos to {workspace}/images.",
                run(
                    *("colmap", "automatic_reconstructor", "--workspace_path", workspace),
                    *("--image_path", f"{workspace}/images"),
                    text="Reconstruct them",
                ),
            ),
        )


@check("scene-model-damaged", "The reconstruction can be read")
def damaged(scene: Scene, this: Check) -> Iterator[Finding]:
    """A file of it is missing, cut short, or something else."""
    if not scene.damage:
        return
    again = "Copy or export the reconstruction again."
    if scene.model is not None:
        missing = [part for part in PARTS if f"{part}{scene.model.suffix}" not in scene.model.files]
        if missing:
            names = [f"{scene.model.folder}/{part}{scene.model.suffix}" for part in missing]
            yield from listed(this.fail, names, "Files missing of the COLMAP model", again)
            return
    yield this.fail(f"The reconstruction cannot be read: {scene.damage}.", remedy=again)


@check("scene-model-elsewhere", "The COLMAP model is where trainers look for it")
def elsewhere(scene: Scene, this: Check) -> Iterator[Finding]:
    """Inria's family reads ``sparse/0`` and nothing else."""
    if scene.model is not None and scene.model.folder != "sparse/0":
        yield this.warn(
            f"The COLMAP model is in {scene.model.folder}; most trainers read only sparse/0.",
            remedy="Move its files to sparse/0.",
        )


@check("scene-several-models", "The largest of several models is the one that is trained")
def several(scene: Scene, this: Check) -> Iterator[Finding]:
    """COLMAP's mapper writes a model for each part of the photos that it could connect."""
    if scene.model is None:
        return
    largest = max(scene.models, key=lambda model: model.images)
    if largest.images > scene.model.images:
        yield this.fail(
            f"Trainers read {scene.model.folder} with {counted(scene.model.images, 'image')}, and {largest.folder} has "
            f"{largest.images}.",
            remedy=f"Rename {largest.folder} to {scene.model.folder}, or merge the models (colmap model_merger).",
        )
    elif len(scene.models) > 1:
        others = ", ".join(f"{model.folder} ({model.images})" for model in scene.models[1:])
        yield this.skip(
            f"Trainers read only {scene.model.folder} ({counted(scene.model.images, 'image')}); there are also: {others}.",
        )


@check("scene-two-forms", "The text files and the binary files of a model say the same")
def two_forms(scene: Scene, this: Check) -> Iterator[Finding]:
    """Where both lie there most trainers read the binary ones, and some the text."""
    if scene.model is not None and scene.model.text_images not in (None, scene.model.images):
        yield this.warn(
            f"images.txt in {scene.model.folder} has {scene.model.text_images} images, images.bin {scene.model.images}.",
            remedy="Remove the older of the two forms.",
        )


@check("scene-few-views", "There are views enough")
def few_views(scene: Scene, this: Check) -> Iterator[Finding]:
    """A trainer needs two views at least, and ten before held-out views have a chance."""
    views = sum(not image.held_out for image in scene.images)
    if scene.damage or scene.layout in ("", "photos"):
        return
    if views < FEWEST_VIEWS:
        yield this.fail(
            f"The reconstruction has only {counted(views, 'view')} to train on.",
            remedy="Take more photos.",
        )
    elif views < FEW_VIEWS:
        yield this.warn(
            f"The reconstruction has only {views} views: held-out views will look much worse than these.",
            remedy="Take more photos, each overlapping the one before by two thirds.",
        )


def file_stem(path: str) -> str:
    """Return the name of a photo without folders, of either system, and without its ending."""
    return PurePosixPath(path.replace("\\", "/")).stem


@check("scene-few-registered", "Most photos are part of the reconstruction")
def few_registered(scene: Scene, this: Check) -> Iterator[Finding]:
    """COLMAP leaves out what it cannot connect."""
    if not scene.images or scene.damage:
        return
    registered = {image.path for image in scene.images}
    # a photo that is named with another folder or ending is no photo that COLMAP left out: photos-missing tells of it
    missing = {file_stem(path) for path in registered if scene.photos.get(path) is None}
    beside = sorted(
        path for path in scene.present if path not in registered and file_stem(path) not in missing
    )
    total = len(beside) + len(registered)
    summary = f"Photos that are not in the reconstruction and will not be used, of {total}"
    if len(beside) > total / 4:
        remedy = "Match them again (exhaustive instead of sequential matching), or take photos in between."
        yield from listed(this.warn, beside, summary, remedy)
    elif beside:
        yield this.skip(f"{summary}: {few(beside)}.")


@check("scene-no-split", "Training and test views are apart")
def split(scene: Scene, this: Check) -> Iterator[Finding]:
    """Where the layout has a split: no view is in both parts, and none is empty."""
    if scene.layout != "blender" or scene.damage:
        return
    if not scene.test_file:
        yield this.fail(
            "There is no transforms_test.json, which loaders of this layout open.",
            remedy=fix_command(scene),
        )
        return
    held_out = {image.path for image in scene.images if image.held_out}
    both = sorted(image.path for image in scene.images if not image.held_out and image.path in held_out)
    remedy = "Remove them from one of the two files."
    yield from listed(this.fail, both, "Images that are both trained on and held out", remedy)
    if not held_out:
        yield this.warn("transforms_test.json has no frames.", remedy="Move some frames there.")


@check("scene-named-twice", "Every image is named once")
def named_twice(scene: Scene, this: Check) -> Iterator[Finding]:
    """Two entries of one file are one view that counts twice."""
    counts = Counter((image.path, image.held_out) for image in scene.images if image.path)
    twice = sorted(path for (path, _), count in counts.items() if count > 1)
    yield from listed(this.warn, twice, "Images that are named more than once", "Remove the second entry.")


@check("scene-names-collide", "Names differ in more than their folder or ending")
def names_collide(scene: Scene, this: Check) -> Iterator[Finding]:
    """Inria's family looks for a photo by its name without folders, and calls it by what stands before the first dot."""
    paths: dict[str, set[str]] = {}
    for image in scene.images:
        if image.path and scene.layout != "blender":
            paths.setdefault(image.path.rsplit("/", 1)[-1].split(".")[0], set()).add(image.path)
    same = sorted(path for group in paths.values() if len(group) > 1 for path in group)
    summary = "Images that differ only in folder or ending, which trainers of Inria's family mix up"
    yield from listed(this.warn, same, summary, "Give every photo a unique name, and reconstruct again.")
