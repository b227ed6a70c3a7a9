"""Which extensions of a checkout are replaced by drop-ins, and which must be built natively, each with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from packaging.utils import canonicalize_name

from splatfix.checks.checkout.rasterizer_calls import unanswered
from splatfix.checks.checkout.recognition import stack_of
from splatfix.knowledge.dropins import DROPINS, IRREPLACEABLE, Dropin, dropin_for_variant, refusal, refusals
from splatfix.knowledge.faces import NotReadable
from splatfix.knowledge.stacks import Traits, explain_mismatch, variant
from splatfix.model import Checkout, Source
from splatfix.model.option import Native, Replacement
from splatfix.plan.faces import derived_dropin, known_rasterizer, own_source, unlike_dropins, with_assumptions
from splatfix.plan.parts import variants_of_face


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
        known = known_rasterizer(module, checkout)
        chosen: Dropin | Native | str = _by_tables(module, checkout)
        # nothing replaces a rasterizer whose source is not there, where its repository is known for it
        if known and known.refused and own_source(module, checkout)[1] is None:
            chosen = f"{known.refused} ({known.repository})"
        if isinstance(chosen, str):
            chosen = Native(module, chosen)
        if isinstance(chosen, Native) and canonicalize_name(module) not in IRREPLACEABLE:
            called = any(call.module == module for call in checkout.calls)
            # a rasterizer that no table says nothing replaces
            if called or own_source(module, checkout)[1] is not None:
                chosen = _declared(chosen, checkout, order)
        if isinstance(chosen, Dropin):
            if _is_imported(module, checkout):
                dropins.append(with_assumptions(chosen, checkout))
        else:
            native.append(chosen)
    return Replacement(tuple(dropins), tuple(native))


def _declared(native: Native, checkout: Checkout, order: Sequence[str]) -> Dropin | Native:
    try:
        dropin = derived_dropin(native.module, checkout, order)
    except NotReadable as refused:
        # what a table says of it is more than what was read
        known = native.reason and native.reason in refusals()
        reason = native.reason if known else refused.reason
        return Native(native.module, reason, undetermined=refused.undetermined and not known)
    missing = next(unanswered(checkout, dropin), None)
    if missing is None:
        return dropin
    place, problems = missing
    return Native(native.module, f"a drop-in with its face does not answer {place}: {'; '.join(problems)}")


def _modules(checkout: Checkout) -> Iterator[str]:
    """Import names of the extensions that are meant: brought along, imported, in a submodule, or what the stack needs.

    Where the imports of its code are known, a submodule's name or the table of its stack adds nothing that none imports.
    """
    sources = [item.source for item in checkout.sources]
    built = [module for source in sources for module in modules_of(source)]
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
    """Code of the checkout imports it, or it is the checkout's own; true also where no import is known."""
    imported = {*checkout.imports, *(item.module for item in checkout.guarded)}
    imported.update(item.name for item in checkout.needs)
    own = [name for item in checkout.sources if item.path == "." for name in modules_of(item.source)]
    tops = {name.partition(".")[0] for name in (*imported, *own)}
    return not imported or module.partition(".")[0] in tops


def modules_of(source: Source) -> tuple[str, ...]:
    """Import names of what a source builds: ``simple_knn`` of ``simple_knn._C``, ``fused_ssim`` of ``fused_ssim_cuda``."""
    modules: dict[str, None] = {}
    for module in source.modules:
        if not module:
            continue
        package, _, last = module.rpartition(".")
        beside = module.removesuffix("_cuda")
        if package and last == "_C":
            modules[package] = None
        elif beside in source.packages:
            modules[beside] = None
        else:
            modules[module] = None
    tops = tuple(dict.fromkeys(name.partition(".")[0] for name in source.packages))
    return tuple(modules) or tops or (source.label.replace("-", "_"),)


def _by_tables(module: str, checkout: Checkout) -> Dropin | str:
    """The drop-in for a module, else why there is none."""
    candidates = [dropin for dropin in DROPINS if module in (dropin.module, dropin.host)]
    package, _, last = module.rpartition(".")
    if package and any(dropin.module == last for dropin in DROPINS):
        return f"it is compiled as a part of {package}; a drop-in would be a package of its own"
    if not candidates or unlike_dropins(module, checkout):  # derive_face says in what
        return IRREPLACEABLE.get(canonicalize_name(module), "")
    host = candidates[0].host
    published = [item.path for item in checkout.submodules if f"/nerfstudio-project/{host}" in item.url]
    for item in checkout.sources:
        if host and item.source.name == host and item.path not in (".", *published):
            return f"the checkout has its own in {item.path}, and no drop-in was made for that"
    face = own_source(module, checkout)[1]
    if face:
        keys = variants_of_face(face)
    else:  # those that the stack calls
        stack = stack_of(checkout)
        rows = map(variant, stack.needs if stack else ())
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
    is_called = any(call.module == module for call in checkout.calls)
    if answering and (is_called or keys or len(candidates) == 1):
        return answering
    refusals = list(filter(None, map(refusal, keys)))
    if (face or not is_called) and refusals:
        return refusals[0]
    if not is_called and len(candidates) > 1:
        return "which of the packages of that name is called cannot be read"
    nearest = min(fitting or candidates, key=lambda dropin: _distance(unanswered_by[dropin]))
    call, differences_of_call = unanswered_by[nearest][0]
    lacks = f"{nearest.name} comes nearest, and does not answer {call}: {'; '.join(differences_of_call)}"
    return "; ".join([*refusals[:1], lacks])


def _distance(calls: Iterable[tuple[str, list[str]]]) -> tuple[int, int]:
    """How much a drop-in lacks; of two that lack as much, the one that is also not given what it asks for is farther off."""
    problems = [problem for _, of_call in calls for problem in of_call]
    return len(problems), sum("leaves out" in problem for problem in problems)
