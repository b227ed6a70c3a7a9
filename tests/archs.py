"""Targets, goals and requests as the command line parses them."""

from collections.abc import Iterable
from typing import Any

from splatfix.context import Goal
from splatfix.knowledge import RequestedTarget, parse_requested
from splatfix.plan import Request


def archs(*texts: str) -> tuple[RequestedTarget, ...]:
    """``archs("sm_120", "auto")`` -> ``(Arch(12, 0), AUTO)``."""
    return parse_requested(texts)


def goal(*texts: str) -> Goal:
    """The goal of ``--target TEXT``, repeated."""
    return Goal(archs(*texts))


def request_for(sources: Iterable[str] = (".",), targets: Iterable[str] = (), **options: Any) -> Request:
    """What ``splatfix install SOURCES --target TARGET...`` asks for."""
    return Request(sources=tuple(sources), targets=archs(*targets), **options)
