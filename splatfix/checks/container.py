"""Checks of what a container was started with, apart from its GPUs. Every remedy is for the outside: inside nothing helps."""

from collections.abc import Iterator

from splatfix.checks.build import MEMORY_PER_JOB
from splatfix.checks.evidence import start_again
from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.core.words import counted
from splatfix.model import Evidence, Finding, Status

check = checks_of("container")

# What Docker, Podman and containerd give without being asked.
_DOCKER_SHM = 64 * 2**20
_GOOD_SHM = 2**30
_SHM = "/dev/shm"  # named, never opened  # nosec B108


@check("container-shm-small", "The container's shared memory holds what data loaders hand over")
def container_shm_small(context: Context, this: Check) -> Iterator[Finding]:
    """A PyTorch DataLoader with workers hands every batch over in /dev/shm. A container has 64 MiB there unless it is
    started with more; a batch of large images ends in "Bus error" or "unable to allocate shared memory (shm)". Trainers
    that load images in their own process, as Inria's does, need none. Source: PyTorch's README, "Docker Image":
    --ipc=host or --shm-size."""
    confinement = context.machine.confinement
    if confinement.value is None or confinement.value.shm is None or not context.nvidia_gpus:
        return
    size = confinement.value.shm
    evidence = Evidence(_SHM, f"{size / 2**20:.0f} MiB", confinement.found_via)
    if size >= _GOOD_SHM:
        yield this.ok(f"{_SHM} has {size / 2**20:.0f} MiB.", evidence=evidence)
        return
    yield this.finding(
        Status.SKIP if size >= _DOCKER_SHM else Status.WARN,
        f"{_SHM} has {size / 2**20:.0f} MiB: a DataLoader with workers (gsplat's trainers) ends in a bus error there.",
        evidence=evidence,
        remedy=(
            start_again(context, "--shm-size", "8g"),
            'compose: shm_size: "8gb"; Kubernetes: an emptyDir with medium: Memory, mounted at /dev/shm.',
        ),
        link="https://docs.docker.com/reference/cli/docker/container/run/",
    )


@check("container-memory-limit", "The container may use enough memory for one compiler")
def container_memory_limit(context: Context, this: Check) -> Iterator[Finding]:
    """The control group's limit counts every process of the container, and what it reads through the page cache. One nvcc
    on a file with torch's headers takes up to 2.5 GiB; beyond the limit the kernel kills it, inside the container without
    a message ("Killed", exit code 137)."""
    confinement = context.machine.confinement.value
    if confinement is None or confinement.memory is None:
        return
    limit = f"{confinement.memory / 2**30:.1f} GiB"
    evidence = Evidence("memory limit", limit, "the control group")
    if confinement.memory >= MEMORY_PER_JOB:
        yield this.ok(f"The container may use {limit} of memory.", evidence=evidence)
        return
    yield this.warn(
        f"The container may use {limit} of memory, which is less than one compiler takes "
        f"({MEMORY_PER_JOB / 2**30:.1f} GiB).",
        evidence=evidence,
        remedy=(
            start_again(context, "--memory", "16g"),
            "compose: deploy.resources.limits.memory; Kubernetes: resources.limits.memory.",
        ),
    )


@check("container-process-limit", "The container may start enough processes and threads")
def container_process_limit(context: Context, this: Check) -> Iterator[Finding]:
    """The pids limit of a control group counts threads too. torch starts one for each core in several pools, and each
    compiler of a build is four processes (nvcc, cicc, ptxas, cc1plus); beyond the limit come "fork: Resource temporarily
    unavailable", "pthread_create failed" and "can't start new thread"."""
    confinement = context.machine.confinement.value
    if confinement is None or confinement.processes is None:
        return
    limit, cores = confinement.processes, context.machine.resources.cores or 1
    # for each core two compilers of four processes, or torch's pools; the rest for a shell, pip and ninja
    need = 64 + 8 * cores
    evidence = (
        Evidence("pids limit", str(limit), "the control group"),
        Evidence("cores", str(cores), "/proc/self/status"),
    )
    if limit >= need:
        yield this.ok(f"The container may start {limit} processes and threads.", evidence=evidence)
        return
    yield this.warn(
        f"The container may start {limit} processes and threads; a build on {counted(cores, 'core')} takes about {need}.",
        evidence=evidence,
        remedy=(
            start_again(context, "--pids-limit", str(max(2048, need))),
            "compose: pids_limit; Kubernetes: the kubelet's podPidsLimit.",
        ),
    )


@check("container-root-read-only", "The container has a place for temporary files")
def container_root_read_only(context: Context, this: Check) -> Iterator[Finding]:
    """In a container with a read-only root nothing can be written but what is mounted. Compilers, pip, Triton and torch's
    caches write into /tmp: without a mount there they end in "Read-only file system"."""
    confinement = context.machine.confinement
    if confinement.value is None or not confinement.value.read_only:
        return
    evidence = Evidence("root", "read-only", confinement.found_via)
    if confinement.value.writable:
        folders = ", ".join(confinement.value.writable)
        yield this.skip(f"The container's root is read-only; {folders} can be written.", evidence=evidence)
        return
    yield this.warn(
        "The container's root is read-only, and no place for temporary files is mounted.",
        evidence=evidence,
        remedy=(
            start_again(context, "--read-only", "--tmpfs", "/tmp:exec"),  # for the host  # nosec B108
            "compose: tmpfs: [/tmp]; Kubernetes: an emptyDir mounted at /tmp.",
        ),
    )


@check("container-device-closed", "The container's user may open the GPU")
def container_device_closed(context: Context, this: Check) -> Iterator[Finding]:
    """The driver's device files belong to root; by default everybody may open them, and some sites restrict them to a
    group (NVreg_DeviceFileGID and NVreg_DeviceFileMode of the kernel module). A container's user is not in that group:
    NVML says "Insufficient Permissions" and CUDA finds no device. Rootless Podman also drops a user's further groups."""
    confinement = context.machine.confinement.value
    if confinement is None or not confinement.closed_devices:
        return
    devices = ", ".join(confinement.closed_devices)
    # only podman can hand over the groups of whoever starts it, without knowing their numbers
    group = "keep-groups" if context.machine.container == "podman" else "GID"
    yield this.fail(
        f"User {confinement.user} of this container may not open {devices}.",
        evidence=(
            Evidence("closed to this user", devices, "find /dev ! -readable"),
            Evidence("user", str(confinement.user), "/proc/self/status"),
        ),
        remedy=(
            "On the host, stat -c %g /dev/nvidia0 names the group that may open it.",
            start_again(context, "--group-add", group),
            "Or open the files to everybody: options nvidia NVreg_DeviceFileMode=0666 in /etc/modprobe.d.",
        ),
    )
