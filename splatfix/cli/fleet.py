"""More than one machine: ``splatfix gate`` and ``splatfix fleet``."""

from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from splatfix import app
from splatfix.cli import options
from splatfix.cli.options import finish, option


class Caller(str, Enum):
    """Whose exit codes and whose line: :class:`splatfix.fleet.callers.Caller`."""

    slurm = "slurm"
    kubernetes = "kubernetes"
    npd = "npd"
    nagios = "nagios"
    prometheus = "prometheus"
    gcm = "gcm"


fleet_app = typer.Typer(
    help="Ask many machines by the scheduler they have, and merge the answers.", no_args_is_help=True
)


def gate(
    caller: Annotated[Optional[Caller], option("gate.caller")] = None,
    policy: Annotated[Optional[Path], option("gate.policy")] = None,
    state: Annotated[Optional[Path], option("gate.state")] = None,
    out: Annotated[Optional[Path], option("gate.out")] = None,
    node: Annotated[str, option("gate.node")] = "",
    apply: Annotated[bool, option("gate.apply")] = False,
    timeout: Annotated[float, option("gate.timeout")] = 10.0,
    facts_file: Annotated[Optional[Path], option("gate.facts_file")] = None,
    python: Annotated[Optional[str], option("gate.python")] = None,
    as_json: options.Json = False,
) -> None:
    """Judge whether this node may take work, and say so as its scheduler or monitoring system wants it."""
    request = app.gate.GateRequest(
        caller=caller.value if caller else None,
        policy=policy,
        node=node,
        state=state,
        out=out,
        facts_file=facts_file,
        python=python,
        timeout=timeout,
        apply=apply,
    )
    finish(app.gate.gate(request), as_json, "" if as_json else "line")
