"""Which extensions of a checkout are replaced by drop-ins, and which must be built natively, each with the reason."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from splatfix.checks.checkout.rasterizer_calls import unanswered
from splatfix.checks.checkout.recognition import stack_of
from splatfix.facts import Checkout, PackageSource, Source
from splatfix.knowledge.dropins import DROPINS, IRREPLACEABLE, Dropin, dropin_for_variant, refusal
from splatfix.knowledge.stacks import Stack, explain_mismatch, variant
from splatfix.plan.parts import variants_of_face


@dataclass(frozen=True)
class Native:
    """An extension that no drop-in takes the place of."""

    module: str
    why: str
    """"" where nobody made one."""

    @property
    def words(self) -> str:
        """``pytorch3d``, or ``diff_surfel_rasterization: its depth map has no drop-in``."""
        return f"{self.module}: {self.why}" if self.why else self.module


@dataclass(frozen=True)
class Replacement:
    """What drop-ins can do for a checkout."""

    dropins: tuple[Dropin, ...] = ()
    native: tuple[Native, ...] = ()

    @property
    def refused(self) -> str:
        """What must be built natively, in words; "" where everything is replaced."""
        return "; ".join(item.words for item in self.native)

    @property
    def useless(self) -> bool:
        """See :func:`useless`."""
        return useless(self.dropins, [item.module for item in self.native])


def useless(dropins: Sequence[object], native: Collection[str]) -> bool:
    """Drop-ins serve nobody where a rasterizer must be built natively beside them, or there are none.

    Args:
        native: names of what must be built.
    """
    return bool(native) and (not dropins or any("raster" in name for name in native))


def replacement_for(checkout: Checkout) -> Replacement:
    """Decide for every extension that a checkout brings or calls. The one place that decides; reads nothing but the facts.

    A drop-in stands in where it answers every call of the checkout, and where the extension's own source, if it is
    there, is a variant that the drop-in was made for.
    """
    dropins: list[Dropin] = []
    native: list[Native] = []
    for module in dict.fromkeys(_modules(checkout)):
        made = _decide(module, checkout)
        if isinstance(made, Dropin):
            dropins.append(made)
        else:
            native.append(Native(module, made))
    return Replacement(tuple(dropins), tuple(native))


def _modules(checkout: Checkout) -> Iterator[str]:
    """Import names of the extensions that are meant: brought along, imported, in a submodule, or what the stack needs."""
    sources = [item.source for item in checkout.sources]
    built = [module for source in sources for module in modules_of(source)]
    yield from built
    own = {*built, *(item.module for item in checkout.shadows)}
    yield from (
        name for name in checkout.imports if name not in own and name.removesuffix("_cuda") not in own
    )
    brought = {item.path.rpartition("/")[2].lower().replace("-", "_") for item in checkout.submodules}
    known = {item.module for item in DROPINS} | {name.replace("-", "_") for name in IRREPLACEABLE}
    yield from sorted((brought & known) - {name.rpartition(".")[2] for name in built})
    stack = stack_of(checkout)
    for key in (*stack.needs, *stack.also_needs) if stack else ():
        module = row.module if (row := variant(key)) else key
        if module in {item.module for item in DROPINS} or row:
            yield module


def modules_of(source: Source) -> tuple[str, ...]:
    """Import names of what a source builds: ``simple_knn`` of ``simple_knn._C``, ``fused_ssim`` of ``fused_ssim_cuda``."""
    found: dict[str, None] = {}
    for name in (item.name for item in source.modules if item.name):
        package, _, last = name.rpartition(".")
        beside = name.removesuffix("_cuda")
        found[package if package and last == "_C" else beside if beside in source.packages else name] = None
    tops = tuple(dict.fromkeys(name.partition(".")[0] for name in source.packages))
    return tuple(found) or tops or (source.label.replace("-", "_"),)


def _decide(module: str, checkout: Checkout) -> Dropin | str:
    """The drop-in for a module, else why there is none."""
    candidates = [item for item in DROPINS if item.module == module]
    package, _, last = module.rpartition(".")
    if package and any(item.module == last for item in DROPINS):
        return f"it is compiled as a part of {package}; a drop-in would be a package of its own"
    if not candidates:
        return IRREPLACEABLE.get(canonicalize_name(module), "")
    faces = (face for item in checkout.sources for face in item.faces if face.module == module)
    face = next((item for item in faces if item.settings), None)
    stack = stack_of(checkout)
    keys = variants_of_face(face) if face else _needed(stack, module)
    if face and not keys:
        return (
            f"its own source is a variant that splatfix does not know ({_nearest_variant(face, candidates)})"
        )
    made = [item for key in keys if (item := dropin_for_variant(key))]
    problems = {item: list(unanswered(checkout, item)) for item in dict.fromkeys((*made, *candidates))}
    wanted = made if face else list(problems)
    answering = next((item for item in wanted if not problems[item]), None)
    called = any(call.module == module for call in checkout.calls)
    if answering and (called or keys or len(candidates) == 1):
        return answering
    said = [text for key in keys if (text := refusal(key))]
    if (face and said) or not called:
        return said[0] if said else "which of the packages of that name is called cannot be read"
    nearest = min(wanted or candidates, key=lambda item: _distance(problems[item]))
    where, what = problems[nearest][0]
    why = f"{nearest.name} comes nearest, and does not answer {where}: {'; '.join(what)}"
    return "; ".join([*said[:1], why])


def _distance(lacking: Iterable[tuple[str, list[str]]]) -> tuple[int, int]:
    """How much a drop-in lacks; of two that lack as much, the one that is also not given what it asks for is farther off."""
    words = [problem for _, problems in lacking for problem in problems]
    return len(words), sum("leaves out" in problem for problem in words)


def _needed(stack: Stack | None, module: str) -> tuple[str, ...]:
    return tuple(
        key for key in (stack.needs if stack else ()) if (row := variant(key)) and row.module == module
    )


def _nearest_variant(face: PackageSource, candidates: Iterable[Dropin]) -> str:
    """In what a package differs from the variant of a drop-in that is nearest to it."""
    each = (
        explain_mismatch(
            item.serves[0],
            settings=face.settings,
            exports=face.exports or None,
            returns=face.returns,
            forward=face.forward,
        )
        for item in candidates
    )
    least: tuple[str, ...] = min((item for item in each if item is not None), key=len)
    return "; ".join(least)
