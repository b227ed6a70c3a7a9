"""Runs a command in a container of a lane's image, copies its report folder, and removes the container in any case."""

import tarfile
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct, field

from splatfix.containers.engine import Engine, device_requests, engine_errors, explain_gpu_failure, sdk
from splatfix.containers.image import BUILT, LANE_LABEL, PACKAGES
from splatfix.core.errors import SplatfixError
from splatfix.core.files import write_bytes
from splatfix.core.output import OutputLog, lines
from splatfix.core.redact import without_credentials_in
from splatfix.knowledge.lanes import Lane

REPORT_FOLDER = "/report"
"""Where the command writes its report: a volume, because the root of the container is read-only."""

_GRACE_S = 20
"""For the command to write what it has, once it was told to end."""
_PROCESSES = 4096
_TIMED_OUT = (124, 128 + 9)
"""Exit codes of ``timeout`` after the command's time: it ended when it was told to, or was killed then."""
_SIGNALLED = (128 + 9, 128 + 15)
"""Exit codes of a command that somebody else killed or stopped."""


class ContainerJob(Struct, frozen=True):
    """A command that runs in a container of a lane's image."""

    lane: Lane
    image: str
    """Its id or name."""
    command: Sequence[str]
    out: Path
    """Folder on this machine for the report and the log."""
    gpu: bool = False
    """Pass GPUs in."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of its environment, beside the image's."""

    @property
    def log(self) -> Path:
        return self.out / "container.log"


class ContainerOutcome(Struct, frozen=True):
    """How the command in the container ended."""

    exit_code: int
    seconds: float
    last_lines: tuple[str, ...]
    """The last lines of its stderr, for an error message."""
    packages: bytes
    """What pip installed in the image, a line each."""
    built: bytes
    """What ``splatfix install`` built in it, as its JSON document; empty where it built nothing."""


def run_in_container(engine: Engine, job: ContainerJob, progress: Callable[[str], None]) -> ContainerOutcome:
    """Run a command as the image's own user, without network and privileges, and copy ``/report`` into the job's folder.

    The root is read-only; the report and ``/scratch`` are volumes. Lines of stderr go to ``progress`` and the log; stdout has
    what the report has. ``timeout`` of coreutils is process 1: it keeps the lane's time, also where this process is killed,
    hands signals on, which Python as process 1 would not hear, and ends with the command's exit code. The report is copied
    whatever became of the command, and the container is removed in any case: success, failure, timeout, Ctrl-C.

    Raises:
        SplatfixError: ``container-timeout``, ``container-out-of-memory``, ``container-ended``,
            ``docker-gpu-runtime-missing``, and the errors of :mod:`splatfix.containers.engine`.
        KeyboardInterrupt: the command was told to end, and what it left was copied.
    """
    lane, last_lines, interrupted = job.lane, deque[str](maxlen=20), False
    with _container(engine, job) as container:
        progress(f"container {container.short_id} runs: {' '.join(job.command)}")
        with job.log.open("w", encoding="utf-8") as sink, engine_errors("running the container"):
            log = OutputLog(sink)
            # attached before the start, to get every line; streaming reads have no timeout
            stream = container.attach(stream=True, stdout=False, stderr=True, logs=True)
            started = time.monotonic()
            try:
                container.start()
            except sdk().errors.APIError as error:
                if explained := explain_gpu_failure(str(error.explanation or error), engine.endpoint.host):
                    raise explained from error
                raise
            try:
                for line in without_credentials_in(lines(stream)):
                    log.write(line)
                    progress(line.rstrip("\n"))
                    if line.strip():
                        last_lines.append(line.rstrip("\n"))
            except KeyboardInterrupt:
                interrupted = True
                progress("interrupted: what runs in the container was told to end")
                container.stop(timeout=_GRACE_S)
            exit_code = int(container.wait()["StatusCode"])
            seconds = time.monotonic() - started
            container.reload()
        with _archive(container, REPORT_FOLDER) as report:
            unpack_report(report, job.out)
        if interrupted:
            raise KeyboardInterrupt
        last_said = {"log": str(job.log), "last_lines": list(last_lines)}
        if exit_code in _TIMED_OUT and seconds >= lane.timeout_s:
            raise SplatfixError.of(
                "containers.container-timeout",
                seconds=lane.timeout_s,
                out=job.out,
                log=job.log,
                details=last_said,
            )
        if container.attrs["State"].get("OOMKilled"):
            raise SplatfixError.of(
                "containers.container-out-of-memory", lane=lane.name, memory=lane.memory, details=last_said
            )
        if exit_code in _SIGNALLED:
            raise SplatfixError.of(
                "containers.container-ended", lane=lane.name, log=job.log, details=last_said
            )
        packages, built = _content(container, PACKAGES), _content(container, BUILT)
    return ContainerOutcome(exit_code, seconds, tuple(last_lines), packages, built)


@contextmanager
def _container(engine: Engine, job: ContainerJob) -> Iterator[Any]:
    """Create the container of a job, and remove it at the end; where the engine is lost then, a later :func:`sweep` does."""
    docker = sdk()
    options: dict[str, Any] = {}
    if job.gpu:
        options["device_requests"] = device_requests(engine)
    volume = partial(docker.types.Mount, source=None, type="volume")
    with engine_errors("creating the container"):
        container = engine.client.containers.create(
            job.image,
            command=["timeout", f"--kill-after={_GRACE_S}", str(job.lane.timeout_s), *job.command],
            environment=dict(job.variables),
            network_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            pids_limit=_PROCESSES,
            mem_limit=job.lane.memory,
            memswap_limit=job.lane.memory,
            mounts=[volume(REPORT_FOLDER), volume("/scratch")],
            tmpfs={"/tmp": "rw,nosuid,nodev,mode=1777,size=256m"},  # nosec B108
            healthcheck={"test": ["NONE"]},  # it would run beside what is measured
            labels={LANE_LABEL: job.lane.name},
            **options,
        )
    try:
        yield container
    finally:
        with suppress(docker.errors.DockerException, OSError):
            container.remove(force=True, v=True)


@contextmanager
def _archive(container: Any, path: str) -> Iterator[tarfile.TarFile]:
    """Open a copy of a file or folder of a container as a tar, also from an engine on another machine; one that is not there has
    nothing in it."""
    with tempfile.TemporaryFile() as file:
        with engine_errors("copying the report"), suppress(sdk().errors.NotFound):
            blocks, _ = container.get_archive(path)
            file.writelines(blocks)
        # the end of a tar: what Podman gives of a folder that is not there has no bytes
        file.write(bytes(1024))
        file.seek(0)
        with tarfile.open(fileobj=file) as tar:
            yield tar


def _content(container: Any, path: str) -> bytes:
    """Read a small file of a container; empty where it has none of that name."""
    with _archive(container, path) as tar:
        for member in tar:
            if file := tar.extractfile(member):
                return file.read()
    return b""


def unpack_report(tar: tarfile.TarFile, out: Path) -> None:
    """Write the files of ``report/`` into ``out``; no links and devices, and nothing outside of ``out``."""
    for member in tar:
        parts = PurePosixPath(member.name).parts[1:]  # the first is "report", or "/" from Podman
        if member.isfile() and parts and ".." not in parts and (file := tar.extractfile(member)):
            write_bytes(out.joinpath(*parts), iter(partial(file.read, 1 << 20), b""))


def sweep(engine: Engine, older_s: float = 86_400) -> int:
    """Remove the containers that killed runs left, with their volumes; returns how many. Never fails.

    ``timeout`` has ended what ran in them. The report of a younger one may be being copied, by whoever uses this engine too.
    """
    errors, swept = sdk().errors, 0
    latest = (datetime.now(timezone.utc) - timedelta(seconds=older_s)).isoformat()
    with suppress(errors.DockerException, OSError):
        ended = {"label": LANE_LABEL, "status": ["created", "exited"]}
        for container in engine.client.containers.list(all=True, filters=ended, ignore_removed=True):
            if container.attrs["Created"] < latest:
                with suppress(errors.APIError):  # another splatfix is removing it
                    container.remove(force=True, v=True)
                    swept += 1
    return swept
