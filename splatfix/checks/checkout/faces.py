"""The face of a rasterizer that no table lists, read from its own source and from how a checkout calls it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from splatfix.core.errors import SplatfixError
from splatfix.core.words import counted
from splatfix.knowledge import faces as tables
from splatfix.knowledge.faces import BASE_ARGUMENTS, UNREAD, DeclaredFace, KnownAddress, NotReadable
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
    calls = tuple(call for call in checkout.calls if call.module == module)
    # two rasterizers of one name are told apart by their folders: ``diff-gaussian-rasterization-w-pose`` beside another
    others = {*checkout.imports, *(call.module for call in checkout.calls)} - {module}
    addresses = []
    for item in checkout.submodules:
        if item.path.rpartition("/")[2].lower().replace("-", "_") not in others:
            addresses.append(item.url)
    addresses += [*(item.address for item in checkout.pins), *checkout.clones, checkout.remote]
    rows = (tables.known_address(address, module) for address in addresses if address)
    known = next(filter(None, rows), None)
    own = []
    for brought in checkout.sources:
        own += [(brought.path, face) for face in brought.faces if face.module == module and face.settings]
    obstacle, source, path = None, None, ""
    if own:
        folder, source = own[0]
        path = f"{folder}/{module}/__init__.py".removeprefix("./")
    elif known and known.refused:
        obstacle = NotReadable(f"{known.refused} ({known.repository})")
    if source and all(face.projection for _, face in own):
        location = f"{source.projection} in {folder}/cuda_rasterizer/forward.cu".replace(" ./", " ")
        obstacle = NotReadable(f"its own source projects otherwise than by perspective ({location})")
    elif any(face != source for _, face in own):
        paths = " and ".join(path for path, _ in own)
        obstacle = NotReadable(f"{paths} are all called so: name the one that is meant", undetermined=True)
    return Usage(module, calls, source, path, known, obstacle)


def derive_face(usage: Usage, order: Sequence[str] = ()) -> DeclaredFace | NotReadable:
    """Return the face by which a checkout calls a rasterizer, as its own source says it; where that is not there, its callers.
    The ``order`` of results is the user's (``--face``); ``wrong-face`` is raised where it is another number of them."""
    if usage.obstacle:
        return usage.obstacle
    source, known = usage.source or _source_by_calls(usage), usage.known
    if not source.settings or not source.forward:
        return NotReadable("how it is called cannot be read", undetermined=True)
    if refused := tables.refuse_names(source.settings, source.forward):
        return refused
    results: Sequence[str] | NotReadable = order
    if order and source.returns not in (None, len(order)):
        came_back = f"{counted(source.returns, 'result')} come back: {', '.join(source.values) or usage.path}"
        raise SplatfixError.of("checks.wrong-face", face=",".join(order), error=came_back)
    if known and not order and (usage.source is None or source.returns == len(known.results)):
        results = known.results
    elif usage.source and not order:
        results = _results_by_source(usage, source)
    elif not order:
        results = _results_by_calls(usage.calls, tables.instead_of(source.settings)[1])
    if isinstance(results, NotReadable):
        return results
    if "depth" in results and source.depth not in ("sum", ""):
        return NotReadable(f"its depth map is not the sum of z alpha T: {source.depth}")
    read, subject, place = list[tuple[str, str]](), "settings, arguments and order of results", usage.path
    if usage.source is None:
        place = f"{places(usage.calls)} (its own source is not there)"
        if order or known:
            subject = "settings and arguments"
        if known and not order:
            read.append(("order of results", f"{known.repository} at {known.commit}"))
    read.append((subject, place))
    if "depth" in results and source.depth:
        read.append(("depth", "forward.cu sums up depth times alpha T"))
    unused = f"the backward pass of {usage.path} does not use it"
    roles = (results[number] for number in source.gradients_ignored)
    read += [(f"{role} without a gradient", unused) for role in roles if role != "radii"]
    return tables.declare(
        usage.module,
        source.settings,
        source.forward,
        results,
        settings_defaults=source.settings_defaults,
        forward_required=source.forward_required,
        gradients_ignored=source.gradients_ignored,
        read=read,
    )


def _source_by_calls(usage: Usage) -> PackageSource:
    """Return settings and arguments as the callers give them."""
    readable = [call for call in usage.calls if call.settings_positional == 0 and call.settings]
    names = dict.fromkeys(name for call in readable for name in call.settings)
    # not every caller gives all of them, and a caller that does not is no less right
    optional = [name for name in names if not all(name in call.settings for call in readable)]
    forward = dict.fromkeys(BASE_ARGUMENTS)
    if usage.known:
        forward |= dict.fromkeys(usage.known.forward)
    forward |= dict.fromkeys(name for call in usage.calls for name in call.forward)
    return PackageSource(
        usage.module,
        settings=(*(name for name in names if name not in optional), *optional),
        settings_defaults=len(optional),
        forward=tuple(forward),
        forward_required=tables.REQUIRED,
    )


def _results_by_source(usage: Usage, source: PackageSource) -> list[str] | NotReadable:
    """Read what comes back by the names that the rasterizer's own source gives it; a caller must not say otherwise."""
    path, values = usage.path, source.values
    if not values or len(values) != source.returns:
        return NotReadable(f"what comes back cannot be read from {path}{_SAY_IT}", undetermined=True)
    callers = [call for call in usage.calls if call.unpacks == len(values) == len(call.results)]
    results: list[str] = []
    for number, name in enumerate(values):
        role = tables.role_of_result(name)
        # a result that every caller gives the name ``_`` needs no meaning, whatever it is
        if callers and all(call.results[number] == "_" for call in callers):
            role = UNREAD
        if isinstance(role, NotReadable):
            return role
        if not role:
            subject = f"{name or 'a value without a name'}, result {number + 1} of {path},"
            return NotReadable(f"{subject} means nothing that is known{_SAY_IT}", undetermined=True)
        results.append(role)
    # where a caller's variable says something else of a result than the rasterizer's own source does
    for call in usage.calls:
        for number, (name, said) in enumerate(zip(call.results, results, strict=False)):
            other = tables.role_of_result(name)
            if isinstance(other, NotReadable):
                return other
            if other and other != said:
                names_it = f"{said} by {path}, and {name} in {call.file}:{call.line}"
                return NotReadable(f"result {number + 1} is {names_it}{_SAY_IT}", undetermined=True)
    return results


def places(calls: Iterable[RenderCall | ExtensionCall]) -> str:
    """Return ``gaussian_renderer/__init__.py:104, 129; scene/model.py:12``."""
    lines: dict[str, dict[str, None]] = {}
    for call in calls:
        lines.setdefault(call.file, {})[str(call.line)] = None
    return "; ".join(f"{file}:{', '.join(numbers)}" for file, numbers in lines.items())


def _results_by_calls(calls: Sequence[RenderCall], instead: Sequence[str]) -> list[str] | NotReadable:
    """Read what comes back by the variables that it goes to; they must agree, and one must tell, for each that is read. What
    comes back ``instead``, by an option of the settings, is no part of the answer."""
    unpacking = [call for call in calls if call.results and call.unpacks == len(call.results)]
    usual = [call for call in unpacking if tuple(map(tables.role_of_result, call.results)) != tuple(instead)]
    unpacking = usual or unpacking
    counts = {len(call.results) for call in unpacking}
    if len(counts) != 1:
        numbers = " and ".join(map(str, sorted(counts))) or "no"
        return NotReadable(f"it is called for {numbers} results{_SAY_IT}", undetermined=True)
    results: list[str] = []
    for number in range(counts.pop()):
        names = {call.results[number]: f"{call.file}:{call.line}" for call in unpacking}
        meanings = dict.fromkeys(map(tables.role_of_result, names))
        roles = [role for role in meanings if role and isinstance(role, str)]
        # a name of what nothing gives back counts where no other says otherwise: colours may be normals
        refused = next((role for role in meanings if isinstance(role, NotReadable)), None)
        if refused and not roles:
            return refused
        if number == 0 and not roles:
            roles = ["color"]
        elif set(names) == {"_"}:
            roles = [UNREAD]
        if len(roles) != 1:
            listed = ", ".join(f"{name or 'no name'} ({line})" for name, line in names.items())
            can_be = " or ".join(roles) or "anything"
            text = f"result {number + 1} is called {listed}, by which it can be {can_be}{_SAY_IT}"
            return NotReadable(text, undetermined=True)
        results += roles
    return results


def order_of(text: str) -> tuple[str, ...]:
    """Read ``color,radii,depth`` of ``--face``; ``wrong-face`` (exit code 2) is raised for a word without a meaning."""
    order = tuple(part.strip() for part in text.split(","))
    if unknown := [part for part in order if part not in tables.ROLES]:
        error = f"{', '.join(unknown)} has no meaning; known are {', '.join(tables.ROLES)}"
        raise SplatfixError.of("checks.wrong-face", face=text, error=error)
    return order
