"""The face of a rasterizer that no table lists, read from its own source and from how a checkout calls it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from splatfix.core.errors import SplatfixError
from splatfix.core.words import counted
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

_SAY_IT = ": say what each result is with --face of splatfix certify --repo, as --face color,radii,depth"


class Usage(Struct, frozen=True):
    """What a checkout tells of a rasterizer, or of another extension that it calls."""

    module: str
    calls: tuple[RenderCall, ...]
    source: PackageSource | None
    """Its own source, where that is there."""
    path: str
    """Of its source, relative to the checkout."""
    known: KnownAddress | None
    """What is known of the repository that brings it, where the checkout names one that was read once."""
    obstacle: NotReadable | None
    """Why no drop-in stands in for it, whatever its face."""


def usage_of(module: str, checkout: Checkout) -> Usage:
    """Gather what a checkout tells of an extension."""
    own = []
    for item in checkout.sources:
        own += [(item.path, face) for face in item.faces if face.module == module and face.settings]
    known = _known_rasterizer(module, checkout)
    source, path, obstacle = None, "", None
    if own:
        source = own[0][1]
        path = f"{own[0][0]}/{module}/__init__.py".removeprefix("./")
    elif known and known.refused:
        obstacle = NotReadable(f"{known.refused} ({known.repository})")
    if source and all(face.projection for _, face in own):
        location = f"{source.projection} in {own[0][0]}/cuda_rasterizer/forward.cu".replace(" ./", " ")
        obstacle = NotReadable(f"its own source projects otherwise than by perspective ({location})")
    elif any(face != source for _, face in own):
        paths = " and ".join(path for path, _ in own)
        obstacle = NotReadable(f"{paths} are all called so: name the one that is meant", undetermined=True)
    calls = tuple(call for call in checkout.calls if call.module == module)
    return Usage(module, calls, source, path, known, obstacle)


def _known_rasterizer(module: str, checkout: Checkout) -> KnownAddress | None:
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


def derive_face(usage: Usage, order: Sequence[str] = ()) -> DeclaredFace | NotReadable:
    """Return the face by which a checkout calls a rasterizer.

    Args:
        order: what comes back, in order, where the user says it (``--face``); each one of ``ROLES``.

    Raises:
        SplatfixError: ``wrong-face``, where another number of results comes back than the user says.
    """
    if usage.obstacle:
        return usage.obstacle
    if usage.source is None:
        return _by_calls(usage, order)
    return _by_source(usage, usage.source, order)


def _by_source(usage: Usage, source: PackageSource, order: Sequence[str]) -> DeclaredFace | NotReadable:
    path, known, values = usage.path, usage.known, source.values
    if source.settings is None or source.forward is None:
        return NotReadable(f"{path} shows no settings, or no forward", undetermined=True)
    if refused := refuse_names(source.settings, source.forward):
        return refused
    results: list[str] = []
    if order:
        results += order
        if source.returns not in (None, len(order)):
            error = f"{counted(source.returns, 'result')} come back: {', '.join(values) or path}"
            raise SplatfixError.of("plan.wrong-face", face=",".join(order), error=error)
    elif known and len(known.results) == source.returns:
        results += known.results
    elif values and len(values) == source.returns:
        names = [call.results for call in usage.calls if call.unpacks == len(values) == len(call.results)]
        for number, name in enumerate(values):
            role = role_of_result(name)
            # a result that every caller gives the name ``_`` needs no meaning, whatever it is
            if names and all(names_of_call[number] == "_" for names_of_call in names):
                role = UNREAD
            if isinstance(role, NotReadable):
                return role
            if not role:
                subject = f"{name or 'a value without a name'}, result {number + 1} of {path},"
                return NotReadable(f"{subject} means nothing that is known{_SAY_IT}", undetermined=True)
            results.append(role)
    else:
        return NotReadable(f"what comes back cannot be read from {path}{_SAY_IT}", undetermined=True)
    if not order and not (known and tuple(results) == known.results):
        # where a caller's variable says something else of a result than the rasterizer's own source does
        for call in usage.calls:
            for number, (name, role) in enumerate(zip(call.results, results, strict=False)):
                other = role_of_result(name)
                if isinstance(other, NotReadable):
                    return other
                if other and other != role:
                    names_it = f"{role} by {path}, and {name} in {call.file}:{call.line}"
                    return NotReadable(f"result {number + 1} is {names_it}{_SAY_IT}", undetermined=True)
    if "depth" in results and source.depth not in ("sum", ""):
        return NotReadable(f"its depth map is not the sum of z alpha T: {source.depth}")
    read = [("settings, arguments and order of results", path)]
    if "depth" in results and source.depth:
        read.append(("depth", "forward.cu sums up depth times alpha T"))
    for number in source.gradients_ignored:
        if results[number] != "radii":
            unused = f"the backward pass of {path} does not use it"
            read.append((f"{results[number]} without a gradient", unused))
    return declare(
        usage.module,
        source.settings,
        source.forward,
        results,
        settings_defaults=source.settings_defaults,
        forward_required=source.forward_required,
        gradients_ignored=source.gradients_ignored,
        read=tuple(read),
    )


def _by_calls(usage: Usage, order: Sequence[str]) -> DeclaredFace | NotReadable:
    """Read it from the callers, where its own source is not there, and from what is known of its repository."""
    calls, known = usage.calls, usage.known
    readable = [call for call in calls if call.settings_positional == 0 and call.settings]
    if not readable:
        return NotReadable("how it is called cannot be read", undetermined=True)
    settings = list(dict.fromkeys(name for call in readable for name in call.settings))
    forward = dict.fromkeys(BASE_ARGUMENTS)
    if known:
        forward |= dict.fromkeys(known.forward)
    forward |= dict.fromkeys(name for call in calls for name in call.forward)
    if refused := refuse_names(settings, tuple(forward)):
        return refused
    subject, read = "settings and arguments", []
    results: Sequence[str] | NotReadable = order
    if not results and known:
        results = known.results
        read.append(("order of results", f"{known.repository} at {known.commit}"))
    elif not results:
        results = _results_by_calls(calls, alternative(settings))
        subject = "settings, arguments and order of results"
    if isinstance(results, NotReadable):
        return results
    read.append((subject, f"{places(calls)} (its own source is not there)"))
    # not every caller gives all of them, and a caller that does not is no less right
    shared = [name for name in settings if all(name in call.settings for call in readable)]
    optional = [name for name in settings if name not in shared]
    return declare(
        usage.module,
        [*shared, *optional],
        tuple(forward),
        results,
        settings_defaults=len(optional),
        read=read,
    )


def places(calls: Iterable[RenderCall | ExtensionCall]) -> str:
    """Return ``gaussian_renderer/__init__.py:104, 129; scene/model.py:12``."""
    lines: dict[str, dict[str, None]] = {}
    for call in calls:
        lines.setdefault(call.file, {})[str(call.line)] = None
    return "; ".join(f"{file}:{', '.join(numbers)}" for file, numbers in lines.items())


def _results_by_calls(calls: Sequence[RenderCall], instead: Sequence[str]) -> list[str] | NotReadable:
    """Read what comes back by the variables that it goes to; they must agree, and one must tell, for each that is read.

    Args:
        instead: what comes back by an option of the settings, and is no part of the answer.
    """
    unpacking = [call for call in calls if call.results and call.unpacks == len(call.results)]
    usual = []
    for call in unpacking if instead else ():
        roles_of_call = list(map(role_of_result, call.results))
        if refused := next((role for role in roles_of_call if isinstance(role, NotReadable)), None):
            return refused
        if roles_of_call != list(instead):
            usual.append(call)
    unpacking = usual or unpacking
    counts = {call.unpacks for call in unpacking}
    if len(counts) != 1:
        numbers = " and ".join(str(count) for count in sorted(filter(None, counts))) or "no"
        return NotReadable(f"it is called for {numbers} results{_SAY_IT}", undetermined=True)
    results = []
    for number in range(counts.pop() or 0):
        names = {call.results[number]: f"{call.file}:{call.line}" for call in unpacking}
        roles: dict[str, None] = {}
        refused = None
        for role in map(role_of_result, names):
            if isinstance(role, NotReadable):
                refused = role
            elif role:
                roles[role] = None
        # a name of what nothing gives back counts where no other says otherwise: colours may be normals
        if refused and not roles:
            return refused
        if number == 0 and not roles:
            roles = {"color": None}
        elif set(names) == {"_"}:
            roles = {UNREAD: None}
        if len(roles) != 1:
            listed = ", ".join(f"{name or 'no name'} ({line})" for name, line in names.items())
            can_be = " or ".join(roles) or "anything"
            text = f"result {number + 1} is called {listed}, by which it can be {can_be}{_SAY_IT}"
            return NotReadable(text, undetermined=True)
        results.append(next(iter(roles)))
    return results


def order_of(text: str) -> tuple[str, ...]:
    """Read ``color,radii,depth`` of ``--face``.

    Raises:
        SplatfixError: ``wrong-face`` (exit code 2) with what is wrong with it.
    """
    order = tuple(part.strip() for part in text.split(","))
    unknown = [part for part in order if part not in ROLES]
    if unknown:
        error = f"{counted(len(unknown), 'word')} of no meaning: {', '.join(unknown)}; known are {', '.join(ROLES)}"
        raise SplatfixError.of("plan.wrong-face", face=text, error=error)
    return order
