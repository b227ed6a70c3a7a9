"""``splatfix fleet run --ray``: the verdict of every node of a Ray cluster."""

import sys
from contextlib import redirect_stdout
from pathlib import Path

from splatfix.app.fleet_report import VERDICTS
from splatfix.app.fleet_run import NODES, FleetRun, NodeAnswer, exit_code_of, show, write_nodes
from splatfix.app.result import Result, show_message
from splatfix.core.codec import to_json
from splatfix.core.files import make_folder, set_aside
from splatfix.core.visible import visible
from splatfix.fleet.ray_cluster import Answer, ask
from splatfix.fleet.verdict import write_verdict


def run_on_ray(address: str, out: Path, *, wait: float, all_nodes: bool = False, policy: str = "") -> Result:
    """Ask every node that offers GPUs for its verdict, and write each as it comes.

    Exit code 1 where a verdict fails; else 3 where a node gave none, or is unknown.

    Raises:
        SplatfixError: as :func:`splatfix.fleet.ray_cluster.ask`; ``cannot-write`` (exit code 3).
    """
    out = out.absolute()
    answers: list[Answer] = []
    with redirect_stdout(sys.stderr):  # Ray tells there of workers that ended
        for answer in ask(address, wait, all_nodes=all_nodes, policy=policy):
            if not answers:  # a cluster that is not reached leaves the last run as it is
                make_folder(out)
                set_aside(out, (VERDICTS, NODES))
            if answer.verdict is not None:
                write_verdict(out / VERDICTS, answer.verdict)
            answers.append(answer)
            show_message(f"{len(answers):4} {visible(answer.node)}: {_outcome(answer)}")
    answers.sort(key=lambda answer: answer.node)
    nodes = [
        NodeAnswer(answer.node, answer.verdict.state if answer.verdict else None, answer.reason)
        for answer in answers
    ]
    write_nodes(out, nodes)
    ran = FleetRun(tuple(nodes), (), str(out), ())
    return Result("fleet run", lambda: to_json(ran), lambda console: show(console, ran), exit_code_of(ran))


def _outcome(answer: Answer) -> str:
    if answer.verdict is None:
        return visible(answer.reason)
    return answer.verdict.state.value
