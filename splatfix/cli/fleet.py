"""More than one machine: ``splatfix gate`` and ``splatfix fleet``."""

from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from splatfix import app
from splatfix.cli import conflicts, options
from splatfix.cli.options import examples, finish, folder_to_write, option
from splatfix.cli.process import Invocation
from splatfix.core.errors import Exit, SplatfixError


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
    context: typer.Context,
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
    conflicts.refuse(context)
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
    made = app.gate.gate(request)
    if caller:  # a line that nobody takes changes no verdict
        context.ensure_object(Invocation).unknown = Exit(made.exit_code)
    finish(made, as_json, "" if as_json else "line")


@fleet_app.command("run", epilog=examples("fleet-run"))
def run(
    context: typer.Context,
    slurm: Annotated[bool, option("fleet-run.slurm")] = False,
    ray: Annotated[str, option("fleet-run.ray")] = "",
    all_nodes: Annotated[bool, option("fleet-run.all_nodes")] = False,
    certify_options: Annotated[Optional[list[str]], option("fleet-run.certify_options")] = None,
    partition: Annotated[str, option("fleet-run.partition")] = "",
    certify: Annotated[int, option("fleet-run.certify")] = 0,
    policy: Annotated[Optional[Path], option("fleet-run.policy")] = None,
    sbatch: Annotated[Optional[list[str]], option("fleet-run.sbatch")] = None,
    wait: Annotated[float, option("fleet-run.wait")] = 3600.0,
    out: Annotated[Path, option("fleet-run.out", callback=folder_to_write)] = Path("splatfix-fleet"),
    as_json: options.Json = False,
) -> None:
    """Ask every node of a cluster for its verdict, certify on some of them, and merge what came."""
    conflicts.refuse(context)
    if ray:
        by = str(policy) if policy else ""
        finish(app.fleet_ray.run_on_ray(ray, out, wait=wait, all_nodes=all_nodes, policy=by), as_json)
    if not slurm:
        raise SplatfixError.of("cli.no-scheduler")
    request = app.fleet_run.FleetRequest(
        out=out,
        partition=partition,
        certify=certify,
        certify_options=tuple(certify_options or ()),
        policy=policy,
        sbatch_options=tuple(sbatch or ()),
        wait=wait,
    )
    finish(app.fleet_run.run_on_slurm(request), as_json)


@fleet_app.command("report", epilog=examples("fleet-report"))
def report(
    paths: Annotated[list[Path], option("fleet-report.paths")],
    out: Annotated[Path, option("fleet-report.out", callback=folder_to_write)] = Path("splatfix-fleet"),
    nodes: Annotated[Optional[Path], option("fleet-report.nodes")] = None,
    max_age: Annotated[str, option("fleet-report.max_age")] = "",
    since: Annotated[Optional[Path], option("fleet-report.since")] = None,
    key: Annotated[Optional[list[Path]], option("shared.keys")] = None,
    as_json: options.Json = False,
) -> None:
    """Write the verdicts of many nodes as one picture: machines that are alike, what is wrong where, what changed."""
    made = app.fleet_report.report(paths, out, nodes=nodes, max_age=max_age, since=since, keys=key or ())
    finish(made, as_json)


class Manifest(str, Enum):
    """What ``fleet manifest`` prints."""

    job = "job"
    daemonset = "daemonset"
    init = "init"
    npd = "npd"


@fleet_app.command("manifest", epilog=examples("fleet-manifest"))
def manifest(
    kind: Annotated[Manifest, option("fleet-manifest.kind")],
    image: Annotated[str, option("fleet-manifest.image")] = "",
    gpus: Annotated[Optional[int], option("fleet-manifest.gpus")] = None,
    claim: Annotated[str, option("fleet-manifest.claim")] = "",
    as_json: options.Json = False,
) -> None:
    """Print the gate as a manifest for Kubernetes, or as a plugin's configuration for node-problem-detector."""
    finish(app.fleet_manifest.manifest(kind.value, image, gpus=gpus, claim=claim), as_json)
