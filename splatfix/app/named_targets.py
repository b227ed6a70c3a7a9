"""Architectures as they were named, by people and by programs."""

from __future__ import annotations

from collections.abc import Iterable

from splatfix.core.errors import usage_error
from splatfix.knowledge import Arch, RequestedTarget, parse_requested, parse_targets


def archs(targets: Iterable[str] | None) -> tuple[Arch, ...]:
    """Read ``--target`` values where only a named GPU makes sense, each once, in the order given.

    Raises:
        SplatfixError: ``unknown-arch`` (exit code 2), also for ``auto``.
    """
    try:
        return tuple(dict.fromkeys(arch for text in _each(targets) for arch in parse_targets(text)))
    except ValueError as error:
        raise usage_error("unknown-arch", str(error)) from error


def archs_or_auto(targets: Iterable[str] | None) -> tuple[RequestedTarget, ...]:
    """Read ``--target`` values, ``auto`` for this machine's own GPUs among them, each once, in the order given.

    Raises:
        SplatfixError: ``unknown-arch`` (exit code 2).
    """
    try:
        return parse_requested(_each(targets))
    except ValueError as error:
        raise usage_error("unknown-arch", str(error)) from error


def _each(targets: Iterable[str] | None) -> tuple[str, ...]:
    """Return what was named; a text alone is one name, and not its letters."""
    if isinstance(targets, str):
        return (targets,)
    return tuple(targets or ())
