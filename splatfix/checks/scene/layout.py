"""Whether a folder is a scene: its layout, the files of its reconstruction, and the split into training and test views."""

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

from splatfix.checks.registry import Check
from splatfix.checks.scene.model import check, fix_command, listed
from splatfix.core.words import counted, few
from splatfix.facts.scene.colmap import PARTS
from splatfix.facts.scene.model import Scene
from splatfix.model import Finding

FEWEST_VIEWS = 3
FEW_VIEWS = 10


@check("scene-not-found")
def scene_not_found(scene: Scene, this: Check) -> Iterator[Finding]:
    if not scene.layout:
        yield this.fail()


@check("scene-not-reconstructed")
def scene_not_reconstructed(scene: Scene, this: Check) -> Iterator[Finding]:
    if scene.layout == "photos":
        yield this.fail(photos=counted(len(scene.photos), "photo"), workspace=f"{scene.folder}-scene")


@check("scene-model-damaged")
def scene_model_damaged(scene: Scene, this: Check) -> Iterator[Finding]:
    if not scene.damage:
        return
    model, missing = scene.model, list[str]()
    for part in PARTS if model is not None else ():
        if model is not None and f"{part}{model.suffix}" not in model.files:
            missing.append(f"{model.folder}/{part}{model.suffix}")
    if missing:
        yield from listed(this.fail, missing, "incomplete")
    else:
        yield this.fail(damage=scene.damage)


@check("scene-model-elsewhere")
def scene_model_elsewhere(scene: Scene, this: Check) -> Iterator[Finding]:
    if scene.model is not None and scene.model.folder != "sparse/0":
        yield this.warn(folder=scene.model.folder)


@check("scene-several-models")
def scene_several_models(scene: Scene, this: Check) -> Iterator[Finding]:
    if scene.model is None:
        return
    largest, images = max(scene.models, key=lambda model: model.images), counted(scene.model.images, "image")
    if largest.images > scene.model.images:
        yield this.fail(model=scene.model, images=images, largest=largest)
    elif len(scene.models) > 1:
        others = ", ".join(f"{model.folder} ({model.images})" for model in scene.models[1:])
        yield this.skip(model=scene.model, images=images, others=others)


@check("scene-two-forms")
def scene_two_forms(scene: Scene, this: Check) -> Iterator[Finding]:
    if scene.model is not None and scene.model.text_images not in (None, scene.model.images):
        yield this.warn(model=scene.model)


@check("scene-few-views")
def scene_few_views(scene: Scene, this: Check) -> Iterator[Finding]:
    views = sum(not image.held_out for image in scene.images)
    if scene.damage or scene.layout in ("", "photos"):
        return
    if views < FEWEST_VIEWS:
        yield this.fail(views=counted(views, "view"))
    elif views < FEW_VIEWS:
        yield this.warn(views=views)


def file_stem(path: str) -> str:
    """Return the name of a photo without folders, of either system, and without its ending."""
    return PurePosixPath(path.replace("\\", "/")).stem


@check("scene-few-registered")
def scene_few_registered(scene: Scene, this: Check) -> Iterator[Finding]:
    if not scene.images or scene.damage:
        return
    registered = {image.path for image in scene.images}
    # a photo that is named with another folder or ending is no photo that COLMAP left out: photos-missing tells of it
    missing = {file_stem(path) for path in registered if scene.photos.get(path) is None}
    beside = sorted(
        path for path in scene.present if path not in registered and file_stem(path) not in missing
    )
    total = len(beside) + len(registered)
    if len(beside) > total / 4:
        yield from listed(this.warn, beside, total=total)
    elif beside:
        yield this.skip(total=total, names=few(beside))


@check("scene-no-split")
def scene_no_split(scene: Scene, this: Check) -> Iterator[Finding]:
    if scene.layout != "blender" or scene.damage:
        return
    if not scene.test_file:
        yield this.fail(fix=fix_command(scene))
        return
    held_out = {image.path for image in scene.images if image.held_out}
    both = sorted(image.path for image in scene.images if not image.held_out and image.path in held_out)
    yield from listed(this.fail, both, "in-both")
    if not held_out:
        yield this.warn()


@check("scene-named-twice")
def scene_named_twice(scene: Scene, this: Check) -> Iterator[Finding]:
    counts = Counter((image.path, image.held_out) for image in scene.images if image.path)
    yield from listed(this.warn, sorted(path for (path, _), count in counts.items() if count > 1))


@check("scene-names-collide")
def scene_names_collide(scene: Scene, this: Check) -> Iterator[Finding]:
    paths: dict[str, set[str]] = {}
    for image in scene.images:
        if image.path and scene.layout != "blender":
            paths.setdefault(image.path.rsplit("/", 1)[-1].split(".")[0], set()).add(image.path)
    yield from listed(this.warn, sorted(path for group in paths.values() if len(group) > 1 for path in group))
