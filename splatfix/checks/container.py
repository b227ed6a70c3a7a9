"""Checks of what a container was started with, apart from its GPUs. Every remedy is for the outside: inside nothing helps."""

from collections.abc import Iterator

from splatfix.checks.build import MEMORY_PER_JOB
from splatfix.checks.evidence import engine_of
from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.core.words import counted
from splatfix.model import Evidence, Finding

check = checks_of("container")

# What Docker, Podman and containerd give without being asked.
_DOCKER_SHM = 64 * 2**20
_GOOD_SHM = 2**30
_SHM = "/dev/shm"  # named, never opened  # nosec B108


@check("container-shm-small")
def container_shm_small(context: Context, this: Check) -> Iterator[Finding]:
    confinement = context.machine.confinement
    if confinement.value is None or confinement.value.shm is None or not context.nvidia_gpus:
        return
    size = f"{confinement.value.shm / 2**20:.0f} MiB"
    evidence = Evidence(_SHM, size, confinement.found_via)
    if confinement.value.shm >= _GOOD_SHM:
        yield this.ok(evidence=evidence, size=size)
        return
    report = this.warn
    if confinement.value.shm >= _DOCKER_SHM:
        report = this.skip
    yield report("small", evidence=evidence, size=size, engine=engine_of(context))


@check("container-memory-limit")
def container_memory_limit(context: Context, this: Check) -> Iterator[Finding]:
    confinement = context.machine.confinement.value
    if confinement is None or confinement.memory is None:
        return
    limit, need = f"{confinement.memory / 2**30:.1f} GiB", f"{MEMORY_PER_JOB / 2**30:.1f} GiB"
    report = this.warn
    if confinement.memory >= MEMORY_PER_JOB:
        report = this.ok
    evidence = Evidence("memory limit", limit, "the control group")
    yield report(evidence=evidence, limit=limit, need=need, engine=engine_of(context))


@check("container-process-limit")
def container_process_limit(context: Context, this: Check) -> Iterator[Finding]:
    confinement = context.machine.confinement.value
    if confinement is None or confinement.processes is None:
        return
    limit, cores = confinement.processes, context.machine.resources.cores or 1
    # for each core two compilers of four processes, or torch's pools; the rest for a shell, pip and ninja
    need = 64 + 8 * cores
    report = this.warn
    if limit >= need:
        report = this.ok
    yield report(
        evidence=(
            Evidence("pids limit", str(limit), "the control group"),
            Evidence("cores", str(cores), "/proc/self/status"),
        ),
        limit=limit,
        cores=counted(cores, "core"),
        need=need,
        enough=max(2048, need),
        engine=engine_of(context),
    )


@check("container-root-read-only")
def container_root_read_only(context: Context, this: Check) -> Iterator[Finding]:
    confinement = context.machine.confinement
    if confinement.value is None or not confinement.value.read_only:
        return
    report, folders = this.warn, ", ".join(confinement.value.writable)
    if folders:
        report = this.skip
    evidence = Evidence("root", "read-only", confinement.found_via)
    yield report(evidence=evidence, folders=folders, engine=engine_of(context))


@check("container-device-closed")
def container_device_closed(context: Context, this: Check) -> Iterator[Finding]:
    confinement = context.machine.confinement.value
    if confinement is None or not confinement.closed_devices:
        return
    devices = ", ".join(confinement.closed_devices)
    # only podman can hand over the groups of whoever starts it, without knowing their numbers
    group = "keep-groups" if context.machine.container == "podman" else "GID"
    yield this.fail(
        evidence=(
            Evidence("closed to this user", devices, "find /dev ! -readable"),
            Evidence("user", str(confinement.user), "/proc/self/status"),
        ),
        user=confinement.user,
        devices=devices,
        engine=engine_of(context),
        group=group,
    )
