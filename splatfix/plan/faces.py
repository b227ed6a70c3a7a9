"""The face of a rasterizer that no table lists, read from its own source and from how a checkout calls it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from splatfix.checks.checkout.rasterizer_calls import alternatives, fewest
from splatfix.core.errors import SplatfixError
from splatfix.core.words import counted
from splatfix.knowledge.dropins import Dropin, declared_dropin, face_of
from splatfix.knowledge.faces import (
    BASE_ARGUMENTS,
    ROLES,
    UNREAD,
    DeclaredFace,
    KnownAddress,
    NotReadable,
    alternative,
    declare,
    known_address,
    refuse_names,
    role_of_result,
)
from splatfix.model import Checkout, ExtensionCall, PackageSource, RenderCall

_ASSUMED_DEPTH = "its depth map is taken for the sum of z alpha T: its CUDA source is not there"
_SAY_IT = ": say what each result is with --face of splatfix certify --repo, as --face color,radii,depth"


def derived_dropin(module: str, checkout: Checkout, order: Sequence[str] = ()) -> Dropin:
    """A drop-in with the face by which a checkout calls this rasterizer.

    Args:
        order: what comes back, in order, where the user says it (``--face``); each one of ``ROLES``.

    Raises:
        NotReadable: why there is none.
    """
    face = derive_face(module, checkout, order)
    dropin = declared_dropin(face)
    for (file, function, called), group in alternatives(checkout.calls).items():
        problems = fewest(group, face_of(dropin)) if called == module else []
        if problems:
            place = f"{function}() in {file}:{group[0].line}"
            raise NotReadable(f"{place} calls it otherwise than it is made: {'; '.join(problems)}")
    return dropin


def derive_face(module: str, checkout: Checkout, order: Sequence[str] = ()) -> DeclaredFace:
    """The face by which a checkout calls this rasterizer.

    Raises:
        NotReadable, SplatfixError: a part has no meaning, or two; ``wrong-face`` where another number of results comes back.
    """
    if refused := unlike_dropins(module, checkout):
        raise refused
    calls = [call for call in checkout.calls if call.module == module]
    place, source = own_source(module, checkout)
    known = known_rasterizer(module, checkout)
    if source is None:
        if known and known.refused:
            raise NotReadable(f"{known.refused} ({known.repository})")
        return _by_calls(module, calls, order, known)
    settings, forward = source.settings, source.forward
    if settings is None or forward is None:
        raise NotReadable(f"{place} shows no settings, or no forward", undetermined=True)
    refuse_names(settings, forward)
    values = source.values
    if order:
        results = tuple(order)
        if source.returns not in (None, len(order)):
            error = f"{counted(source.returns, 'result')} come back: {', '.join(values) or place}"
            raise SplatfixError.of("plan.wrong-face", face=",".join(order), error=error)
    elif known and len(known.results) == source.returns:
        results = known.results
    elif values and len(values) == source.returns:
        # results that every caller gives the name ``_``: whatever they are, they need no meaning
        names = [call.results for call in calls if call.unpacks == len(values) == len(call.results)]
        ignored = {at for at in range(len(values)) if names and all(each[at] == "_" for each in names)}
        roles = []
        for number, name in enumerate(values):
            role = UNREAD if number in ignored else role_of_result(name)
            if not role:
                what = f"{name or 'a value without a name'}, result {number + 1} of {place},"
                raise NotReadable(f"{what} means nothing that is known{_SAY_IT}", undetermined=True)
            roles.append(role)
        results = tuple(roles)
    else:
        raise NotReadable(f"what comes back cannot be read from {place}{_SAY_IT}", undetermined=True)
    if not order and not (known and results == known.results):
        _refuse_other_names(calls, results, place)
    if "depth" in results and source.depth not in ("sum", ""):
        raise NotReadable(f"its depth map is not the sum of z alpha T: {source.depth}")
    read = [("settings, arguments and order of results", place)]
    if "depth" in results and source.depth:
        read.append(("depth", "forward.cu sums up depth times alpha T"))
    for number in source.gradients_ignored:
        if results[number] != "radii":
            unused = f"the backward pass of {place} does not use it"
            read.append((f"{results[number]} without a gradient", unused))
    return declare(
        module,
        settings,
        forward,
        results,
        settings_defaults=source.settings_defaults,
        forward_required=source.forward_required,
        gradients_ignored=source.gradients_ignored,
        read=tuple(read),
    )


def with_assumptions(dropin: Dropin, checkout: Checkout) -> Dropin:
    """The same, with what of its face no source tells that is there."""
    face = dropin.declared
    if face is None or "depth" not in face.results or known_rasterizer(dropin.module, checkout):
        return dropin
    source = own_source(dropin.module, checkout)[1]
    if source and source.depth:
        return dropin
    note = f"{dropin.note}; {_ASSUMED_DEPTH}"
    return replace(dropin, declared=replace(face, assumed=_ASSUMED_DEPTH), note=note)


def known_rasterizer(module: str, checkout: Checkout) -> KnownAddress | None:
    """What is known of the repository that brings this module, where the checkout names one that was read."""
    # two rasterizers of one name are told apart by their folders: ``diff-gaussian-rasterization-w-pose`` beside another
    others = {call.module for call in checkout.calls} | {*checkout.imports}
    others.discard(module)
    addresses = []
    for item in checkout.submodules:
        if item.path.rpartition("/")[2].lower().replace("-", "_") not in others:
            addresses.append(item.url)
    addresses += [item.address for item in checkout.pins]
    addresses += [*checkout.clones, checkout.remote]
    rows = (known_address(address, module) for address in addresses if address)
    return next(filter(None, rows), None)


def _refuse_other_names(calls: Iterable[RenderCall], results: Sequence[str], place: str) -> None:
    """Where a caller's variable says something else of a result than the rasterizer's own source does."""
    for call in calls:
        for number, (name, role) in enumerate(zip(call.results, results, strict=False)):
            other = role_of_result(name)
            if other and other != role:
                raise NotReadable(
                    f"result {number + 1} is {role} by {place}, and {name} in {call.file}:{call.line}{_SAY_IT}",
                    undetermined=True,
                )


def own_source(module: str, checkout: Checkout) -> tuple[str, PackageSource | None]:
    """Where a checkout's own source of a rasterizer is, and how it is called, where it is there."""
    for item in checkout.sources:
        for face in item.faces:
            if face.module == module and face.settings:
                return f"{item.path}/{module}/__init__.py".removeprefix("./"), face
    return "", None


def unlike_dropins(module: str, checkout: Checkout) -> NotReadable | None:
    """Say why none stands in for a checkout's own sources of a rasterizer, whatever their faces; None where one may."""
    faces = ((item.path, face) for item in checkout.sources for face in item.faces)
    own = [(path, face) for path, face in faces if face.module == module and face.settings]
    if own and all(face.projection for _, face in own):
        place = f"{own[0][1].projection} in {own[0][0]}/cuda_rasterizer/forward.cu".replace(" ./", " ")
        return NotReadable(f"its own source projects otherwise than by perspective ({place})")
    if any(face != own[0][1] for _, face in own):
        text = f"{' and '.join(path for path, _ in own)} are all called so: name the one that is meant"
        return NotReadable(text, undetermined=True)
    return None


def _by_calls(
    module: str, calls: Sequence[RenderCall], order: Sequence[str], known: KnownAddress | None
) -> DeclaredFace:
    """From the callers, where the rasterizer's own source is not there, and from what is known of its repository."""
    readable = [call for call in calls if call.settings_positional == 0 and call.settings]
    if not readable:
        raise NotReadable("how it is called cannot be read", undetermined=True)
    settings = list(dict.fromkeys(name for call in readable for name in call.settings))
    forward = list(BASE_ARGUMENTS)
    given = [*(known.forward if known else ()), *(name for call in calls for name in call.forward)]
    forward += dict.fromkeys(name for name in given if name not in forward)
    refuse_names(settings, forward)
    what, where = "settings and arguments", f"{places(calls)} (its own source is not there)"
    read = []
    results = tuple(order)
    if not results and known:
        results = known.results
        read.append(("order of results", f"{known.repository} at {known.commit}"))
    elif not results:
        results = _results_by_calls(calls, alternative(settings))
        what = "settings, arguments and order of results"
    read.append((what, where))
    # not every caller gives all of them, and a caller that does not is no less right
    shared = [name for name in settings if all(name in call.settings for call in readable)]
    optional = [name for name in settings if name not in shared]
    return declare(module, [*shared, *optional], forward, results, settings_defaults=len(optional), read=read)


def places(calls: Iterable[RenderCall | ExtensionCall]) -> str:
    """``gaussian_renderer/__init__.py:104, 129; scene/model.py:12``."""
    lines: dict[str, dict[str, None]] = {}
    for call in calls:
        lines.setdefault(call.file, {})[str(call.line)] = None
    return "; ".join(f"{file}:{', '.join(numbers)}" for file, numbers in lines.items())


def _results_by_calls(calls: Sequence[RenderCall], instead: Sequence[str]) -> tuple[str, ...]:
    """What comes back, by the variables that it goes to; they must agree, and one must tell, for each result that is read.

    Args:
        instead: what comes back by an option of the settings, and is no part of the answer.
    """
    unpacking = [call for call in calls if call.results and call.unpacks == len(call.results)]
    usual = [
        call
        for call in unpacking
        if not instead or tuple(map(role_of_result, call.results)) != tuple(instead)
    ]
    unpacking = usual or unpacking
    counts = {call.unpacks for call in unpacking}
    if len(counts) != 1:
        numbers = " and ".join(str(count) for count in sorted(filter(None, counts))) or "no"
        raise NotReadable(f"it is called for {numbers} results{_SAY_IT}", undetermined=True)
    results = []
    for number in range(counts.pop() or 0):
        names = {call.results[number]: f"{call.file}:{call.line}" for call in unpacking}
        roles = _roles(names)
        if number == 0 and not roles:
            roles = {"color": ""}
        elif set(names) == {"_"}:
            roles = {UNREAD: "_"}
        if len(roles) != 1:
            listed = ", ".join(f"{name or 'no name'} ({place})" for name, place in names.items())
            raise NotReadable(
                f"result {number + 1} is called {listed}, by which it can be "
                f"{' or '.join(roles) or 'anything'}{_SAY_IT}",
                undetermined=True,
            )
        results.append(next(iter(roles)))
    return tuple(results)


def _roles(names: Iterable[str]) -> dict[str, str]:
    """What callers' variables say that one result is, each with the variable.

    Raises:
        NotReadable: one is called by what nothing gives back, and no other says otherwise: colours may be normals.
    """
    roles, refused = {}, None
    for name in names:
        try:
            role = role_of_result(name)
        except NotReadable as error:
            refused = error
            continue
        if role:
            roles[role] = name
    if refused and not roles:
        raise refused
    return roles


def order_of(text: str) -> tuple[str, ...]:
    """``color,radii,depth`` of ``--face``.

    Raises:
        SplatfixError: ``wrong-face`` (exit code 2) with what is wrong with it.
    """
    order = tuple(part.strip() for part in text.split(","))
    unknown = [part for part in order if part not in ROLES]
    if unknown:
        error = f"{counted(len(unknown), 'word')} of no meaning: {', '.join(unknown)}; known are {', '.join(ROLES)}"
        raise SplatfixError.of("plan.wrong-face", face=text, error=error)
    return order
