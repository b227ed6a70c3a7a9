"""Options that several commands share, so that each has one name and one meaning everywhere."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Optional

import typer

Python = Annotated[
    Optional[str],
    typer.Option(
        "--python", help="Target environment: its interpreter, or a venv or conda folder.", metavar="ENV"
    ),
]
Targets = Annotated[
    Optional[list[str]],
    typer.Option("--target", "-t", help="GPU architecture such as sm_120; repeatable.", metavar="ARCH"),
]
Json = Annotated[bool, typer.Option("--json", help="Print one versioned JSON document instead of text.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also show the evidence of what is fine.")]


class Device(str, Enum):
    """Where the kernels run."""

    cpu = "cpu"
    cuda = "cuda"


def arch_names(targets: list[str] | None) -> tuple[str, ...]:
    """``--target`` values as canonical names (``12.0`` -> ``sm_120``), each once, in the order given.

    Raises:
        SplatfixError: ``unknown-arch`` (exit code 2).
    """
    from splatfix.core.errors import usage_error
    from splatfix.knowledge.archs import parse_target

    names: list[str] = []
    for text in targets or ():
        try:
            name = parse_target(text).sm
        except ValueError as error:
            raise usage_error("unknown-arch", str(error)) from error
        if name not in names:
            names.append(name)
    return tuple(names)
