"""Which extensions of a checkout are replaced by drop-ins, and which must be built natively, each with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.checks.checkout.rasterizer_calls import unanswered
from splatfix.checks.checkout.recognition import stack_of
from splatfix.knowledge.dropins import (
    DROPINS,
    IRREPLACEABLE,
    Dropin,
    declared_dropin,
    dropin_for_variant,
    refusal,
    refusals,
)
from splatfix.knowledge.faces import NotReadable
from splatfix.knowledge.stacks import Traits, explain_mismatch, variant
from splatfix.model import Checkout, Source
from splatfix.model.option import Native, Replacement
from splatfix.plan.faces import Usage, derive_face, usage_of
from splatfix.plan.parts import variants_of_face

_ASSUMED_DEPTH = "its depth map is taken for the sum of z alpha T: its CUDA source is not there"


def replacement_for(checkout: Checkout, order: Sequence[str] = ()) -> Replacement:
    """Decide for every extension that a checkout brings or calls. The one place that decides; reads nothing but the facts.

    A drop-in stands in where it answers every call of the checkout, and where the extension's own source, if it is
    there, is a variant that the drop-in was made for. A rasterizer that no table lists gets a drop-in with the face by
    which it is called, where all of that face has a meaning.

    Args:
        order: what rasterizers that no table lists give back, in order, where the user says it.
    """
    dropins: list[Dropin] = []
    native: list[Native] = []
    for module in dict.fromkeys(_modules(checkout)):
        usage = usage_of(module, checkout)
        chosen: Dropin | Native | str = _by_tables(usage, checkout)
        if isinstance(chosen, str):
            chosen = _by_face(chosen, usage, checkout, order)
        if isinstance(chosen, Native):
            native.append(chosen)
        elif _is_imported(module, checkout):
            face, depth_was_read = chosen.declared, usage.known or (usage.source and usage.source.depth)
            if face and "depth" in face.results and not depth_was_read:
                note = f"{chosen.note}; {_ASSUMED_DEPTH}"
                chosen = replace(chosen, declared=replace(face, assumed=_ASSUMED_DEPTH), note=note)
            dropins.append(chosen)
    return Replacement(tuple(dropins), tuple(native))


def _modules(checkout: Checkout) -> Iterator[str]:
    """Yield the import names of the extensions that are meant: brought along, imported, in a submodule, or what the stack needs.

    Where the imports of its code are known, a submodule's name or the table of its stack adds nothing that none imports.
    """
    sources = [item.source for item in checkout.sources]
    built = [module for source in sources for module in _modules_of(source)]
    yield from built
    own = {*built, *(item.module for item in checkout.shadows)}
    for name in checkout.imports:
        if name not in own and name.removesuffix("_cuda") not in own:
            yield name
    served = {dropin.host or dropin.module for dropin in DROPINS}
    # what a submodule is named after, where there is a drop-in for it or it is known to have none
    folders = {item.path.rpartition("/")[2].lower().replace("-", "_") for item in checkout.submodules}
    known = served | {name.replace("-", "_") for name in IRREPLACEABLE}
    candidates = sorted((folders & known) - {name.rpartition(".")[2] for name in built})
    stack = stack_of(checkout)
    for key in (*stack.needs, *stack.also_needs) if stack else ():
        row = variant(key)
        if row:
            candidates.append(row.module)
        elif key in served:
            candidates.append(key)
    yield from (name for name in candidates if _is_imported(name, checkout))


def _is_imported(module: str, checkout: Checkout) -> bool:
    """Tell whether code of the checkout imports it, or it is the checkout's own; true also where no import is known."""
    imported = {*checkout.imports, *(item.module for item in checkout.guarded)}
    imported.update(item.name for item in checkout.needs)
    own = [name for item in checkout.sources if item.path == "." for name in _modules_of(item.source)]
    tops = {name.partition(".")[0] for name in (*imported, *own)}
    return not imported or module.partition(".")[0] in tops


def _modules_of(source: Source) -> tuple[str, ...]:
    """Return the import names of what a source builds: ``simple_knn`` of ``simple_knn._C``."""
    modules: dict[str, None] = {}
    for module in filter(None, source.modules):
        package, _, last = module.rpartition(".")
        beside = module.removesuffix("_cuda")
        name = module
        if package and last == "_C":
            name = package
        elif beside in source.packages:
            name = beside
        modules[name] = None
    tops = tuple(dict.fromkeys(name.partition(".")[0] for name in source.packages))
    return tuple(modules) or tops or (source.label.replace("-", "_"),)


def _by_tables(usage: Usage, checkout: Checkout) -> Dropin | str:
    """Return the drop-in that was made for a module, else why there is none."""
    module, face = usage.module, usage.source
    candidates = [dropin for dropin in DROPINS if module in (dropin.module, dropin.host)]
    package, _, last = module.rpartition(".")
    if package and any(dropin.module == last for dropin in DROPINS):
        return f"it is compiled as a part of {package}; a drop-in would be a package of its own"
    if not candidates or usage.obstacle:
        return IRREPLACEABLE.get(canonicalize_name(module), "")
    host = candidates[0].host
    published = [item.path for item in checkout.submodules if f"/nerfstudio-project/{host}" in item.url]
    for item in checkout.sources:
        if host and item.source.name == host and item.path not in (".", *published):
            return f"the checkout has its own in {item.path}, and no drop-in was made for that"
    stack, keys = stack_of(checkout), tuple[str, ...]()
    if face:
        keys = variants_of_face(face)
    elif stack:
        rows = map(variant, stack.needs)
        keys = tuple(row.key for row in rows if row and row.module == module)
    if face and not keys:
        traits = Traits(face.settings, face.exports or None, face.returns, face.forward)
        # in what it differs from the variant of a drop-in that is nearest to it
        explained = (explain_mismatch(dropin.serves[0], traits) for dropin in candidates)
        nearest_to_it = min((item for item in explained if item is not None), key=len)
        return f"its own source is a variant that splatfix does not know ({'; '.join(nearest_to_it)})"
    of_variants = [dropin for dropin in map(dropin_for_variant, keys) if dropin]
    unanswered_by = {}
    for dropin in (*of_variants, *candidates):
        unanswered_by[dropin] = list(unanswered(checkout, dropin))
    # its own source says which variant it is; without it whatever answers the calls will do
    fitting = list(unanswered_by)
    if face:
        fitting = of_variants
    answering = next((dropin for dropin in fitting if not unanswered_by[dropin]), None)
    if answering and (usage.calls or keys or len(candidates) == 1):
        return answering
    refusals = list(filter(None, map(refusal, keys)))
    if (face or not usage.calls) and refusals:
        return refusals[0]
    if not usage.calls and len(candidates) > 1:
        return "which of the packages of that name is called cannot be read"

    def lacking(dropin: Dropin) -> tuple[int, int]:
        # of two that lack as much, the one that is also not given what it asks for is farther off
        problems = [problem for _, of_call in unanswered_by[dropin] for problem in of_call]
        return len(problems), sum("leaves out" in problem for problem in problems)

    nearest = min(fitting or candidates, key=lacking)
    call, differences_of_call = unanswered_by[nearest][0]
    lacks = f"{nearest.name} comes nearest, and does not answer {call}: {'; '.join(differences_of_call)}"
    return "; ".join([*refusals[:1], lacks])


def _by_face(reason: str, usage: Usage, checkout: Checkout, order: Sequence[str]) -> Dropin | Native:
    """Return a drop-in with the face by which a rasterizer is called, else why there is none.

    Args:
        reason: why none was made for it, as the tables say.
    """
    module = usage.module
    # what is neither called nor there shows no face
    shows_face = usage.obstacle or usage.calls or usage.source
    if canonicalize_name(module) in IRREPLACEABLE or not shows_face:
        return Native(module, reason)
    face = derive_face(usage, order)
    if isinstance(face, NotReadable):
        # what a table says of it is more than what was read
        if reason in refusals():
            return Native(module, reason)
        return Native(module, face.reason, undetermined=face.undetermined)
    dropin = declared_dropin(face)
    for location, problems in unanswered(checkout, dropin):
        lacks = f"a drop-in with its face does not answer {location}: {'; '.join(problems)}"
        return Native(module, lacks)
    return dropin
