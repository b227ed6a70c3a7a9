"""The nodes of a Ray cluster, each asked for its verdict by a task of its own that runs there or nowhere."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from splatfix.core.codec import parse_json
from splatfix.core.data import dataclass
from splatfix.core.errors import SplatfixError
from splatfix.core.lenient import json_object
from splatfix.fleet import ray_task
from splatfix.fleet.reading import verdict_of
from splatfix.fleet.verdict import NodeVerdict

_GRACE = 60.0
"""Seconds at least in which a node whose worker was killed takes another task; a busy one starts a worker in half of that."""
_LOST = "Ray has lost the node"
_CONNECT = 5.0
"""Seconds in which the cluster's head takes a connection."""


@dataclass(frozen=True)
class Answer:
    """What came of asking a node."""

    node: str
    verdict: NodeVerdict | None
    reason: str
    """Why there is no verdict; "" where there is one."""


@dataclass(frozen=True)
class _RayNode:
    id: str
    name: str
    gpus: float


def ask(address: str, wait: float, *, all_nodes: bool = False, policy: str = "") -> Iterator[Answer]:
    """Ask every node that offers GPUs; answers come as they are given. No task is repeated, none takes a CPU or a GPU.

    Args:
        address: of the cluster, as ``ray.init`` takes it: ``auto``, ``host:6379``.
        wait: seconds for all of it; whoever has not answered then is told.
        all_nodes: those without GPUs too.
        policy: of the gate, by its path on the nodes.

    Raises:
        SplatfixError: ``no-ray``, ``ray-not-reached`` or ``no-gpu-nodes`` (exit code 3).
    """
    ray = _ray()
    try:
        _require_listener(address)
        # a driver that prints what its workers print would mix into our own output
        ray.init(address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise SplatfixError.of("fleet.ray-not-reached", address=address, reason=reason) from error
    try:
        nodes = [node for node in _nodes(ray).values() if all_nodes or node.gpus]
        if not nodes:
            raise SplatfixError.of("fleet.no-gpu-nodes", address=address)
        yield from _answers(ray, nodes, wait, policy)
    finally:
        ray.shutdown()


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise SplatfixError.of("fleet.no-ray", error=error) from error
    return ray


def _require_listener(address: str) -> None:
    """Somebody listens there: Ray itself would try for minutes.

    Raises:
        OSError: nobody does.
    """
    match = re.fullmatch(r"(?:ray://)?([\w.-]+):(\d{1,5})", address)
    if match:
        socket.create_connection((match[1], int(match[2])), timeout=_CONNECT).close()


def _nodes(ray: Any) -> dict[str, _RayNode]:
    """The nodes that are alive, by their ids."""
    nodes = {}
    for node in ray.nodes():
        if node["Alive"]:
            name = node["NodeName"]
            if name == node["NodeManagerAddress"]:  # what Ray calls a node that was given no name
                name = node["NodeManagerHostname"]
            nodes[node["NodeID"]] = _RayNode(node["NodeID"], name, node["Resources"].get("GPU", 0.0))
    return nodes


def _answers(ray: Any, nodes: list[_RayNode], wait: float, policy: str) -> Iterator[Answer]:
    # by value: the node's own splatfix may be another, or none
    ray.cloudpickle.register_pickle_by_value(ray_task)
    tasks = {_on(ray, node, ray_task.judge).remote(node.name, policy): node for node in nodes}
    crashed: dict[_RayNode, str] = {}
    until = time.monotonic() + wait
    pending = list(tasks)
    while pending and time.monotonic() < until:
        ready, pending = ray.wait(pending, timeout=max(0.1, min(5.0, until - time.monotonic())))
        for task_of in ready:
            node = tasks[task_of]
            answer = _answer(ray, task_of, node)
            if isinstance(answer, Answer):
                yield answer
            else:
                crashed[node] = answer
    for late in pending:
        ray.cancel(late, force=True)
        yield Answer(tasks[late].name, None, f"no answer within {wait:.0f} s")
    yield from _why_crashed(ray, crashed, max(until, time.monotonic() + _GRACE))


def _why_crashed(ray: Any, crashed: dict[_RayNode, str], until: float) -> Iterator[Answer]:
    """Ray may list a node as alive for half a minute after its end: whether it still is, another task tells.

    Args:
        crashed: nodes, and what was killed there if not the node itself.
    """
    tasks = {_on(ray, node, ray_task.is_there).remote(): node for node in crashed}
    pending = list(tasks)
    while pending:
        ready, pending = ray.wait(pending, timeout=max(0.0, until - time.monotonic()))
        if not ready:
            break
        for task in ready:
            reason = crashed[tasks[task]]
            try:
                ray.get(task)
            except ray.exceptions.RayError:
                reason = _LOST
            yield Answer(tasks[task].name, None, reason)
    for task in pending:
        yield Answer(tasks[task].name, None, _LOST)


def _on(ray: Any, node: _RayNode, function: Callable[..., Any]) -> Any:
    """The function as a task that runs on that node or nowhere, once, beside whatever runs there."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node.id, soft=False)
    return ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(function)


def _answer(ray: Any, task_of: Any, node: _RayNode) -> Answer | str:
    """What a task that has ended brought; where it was ended from outside, what was, if it was not its node that ended."""
    try:
        code, out, err = ray.get(task_of)
    except ray.exceptions.RayTaskError as error:
        return Answer(node.name, None, f"the task failed there: {_last_line(str(error))}")
    except ray.exceptions.OutOfMemoryError:
        return Answer(node.name, None, "its worker was killed for want of memory")
    except ray.exceptions.TaskUnschedulableError:
        return Answer(node.name, None, _LOST)
    except ray.exceptions.RayError:
        return "its worker was killed"
    if code < 0:
        # a node that ends kills what runs on it one by one, and this first
        return f"splatfix gate was killed there by signal {-code}"
    try:
        document = parse_json(out)
        verdict = verdict_of(document["verdict"])
    except (KeyError, TypeError, ValueError) as error:
        reason = _last_line(err) or _message(out) or str(error)
        return Answer(node.name, None, f"splatfix gate gave no verdict there (exit code {code}): {reason}")
    if verdict.node != node.name:
        return Answer(node.name, None, f"the verdict that came is of {verdict.node!a}")
    return Answer(node.name, verdict, "")


def _message(out: str) -> str:
    """Of the error that a document is; "" where it is another."""
    error = json_object(out).get("error")
    return str(error.get("what", "")) if isinstance(error, dict) else ""


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
