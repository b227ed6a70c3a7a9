"""Stacks that are programs and no Python extensions (LichtFeld, OpenSplat, brush): what can be checked for them here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.step import run
from splatfix.facts import Facts
from splatfix.plan.recipes import Needs, Recipe


def refuse_program(folder: Path, known: Recipe, facts: Facts) -> SplatfixError:
    """The error for a checkout that splatfix does not build, with what this machine has of what it needs.

    Of ``exit_code`` 1 like every refusal; the details hold each need with ``met`` true, false or null (not known).
    """
    assert known.needs is not None
    checked = list(_checked(known.needs, facts))
    lines = [f"{_MARKS[met]} {text}" for met, text in checked]
    return SplatfixError(
        "not-a-python-extension",
        f"{folder} is a checkout of {known.name}: {known.note}.",
        meaning="\n  ".join(["splatfix does not build it; what it needs of this machine:", *lines]),
        todo=(run("splatfix", "diagnose", text="Its training data can be looked at with"),),
        details={"needs": [{"met": met, "text": text} for met, text in checked]},
    )


_MARKS = {True: "✓", False: "✗", None: "?"}


def _checked(needs: Needs, facts: Facts) -> Iterator[tuple[bool | None, str]]:
    machine = facts.machine
    if needs.cuda:
        wanted = ".".join(map(str, needs.cuda))
        toolkits = machine.toolkits.value
        if toolkits is None:
            yield None, f"CUDA toolkit {wanted} or newer: not known ({machine.toolkits.error})"
        else:
            found = [item for item in toolkits if item.nvcc and _numbers(item.version or "") >= needs.cuda]
            best = f"{found[0].version} in {found[0].root}" if found else "none found"
            yield bool(found), f"CUDA toolkit {wanted} or newer: {best}"
    for tool in needs.tools:
        yield tool in machine.tools, f"{tool}: {machine.tools.get(tool, 'not found on PATH')}"
    if needs.adapters:
        adapters = machine.adapters.value
        if adapters is None:
            yield None, f"a graphics adapter through {needs.adapters}: not known ({machine.adapters.error})"
        else:
            names = ", ".join(item.name for item in adapters) or "none found"
            yield bool(adapters), f"a graphics adapter through {needs.adapters} or Metal: {names}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version)[:2])
