"""Faces of rasterizers (``faces.toml``): what the names of settings, arguments and results mean, where no table lists a fork."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from splatfix.core.toml import table_beside
from splatfix.knowledge.rows import decode

_TABLE = table_beside(__file__)
BASE_SETTINGS: tuple[str, ...] = tuple(_TABLE["base"]["settings"])
"""The fields of Inria's Settings tuple."""
BASE_ARGUMENTS: tuple[str, ...] = tuple(_TABLE["base"]["arguments"])
"""The parameters of its forward; the first three must be given."""
NEEDED_SETTINGS = frozenset(BASE_SETTINGS) - {"prefiltered", "debug"}
"""Without which no camera is known."""
REQUIRED = 3

SETTINGS: Mapping[str, str] = _TABLE["settings"]
"""The role of a field beside Inria's."""
ARGUMENTS: Mapping[str, str] = _TABLE["arguments"]
"""The role of a parameter of the forward."""
_RESULTS = {role: re.compile(pattern) for role, pattern in _TABLE["results"].items()}
_REFUSED = {re.compile(pattern): reason for pattern, reason in _TABLE["refused"].items()}
_INSTEAD = {name: tuple(order) for name, order in _TABLE["instead"].items()}
UNREAD = "unread"
"""The role of a result that no caller reads."""
ROLES = (*_RESULTS, UNREAD)
"""What a result can be."""
SUMS = frozenset({"weight-sum", "pixel-count", "near-count", "strongest-count", "opacity-sum", "used"})
"""The results that are numbers per Gaussian, without a gradient."""


class KnownAddress(Struct, frozen=True):
    """A repository of a rasterizer, as it was read once."""

    repository: str
    """``owner/name``."""
    commit: str
    module: str
    forward: tuple[str, ...] = ()
    """Parameters that its forward takes whether or not a caller gives them, beside Inria's."""
    results: tuple[str, ...] = ()
    refused: str = ""
    """Why nothing replaces it."""


_ADDRESSES = [decode(KnownAddress, row) for row in _TABLE["address"]]
_REPOSITORY = re.compile(r"[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?(?:@[\w./-]+)?(?:#.*)?")


def known_address(address: str, module: str) -> KnownAddress | None:
    """What is known of the repository behind an address, as .gitmodules or pip writes it, that brings this module."""
    match = re.search(_REPOSITORY.pattern + "$", address)
    if match is None:
        return None
    name = match.group(1).lower()
    return next((row for row in _ADDRESSES if row.repository.lower() == name and row.module == module), None)


class NotReadable(Struct, frozen=True):
    """Why a face is none that a drop-in can have: it means what none does, or (``undetermined``) cannot be read."""

    reason: str
    undetermined: bool = False


class DeclaredFace(Struct, frozen=True):
    """How a rasterizer is called, and what each part of its face is."""

    module: str
    settings: tuple[str, ...]
    """Fields of the Settings tuple, in order."""
    settings_defaults: int
    """How many of them, counted from the end, may be left out; they are None then."""
    forward: tuple[str, ...]
    """Parameters of the rasterizer's forward, without self."""
    forward_required: int
    results: tuple[str, ...]
    """What comes back, in order, each one of ``ROLES``."""
    gradients_ignored: tuple[int, ...] = ()
    """Positions among the results whose gradient the original does not use."""
    read: tuple[tuple[str, str], ...] = ()
    """What was read, and where: ``("settings", "submodules/x/x/__init__.py")``."""
    assumed: str = ""
    """What could not be read, and is taken for the usual."""

    @property
    def features(self) -> tuple[str, ...]:
        """Arguments that are drawn as maps of their own, in order."""
        return tuple(name for name in self.forward if ARGUMENTS[name] == "features")

    @property
    def words(self) -> str:
        """As ``--face`` takes it: ``color,radii,depth,alpha``."""
        return ",".join(self.results)


def instead_of(settings: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """(a field of the settings, what comes back where it is true); ("", ()) where nothing else does."""
    return next(((name, _INSTEAD[name]) for name in settings if name in _INSTEAD), ("", ()))


def role_of_result(name: str) -> str | NotReadable:
    """Return one of ``ROLES`` by the name of a variable; "" where it tells nothing, as ``_`` or ``x`` does."""
    reason = _refusal(name)
    if reason:
        return NotReadable(f"{name} comes back: {reason}")
    bare = name.lower().replace("_", "")
    return next((role for role, pattern in _RESULTS.items() if pattern.fullmatch(bare)), "")


def _refusal(name: str) -> str:
    bare = name.lower().replace("_", "")
    return next((reason for pattern, reason in _REFUSED.items() if pattern.fullmatch(bare)), "")


def refuse_names(settings: Sequence[str], forward: Sequence[str]) -> NotReadable | None:
    """Reject settings and arguments of which no drop-in does what they mean, with the first of them."""
    known = {*BASE_SETTINGS, *SETTINGS, *_INSTEAD}
    for subject, names, meant in (("settings", settings, known), ("the call", forward, set(ARGUMENTS))):
        for name in names:
            if reason := _refusal(name):
                return NotReadable(f"{subject} gives {name}: {reason}")
            if name not in meant:
                return NotReadable(f"{subject} gives {name}, of which nothing says what it means")
    return None


def declare(
    module: str,
    settings: Sequence[str],
    forward: Sequence[str],
    results: Sequence[str],
    *,
    settings_defaults: int = 0,
    forward_required: int = REQUIRED,
    gradients_ignored: Sequence[int] = (),
    read: Sequence[tuple[str, str]] = (),
) -> DeclaredFace | NotReadable:
    """Put a face together from its parts, each of which has a meaning.

    Args:
        results: in order, each one of ``ROLES``.
    """
    if refused := refuse_names(settings, forward):
        return refused
    lacking = sorted(NEEDED_SETTINGS - set(settings)) + [
        name for name in BASE_ARGUMENTS[:REQUIRED] if name not in forward
    ]
    if lacking:
        return NotReadable(f"it is called without {', '.join(lacking)}")
    if tuple(forward[:REQUIRED]) != BASE_ARGUMENTS[:REQUIRED]:
        return NotReadable(f"its first arguments are {', '.join(forward[:REQUIRED])}")
    face = DeclaredFace(
        module,
        tuple(settings),
        settings_defaults,
        tuple(forward),
        forward_required,
        tuple(results),
        tuple(gradients_ignored),
        tuple(read),
    )
    maps = face.results.count("features")
    if maps != len(face.features):
        given = ", ".join(face.features) or "none"
        return NotReadable(
            f"{maps} maps of features come back, for these arguments: {given}", undetermined=True
        )
    if face.results.count("color") != 1 or face.results.count("radii") > 1:
        return NotReadable(f"one image must come back, not {face.words}", undetermined=True)
    return face
