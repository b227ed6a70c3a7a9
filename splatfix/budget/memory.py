"""The memory of a training's phases as a sum of parts, on the card and in host memory."""

from __future__ import annotations

from collections.abc import Mapping
from operator import mul

from msgspec.structs import replace

from splatfix.budget.model import PHASES, Need, Part, Phase, Span, phase_of
from splatfix.budget.rates import UNPUBLISHED, rates, runs_of
from splatfix.knowledge.vram import Family, Run, StackMemory, families, overhead, source_named, stack_memory

FLOAT = 4
PUBLISHED_DEGREE = 3
"""Of the spherical harmonics in all published runs."""
LOADED = 240
"""Bytes a point of what loading holds beside the parameters: colours, distances, and the harmonics before they are cut up."""
SAVED = 60
"""Bytes a Gaussian that autograd saves of the activations (scales, opacities, rotations before they are normalised)."""
EVALUATED = 60
"""Bytes a pixel while a view is compared: rendering, photo, difference, square and mean."""
VGG_FEATURES, VGG_FIRST = 488, 512
"""Bytes a pixel of what LPIPS keeps of one picture by VGG-16, 122 floats, and of its widest layers, 64 channels twice."""
VGG_GRAPH = 1200 + 240 + 1952
"""Bytes a pixel of the graph that autograd keeps of one LPIPS: 300 floats of layers, places of the maxima, differences."""
ALEX_NETWORK = 200
"""Bytes a pixel of LPIPS by AlexNet, whose first layer is a sixteenth of the picture's pixels."""
NEIGHBOUR = 12
"""Bytes of a number (int64) and a distance (float32), which SuGaR keeps of each neighbour of a Gaussian."""
SAMPLED = 88
"""Bytes of an SDF sample and neighbour when SuGaR has its density: a number (int64) and 20 floats, of which 9 turn and scale."""
VIEWS_ALIVE = 2
"""Views whose graphs are alive where evaluation keeps them: a name is bound to the new one only when that is there."""
NETWORKS: Mapping[str, int] = {"": 0, "alex": ALEX_NETWORK, "vgg": 2 * VGG_FEATURES + VGG_FIRST}


def harmonics(degree: int) -> int:
    """Floats of a Gaussian's spherical harmonics, three colours."""
    return 3 * (degree + 1) ** 2


def card_phases(need: Need) -> Mapping[str, Phase | None]:
    """What each phase takes of the card (of the smoke trainer on a CPU: of host memory); None where nothing is known of it."""
    stack = stack_memory(need.stack)
    if stack is None or not stack.family:
        return dict.fromkeys(PHASES)
    family = families()[stack.family]
    if family.flat:
        low, typical, high = family.flat
        count = need.gaussians
        bytes_of = Span(low * count.low, typical * count.typical, high * count.high)
        training = phase_of((_part("everything", bytes_of, family.kind, family.source),))
        return {"loading": None, "training": training, "evaluation": None}
    if family.samples:
        return _least(need, stack, family)
    return dict(
        zip(PHASES, (maker(need, stack, family) for maker in (_loading, _training, _evaluation)), strict=True)
    )


def _least(need: Need, stack: StackMemory, family: Family) -> Mapping[str, Phase | None]:
    """Sum what can be computed of SuGaR's training, at the fewest Gaussians."""
    count = need.gaussians.low
    need = replace(need, gaussians=Span(count, count, count))
    neighbours, samples = need.neighbours or family.neighbours, need.samples or family.samples
    model, photos = _model(need, family, gradients=True), _photos(need, stack, family)
    kept = _part("neighbours", _exactly(NEIGHBOUR * neighbours * count), "computed", family.source)
    sampled = _part("SDF samples", _exactly(SAMPLED * neighbours * samples), "computed", family.source)
    loading = phase_of([model[0], photos], at_least=True)
    training = phase_of([*model, photos, kept, sampled], at_least=True)
    return {"loading": loading, "training": training, "evaluation": None}


def host_phases(need: Need) -> Mapping[str, Phase | None]:
    """What each phase takes of host memory; None where nothing is known of it, or where the phases are the host's already."""
    stack = stack_memory(need.stack)
    if stack is None or not stack.family or stack.family == "smoke" or families()[stack.family].flat:
        return dict.fromkeys(PHASES)
    family = families()[stack.family]
    process, source = overhead("host")
    parts = [_part("process", Span(*process), "claimed", source)]
    if need.photos_on_cpu:
        kept = _exactly(_photo(stack, family) * need.pixels * need.photos)
        parts.append(_part("photos", kept, "computed", family.source))
    loading = list(parts)
    if family.decoded:
        decoded = _exactly(family.decoded * (need.source_pixels or need.pixels) * need.photos)
        loading.append(_part("decoded photos", decoded, "computed", family.source))
    return {"loading": phase_of(loading), "training": phase_of(parts), "evaluation": phase_of(parts)}


def _loading(need: Need, stack: StackMemory, family: Family) -> Phase:
    """Photos are read, and every point becomes a Gaussian."""
    parts = []
    if not family.view:  # the smoke trainer reads each photo when it needs it
        parts.append(_photos(need, stack, family))
    points = float(need.points)
    parameters = FLOAT * (family.floats + harmonics(need.sh_degree))
    parts.append(_part("parameters", _exactly(parameters * points), "computed", family.source))
    parts.append(_part("copies of the points", _exactly(LOADED * points), "computed", family.source))
    return phase_of(_with_overheads(parts, family))


def _training(need: Need, stack: StackMemory, family: Family) -> Phase:
    """One view forward and backward, the step of Adam."""
    parts = [*_model(need, family, gradients=True), _photos(need, stack, family)]
    count = need.gaussians
    if family.view:
        parts.append(_measured_view(need, family, family.view))
        return phase_of(_with_overheads(parts, family))
    known = rates(family)
    view = family.forward + stack.extra + FLOAT * harmonics(need.sh_degree)
    parts.append(_part("forward buffers", count.times(view), "computed", family.source))
    maps = _exactly(known.pixel * need.pixels * need.calibrated)
    run = _published(need, stack, family)
    if run is not None:
        total_error = 0.0
        rest = _exactly(max(0.0, run.bytes - sum(part.bytes for part in parts) - maps.typical))
    else:
        total_error = known.error
        error = known.error if stack.own else UNPUBLISHED
        rest = _about(count.times(_rest(family) * need.calibrated), error)
        maps = _about(maps, error)
    parts.append(_part("tile pairs and backward pass", rest, "published", known.source))
    parts.append(_part("maps of the loss", maps, "published", known.source))
    return phase_of(_with_overheads(parts, family), total_error)


def _published(need: Need, stack: StackMemory, family: Family) -> Run | None:
    """Find the run of this very stack that was published for this training; None: it was another, or had other settings."""
    usual = need.sh_degree == PUBLISHED_DEGREE and need.strategy == "default" and not need.photos_on_cpu
    if not stack.own or not usual or need.calibrated != 1.0:
        return None
    same = [run for run in runs_of(family) if run.like(need.photos, need.width, need.height)]
    count = need.gaussians
    return next((run for run in same if count.low == count.high == run.gaussians), None)


def _evaluation(need: Need, stack: StackMemory, family: Family) -> Phase:
    """Held-out views are rendered and compared while the model is trained. Inria's trainer does so before the step of Adam, when
    the gradients are still there."""
    gradients = stack.family == "inria"
    parts = [*_model(need, family, gradients=gradients), _photos(need, stack, family)]
    count, pixels = need.gaussians, need.pixels
    if family.view:
        parts.append(_measured_view(need, family, family.view_evaluation))
        return phase_of(_with_overheads(parts, family))
    view = family.forward + stack.extra + FLOAT * harmonics(need.sh_degree)
    parts.append(_part("forward buffers", count.times(view), "computed", family.source))
    rest = count.times(_rest(family))
    # of what training takes beyond its stated parts a view without its backward pass takes some, at most all
    pairs = Span(0.0, rest.typical / 2, rest.high)
    parts.append(_part("tile pairs", pairs, "published", rates(family).source))
    parts.append(_part("compared pictures", _exactly(EVALUATED * pixels), "computed", family.source))
    network = family.lpips
    if need.lpips is not None:
        network = need.lpips
    parts.append(_part("LPIPS", _exactly(NETWORKS[network] * pixels), "computed", source_named("vgg")))
    if need.autograd:
        graphs = count.times((VIEWS_ALIVE - 1) * view + VIEWS_ALIVE * SAVED)
        graphs = Span(
            graphs.low, graphs.typical + (VIEWS_ALIVE - 1) * pairs.typical, graphs.high + pairs.high
        )
        parts.append(_part("graphs of views", graphs, "computed", family.source))
        if network == "vgg":
            kept = (VIEWS_ALIVE * VGG_GRAPH - VGG_FIRST) * pixels
            parts.append(_part("graphs of LPIPS", _exactly(kept), "computed", source_named("vgg")))
    return phase_of(_with_overheads(parts, family))


def _model(need: Need, family: Family, *, gradients: bool) -> list[Part]:
    parameters = need.gaussians.times(FLOAT * (family.floats + harmonics(need.sh_degree)))
    parts = [_part("parameters", parameters, "computed", family.source)]
    if gradients:
        parts.append(_part("gradients", parameters, "computed", family.source))
    parts.append(_part("moments", parameters.times(2.0), "computed", family.source))
    if need.strategy != "mcmc":
        statistics = need.gaussians.times(family.statistics)
        parts.append(_part("statistics of densification", statistics, "computed", family.source))
    return parts


def _rest(family: Family) -> float:
    """Bytes a Gaussian that published runs take beyond the stated parts."""
    parameters = FLOAT * (family.floats + harmonics(PUBLISHED_DEGREE))
    view = family.forward + FLOAT * harmonics(PUBLISHED_DEGREE)
    return max(0.0, rates(family).gaussian - 4 * parameters - family.statistics - view)


def _measured_view(need: Need, family: Family, moments: Mapping[str, tuple[float, ...]]) -> Part:
    """The peak of a view, which is that of its highest moment, by measured bytes of what it has."""
    pairs = family.pairs[need.strategy] * need.pixels
    alpha = need.pixels * (need.channels > 3)

    def peak(count: float, share: float) -> float:
        amounts = (need.pixels, alpha, count, share * count, pairs)
        return max(float(sum(map(mul, bytes_of, amounts))) for bytes_of in moments.values())

    count, share = need.gaussians, need.in_view
    peaks = Span(peak(count.low, share.low), peak(count.typical, share.typical), peak(count.high, share.high))
    return _part("a view", peaks, "published", family.source)


def _photos(need: Need, stack: StackMemory, family: Family) -> Part:
    """All photos where they stay there, else the one in hand."""
    a_pixel, number = _photo(stack, family), need.photos
    if family.view:
        a_pixel = need.channels
    if need.photos_on_cpu or not a_pixel:
        a_pixel, number = 3 * FLOAT, min(1, need.photos)
    return _part("photos", _exactly(a_pixel * need.pixels * number), "computed", stack.source)


def _photo(stack: StackMemory, family: Family) -> int:
    if stack.photo is None:
        return family.photo
    return stack.photo


def _with_overheads(parts: list[Part], family: Family) -> list[Part]:
    """The parts with what the allocator and the CUDA context take; a CPU's own are those of its kernels."""
    if family.workspace:
        buffers = _part("buffers of the kernels", Span(*family.workspace), "published", family.source)
        return [*parts, buffers, _part("Python and torch", Span(*family.process), "published", family.source)]
    shares, reserved = overhead("reserved")
    context, context_source = overhead("context")
    low, typical, high = (
        sum(getattr(part, name) for part in parts) for name in ("low_bytes", "bytes", "high_bytes")
    )
    allocator = Span(low * shares[0], typical * shares[1], high * shares[2])
    return [
        *parts,
        _part("allocator", allocator, "claimed", reserved),
        _part("CUDA context", Span(*context), "claimed", context_source),
    ]


def _exactly(value: float) -> Span:
    return Span(value, value, value)


def _about(span: Span, error: float) -> Span:
    return Span(span.low * (1 - error), span.typical, span.high * (1 + error))


def _part(name: str, span: Span, kind: str, source: str) -> Part:
    return Part(name, round(span.typical), round(span.low), round(span.high), kind, source)
