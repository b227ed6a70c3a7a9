"""``splatfix vram``: whether a training fits a card, how large it gets, how long it takes, and what to change."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from splatfix import facts as machine_facts
from splatfix.app.calibrate import calibrated
from splatfix.app.result import Result, show_message
from splatfix.budget.changes import changes_for, largest_for
from splatfix.budget.expected import gaussians_expected, minutes_expected, span_of
from splatfix.budget.memory import card_phases, host_phases
from splatfix.budget.model import IN_VIEW, LIMIT, Budget, Card, Expected, Need, Phase, Span, Verdict
from splatfix.checks.scene.size import SceneSize, read_scene_size
from splatfix.context import make_context
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.files import write_text
from splatfix.core.reading import is_folder
from splatfix.facts.scene.reader import scenes_below
from splatfix.knowledge.scene_readers import scene_readers
from splatfix.knowledge.vram import (
    StackMemory,
    card_memory,
    families,
    known_names,
    near_cards,
    settings_of,
    stack_memory,
)
from splatfix.report.vram import budget_page

_EXITS: Mapping[Verdict, Exit] = {
    Verdict.FITS: Exit.OK,
    Verdict.EXCEEDS: Exit.FAILURE,
    Verdict.UNKNOWN: Exit.UNDETERMINED,
}


class VramRequest(Struct, frozen=True):
    """What was asked of ``splatfix vram``."""

    stack: str
    gpu: str = ""
    """A name or a size; "" is this machine's largest."""
    scene: Path | None = None
    photos: int | None = None
    size: tuple[int, int] | None = None
    points: int | None = None
    gaussians: int | None = None
    budget: int | None = None
    sh_degree: int = 3
    strategy: str = "default"
    photos_on_cpu: bool = False
    autograd: bool = False
    iterations: int = 30_000
    calibrate: bool = False
    python: str | None = None
    html: Path | None = None


def foretell(request: VramRequest) -> Result[Budget]:
    """Foretell a training, by its numbers or by a scene's folder; of a folder of scenes by the one with the most pixels.

    Raises:
        SplatfixError: ``no-scene-given``, ``not-a-scene``, ``no-budget``, ``no-stack``, ``unknown-stack``, ``unknown-gpu`` (exit
            code 2); ``no-gpu``, ``calibration-failed``, ``cannot-write`` (3).
    """
    stack = stack_memory(request.stack)
    if stack is None:
        if not request.stack:
            raise SplatfixError.of("app.no-stack", known=tuple(known_names()))
        raise SplatfixError.of("app.unknown-stack", name=request.stack, known=tuple(known_names()))
    if request.budget and not any(setting.does == "budget" for setting in settings_of(stack)):
        raise SplatfixError.of("app.no-budget", stack=stack.key)
    folder, scene, scenes = None, None, 0
    if request.scene is not None:
        folder, scene, scenes = _largest_scene(request.scene)
    need = _need(request, stack, scene)
    card = _card(request, on_cpu=stack.family == "smoke")
    note = ""
    if request.calibrate:
        need, note = calibrated(need, folder, request.python)
    expected = gaussians_expected(need, request.budget, request.iterations)
    if note and need.gaussians.high and not (request.gaussians or request.budget):
        expected = Expected(need.gaussians.low, need.gaussians.high, (), note, "short runs on this machine")
    if expected is not None and not need.gaussians.high:
        need = replace(need, gaussians=span_of(expected))
    phases: Mapping[str, Phase | None] = dict.fromkeys(("loading", "training", "evaluation"))
    hosts, minutes = phases, None
    if need.gaussians.high:
        phases, hosts = card_phases(need), host_phases(need)
        minutes = minutes_expected(need, request.iterations)
    limit = int(LIMIT * card.memory_bytes)
    verdict = verdict_of(phases, limit)
    changes = changes_for(need, limit) if verdict is not Verdict.FITS else ()
    budget = Budget(
        card=card,
        limit_bytes=limit,
        need=need,
        scene=str(folder or ""),
        scenes=scenes,
        verdict=verdict,
        **phases,
        host=hosts,
        gaussians=expected,
        minutes=minutes,
        changes=tuple(changes),
        largest=largest_for(need, limit),
        unit=families()[stack.family].unit if stack.family else "Gaussians",
        calibration=note,
    )
    if request.html is not None:
        write_text(request.html, budget_page(budget))
    return Result("vram", budget, _EXITS[verdict])


def verdict_of(phases: Mapping[str, Phase | None], limit: int) -> Verdict:
    """Judge that a training exceeds a card by any phase that is known, and fits it where all are known and none may take more."""
    known = [phase for phase in phases.values() if phase is not None]
    if any(phase.peak_bytes > limit for phase in known):
        return Verdict.EXCEEDS
    if len(known) < len(phases) or any(phase.at_least or phase.high_bytes > limit for phase in known):
        return Verdict.UNKNOWN
    return Verdict.FITS


def _largest_scene(folder: Path) -> tuple[Path, SceneSize, int]:
    """The scene of a folder, or that with the most pixels of those in it, and of how many."""
    if not is_folder(folder):
        raise SplatfixError.of("app.not-a-scene", why=f"there is no folder {folder}")
    read = {scene: read_scene_size(scene) for scene in scenes_below(folder)}
    sizes = {scene: size for scene, size in read.items() if not isinstance(size, str)}
    if not sizes:
        raise SplatfixError.of("app.not-a-scene", why=next(iter(read.values())))
    for why in read.values():
        if isinstance(why, str):
            show_message(f"Note: {why}.")
    largest = max(sizes, key=lambda scene: sizes[scene].photos * sizes[scene].width * sizes[scene].height)
    return largest, sizes[largest], len(sizes)


def _need(request: VramRequest, stack: StackMemory, scene: SceneSize | None) -> Need:
    """Return the numbers of the training: those that were given before those of the folder."""
    photos, size, points = request.photos, request.size, request.points or 0
    source_pixels, channels, in_view, size_option = 0, 3, IN_VIEW, ""
    if scene is not None:
        photos, points, channels = photos or scene.photos, points or scene.points, scene.channels
        source_pixels = scene.width * scene.height
        if size is None:
            size, size_option = _trained_size(stack, scene)
        if scene.in_view is not None:
            in_view = Span(0.8 * scene.in_view, scene.in_view, 1.0)
    if photos is None or size is None:
        raise SplatfixError.of("app.no-scene-given")
    count = float(request.budget or request.gaussians or 0)
    return Need(
        stack=stack.key,
        photos=photos,
        width=size[0],
        height=size[1],
        gaussians=Span(count, count, count),
        points=points,
        size_option=size_option,
        source_pixels=source_pixels,
        channels=channels,
        sh_degree=request.sh_degree,
        photos_on_cpu=request.photos_on_cpu,
        strategy="mcmc" if stack.key == "mcmc" else request.strategy,
        autograd=request.autograd,
        in_view=in_view,
        lpips="vgg" if request.autograd else None,
    )


def _trained_size(stack: StackMemory, scene: SceneSize) -> tuple[tuple[int, int], str]:
    """The size to which a stack reduces photos by itself, and its option where only that makes it take them.

    The smoke trainer takes the smallest copies, gsplat's those of one size, or the photos if told so.
    """
    if not stack.family:
        return (scene.width, scene.height), ""
    family, reader = families()[stack.family], scene_readers().get(stack.key)
    divisor, option = 1.0, ""
    if family.view:
        divisor = float(max(scene.copies, default=1))
    elif reader is not None and reader.copies in scene.copies:
        divisor = float(reader.copies)
    elif reader is not None:
        option = reader.copies_option
    while stack.halved_above and max(scene.width, scene.height) / divisor > stack.halved_above:
        divisor *= 2
    if family.widest and scene.width / divisor > family.widest:
        divisor = scene.width / family.widest
    if family.longest:
        divisor = max(divisor, max(scene.width, scene.height) / family.longest)
    return (max(1, round(scene.width / divisor)), max(1, round(scene.height / divisor))), option


def _card(request: VramRequest, *, on_cpu: bool) -> Card:
    """The card that was named, or this machine's largest; host memory for a trainer on the CPU."""
    if request.gpu:
        memory = card_memory(request.gpu)
        if memory is None:
            near = ", ".join(near_cards(request.gpu))
            raise SplatfixError.of("app.unknown-gpu", gpu=request.gpu, near=f"Near: {near}. " * bool(near))
        return Card(request.gpu, memory, "its name")
    facts = machine_facts.gather("")
    if on_cpu and facts.machine.resources.memory_total is not None:
        return Card("host memory", facts.machine.resources.memory_total, "/proc/meminfo")
    largest = make_context(facts).largest_card
    if largest is None:
        raise SplatfixError.of("app.no-gpu-with-known-memory")
    return Card(*largest, facts.machine.gpus.found_via)
