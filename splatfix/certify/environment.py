"""What a certificate is valid for: the versions of everything that ran, the hardware, and the container."""

import hashlib
import os
from collections.abc import Sequence

from msgspec import Struct

import splatfix
from splatfix.certify.model import SceneRun
from splatfix.context import make_context
from splatfix.core.codec import from_json, parse_json, to_json
from splatfix.core.files import dumps
from splatfix.core.step import Command
from splatfix.core.words import counted
from splatfix.model import Facts

_HOST = "SPLATFIX_CONTAINER"
"""The variable of a container in which its host tells, as JSON, what only the host knows."""


class Host(Struct, frozen=True):
    """Where a certification in a container runs, and how it is repeated."""

    container: str = ""
    """The lane, the id of its image, name and id of the image that was made from; "" outside of one."""
    repeat: Command | None = None
    """The host's command line for the same."""

    @property
    def variables(self) -> dict[str, str]:
        """Those of the container's environment that tell it."""
        return {_HOST: dumps(to_json(self))}


def told_by_host() -> Host:
    """Return what the host of this container told."""
    return from_json(Host, parse_json(os.environ.get(_HOST, "{}")))


def environment_of(facts: Facts, scenes: Sequence[SceneRun], device: str) -> dict[str, str]:
    """Name everything as a report shows it; what the trainer told of itself wins over what was found from outside."""
    interpreter, torch = facts.environment.interpreter.value, facts.environment.torch.value
    environment = {
        "splatfix": splatfix.__version__,
        "system": f"{facts.machine.distribution or facts.machine.system} {facts.machine.machine}",
        "python": interpreter.version if interpreter else "unknown",
        "torch": torch.version if torch else "unknown",
        **gpu_record(facts, device, scenes),
    }
    for run in scenes:
        machine = run.record.machine
        if machine.cpu:
            cores, threads = counted(machine.cores or 0, "core"), counted(machine.threads or 0, "thread")
            environment["CPU"] = f"{machine.cpu}, {cores}, {threads}"
        if machine.memory:
            environment["memory"] = f"{machine.memory / 2**30:.1f} GiB"
        for part, ran in run.record.implementations.items():
            environment[part] = " ".join(filter(None, (ran.name, ran.version, ran.engine)))
    if container := told_by_host().container:
        environment["container"] = container
    return environment


def gpu_record(facts: Facts, device: str, scenes: Sequence[SceneRun]) -> dict[str, str]:
    """Describe the GPU that was used, by the name that torch told, else by NVML where it is certain which ``device`` means: not
    between different GPUs, when CUDA's own order is not known. And the driver, and other GPUs."""
    gpus = facts.machine.gpus.value or ()
    used, record = None, {"GPU": "none used" if gpus else "none"}
    if device != "cpu":
        used = make_context(facts).gpu_of(device)
        told = [run.record.machine.gpu for run in scenes if run.record.machine.gpu]
        name = next(iter(told), used.name if used else "unknown")
        record["GPU"] = f"{name} ({device})"
    if used is not None:
        if used.uuid:  # enough to tell two cards apart, and no serial number in a public report
            record["GPU id"] = f"sha256:{hashlib.sha256(used.uuid.encode()).hexdigest()[:16]}"
        if used.max_clocks:
            record["GPU clocks"] = f"at most {used.max_clocks[0]} MHz, memory {used.max_clocks[1]} MHz"
        if used.power_limit:
            record["GPU power limit"] = f"{used.power_limit / 1000:g} W"
            if used.default_power_limit:
                record["GPU power limit"] += f" of {used.default_power_limit / 1000:g} W"
    if others := [gpu.name for gpu in gpus if gpu != used]:
        record["other GPUs"] = ", ".join(others)
    driver = facts.machine.driver.value
    record["driver"] = (driver.version or "unknown") if driver else "none"
    return record
