"""What a stack's own trainer needs before it runs: what to mend, what to leave out, which extensions count, which scene."""

from collections.abc import Collection
from pathlib import Path

from msgspec.structs import replace

from splatfix.certify.model import Mend
from splatfix.certify.request import RehearseRequest
from splatfix.certify.scenes import export_sample, find_samples
from splatfix.certify.stacks.child import STANDINS
from splatfix.certify.stacks.run import PICKLES
from splatfix.certify.stacks.subject import ChosenScene, Gaps
from splatfix.checks import run_checks, select
from splatfix.checks.checkout.recognition import recognise
from splatfix.context import Context
from splatfix.context.imports import brought_by, missing_modules
from splatfix.knowledge.breakages import breakage, breakages
from splatfix.knowledge.schedules import least_iterations
from splatfix.model import Checkout, Fact, Status

ITERATIONS, GPU_ITERATIONS = 120, 1000
"""Without a GPU: the prototype's, after which each of six trainers had a loss below half of its first."""
SAMPLE = "fruit"
"""The bundled scene that is used without another: COLMAP's layout, a pinhole camera, 24 small views."""
RESOLUTION = 128
"""Pixels of width of a rehearsal on a scene of the user's."""


def recognised_stack(checkout: Checkout) -> tuple[str, str]:
    """Key and name of the stack that a checkout is or was made from; "" and its folder's name where it is none."""
    recognition = recognise(checkout)
    folder = Path(checkout.folder).name
    if recognition is None:
        return "", folder
    if recognition.own:
        return recognition.stack.key, recognition.words
    return recognition.stack.key, f"{folder} ({recognition.words})"


def length_of(request: RehearseRequest, key: str, *, rehearsed: bool) -> int:
    """Iterations: as many as were asked for, else enough for the stack's own schedule."""
    usual = ITERATIONS if rehearsed else GPU_ITERATIONS
    return request.iterations or max(usual, least_iterations(key))


def called_extensions(checkout: Checkout, served: Collection[str]) -> tuple[str, ...]:
    """Return the top-level modules of the extensions that the checkout calls. ``served`` a drop-in replaces, or must be built.

    Not those that it asks for in a ``try`` and does not bring, as FastGS does with Inria's rasterizer for an optimizer.
    """
    brought = {_top(name) for name in (*served, *checkout.imports)}
    guarded = {_top(item.module) for item in checkout.guarded}
    called = [call.module for call in checkout.calls]
    called += [call.module for call in checkout.extension_calls]
    modules = dict.fromkeys(_top(name) for name in (*called, *checkout.imports, *sorted(guarded & brought)))
    return tuple(name for name in modules if name in brought or name not in guarded)


def _top(module: str) -> str:
    return module.partition(".")[0]


def find_gaps(context: Context, checkout: Checkout, *, rehearsed: bool) -> Gaps:
    """What a diagnosis finds wrong with the checkout's own Python code, and which modules it imports at once and lacks."""
    codes = {record.check.code for record in breakages() if record.check and record.uses}
    missing = missing_modules(
        context.facts,
        (item for item in checkout.needs if not item.beside),
        declared=checkout.pins,
        brought=brought_by(item.source for item in checkout.sources),
    )
    names = [item.name for item in missing.places if "." not in item.name]
    standins = tuple(name for name in names if rehearsed and name in STANDINS)
    placeholders = tuple(name for name in names if name not in standins)
    # what a stand-in takes the place of is not missing on a CPU
    needs = tuple(item for item in checkout.needs if item.name not in standins)
    facts = replace(context.facts, checkout=Fact(replace(checkout, needs=needs), "files of the checkout"))
    mends = []
    for item in run_checks(replace(context, facts=facts), select(("imports-missing", *sorted(codes)))):
        # of scripts that one can do without, of an extension's own sources, which a drop-in stands in for, or of loading
        # checkpoints, to which a training from the beginning does not come
        subject = item.subject or ""
        beside = item.code == PICKLES or subject == "beside" or "submodules/" in subject
        if item.status in (Status.FAIL, Status.WARN) and not beside:
            mends.append(Mend(item.code, item.summary, item.remedy))
    return Gaps(tuple(mends), placeholders, standins)


def checkpoint_loads(context: Context) -> tuple[str, ...]:
    """Places of the trainer that load checkpoints in a way that torch may refuse."""
    places = []
    for item in run_checks(context, select((PICKLES,))):
        if item.status is Status.WARN:
            places += [evidence.name for evidence in item.evidence if ":" in evidence.name]
    return tuple(places)


def known_edits(checkout: Checkout, mends: tuple[Mend, ...]) -> dict[str, tuple[str, ...]]:
    """By file of the checkout: the known breakages whose edits mend what was found in it."""
    codes = {item.code for item in mends}
    files: dict[str, dict[str, None]] = {}
    for match in checkout.python_matches:
        record = breakage(match.breakage)
        if record.check and record.check.code in codes and record.edits:
            files.setdefault(match.file, {})[match.breakage] = None
    return {file: tuple(keys) for file, keys in files.items()}


def choose_scene(request: RehearseRequest, folder: Path, *, rehearsed: bool) -> ChosenScene:
    """The user's scene, or a bundled one exported into ``folder``."""
    if request.scene is None:
        (sample,) = find_samples((SAMPLE,))
        return ChosenScene(export_sample(sample, folder / "scenes"), resolution=request.resolution or 1)
    scene = request.scene.absolute()
    images = ""
    if not (scene / "images").is_dir():
        images = max((path.name for path in scene.glob("images_*") if path.is_dir()), default="")
    resolution = request.resolution
    if rehearsed:
        resolution = resolution or RESOLUTION
    return ChosenScene(scene, images, resolution)
