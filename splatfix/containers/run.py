"""Runs a command in a container of a lane's image, copies its report folder, and removes the container in any case."""

from __future__ import annotations

import re
import tarfile
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

from msgspec import Struct, field

from splatfix.containers.engine import Engine, device_requests, engine_errors, explain_gpu_failure, sdk
from splatfix.containers.image import LANE_LABEL, Image
from splatfix.containers.lanes import Lane
from splatfix.containers.owner import OWNER_LABEL, is_dead, owner_label
from splatfix.core.errors import Exit, SplatfixError, cannot_write
from splatfix.core.files import write_bytes
from splatfix.core.limits import LONGEST_OUTPUT_LINE, MOST_REPORT, MOST_REPORT_FILES
from splatfix.core.output import OutputLog
from splatfix.core.redact import safe_cut, without_credentials
from splatfix.core.step import run, say
from splatfix.core.threads import start

REPORT_FOLDER = "/report"
"""Where the command writes its report: a volume, because the root of the container is read-only."""

IMAGE_LOG, PROVENANCE = "image-build.log", "container.json"
_LOG = "container.log"
_OF_THIS_MACHINE = re.compile(
    rf"{re.escape(IMAGE_LOG)}|{re.escape(PROVENANCE)}|{re.escape(_LOG)}|previous(-\d+)?", re.IGNORECASE
)
"""Names in the job's folder that no report from a container has: our record of its run, and what was certified before."""
_GRACE_S = 20
"""For the command to write what it has, once it was told to end."""
_PROCESSES = 4096
_RUNNER = """
exec 3<&0 </dev/null
"$@" 3<&- & child=$!
trap 'trap "" TERM; kill -TERM $child 2>/dev/null' TERM
( cat <&3 >/dev/null; kill -TERM $child; sleep 10; kill -KILL $child ) 2>/dev/null &
while :; do wait $child 2>/dev/null; code=$?; kill -0 $child 2>/dev/null || break; done
exit $code
"""
"""Runs the command, which as process 1 would hear no SIGTERM, and ends it with its standard input: with the connection of the
splatfix that waits for it. The exit code is the command's."""
_SIGNALLED = (128 + 9, 128 + 15)
"""Exit codes of a command that somebody else killed or stopped."""


class ContainerJob(Struct, frozen=True):
    """A command that runs in a container of a lane's image."""

    lane: Lane
    image: Image
    command: Sequence[str]
    out: Path
    """Folder on this machine for the report and the log."""
    gpu: bool = False
    """Pass GPUs in."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of its environment, beside the image's."""

    @property
    def log(self) -> Path:
        return self.out / _LOG


class ContainerOutcome(Struct, frozen=True):
    """How the command in the container ended."""

    exit_code: int
    seconds: float
    files: tuple[Path, ...]
    """The report's files on this machine."""
    last_lines: tuple[str, ...]
    """The last lines of output, for an error message."""


def run_in_container(
    engine: Engine,
    job: ContainerJob,
    progress: Callable[[str], None],
) -> ContainerOutcome:
    """Run a command as the image's own user, without network and privileges, and copy ``/report`` into the job's folder.

    The root is read-only; the report and ``/scratch`` are volumes. Lines of stderr go to ``progress``; stdout and stderr both
    go to the log. The report is copied whatever became of the command, and the container is removed in any case: success,
    failure, timeout (the lane's), Ctrl-C, and by the engine where this process is killed.

    Raises:
        SplatfixError: ``container-timeout``, ``container-out-of-memory``, ``container-ended``,
            ``docker-gpu-runtime-missing``, and the errors of :mod:`splatfix.containers.engine`.
        KeyboardInterrupt: the command was told to end, and what it left was copied.
    """
    name, lane = f"splatfix-{uuid.uuid4().hex}", job.lane
    with _container(engine, job, name) as container:
        progress(f"container {container.short_id} runs: {' '.join(job.command)}")
        started = time.monotonic()
        output = _follow(engine, container, job, progress)
        last_said = {"log": str(job.log), "last_lines": output.last_lines}
        with engine_errors("running the container"):
            exit_code = int(container.wait()["StatusCode"])
            container.reload()
        with tempfile.TemporaryFile() as file:  # also from an engine on another machine
            with engine_errors("copying the report"):
                blocks, _ = container.get_archive(REPORT_FOLDER)
                for block in blocks:
                    file.write(block)
                    if file.tell() > MOST_REPORT:
                        raise _too_large(f"is larger than {MOST_REPORT >> 30} GiB, and was not copied")
            is_empty = not file.tell()  # Podman, where the image lacks the folder
            file.seek(0)
            files = () if is_empty else unpack_report(file, job.out)
        if output.interrupted:
            raise KeyboardInterrupt
        if output.expired:
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
        seconds = time.monotonic() - started
        return ContainerOutcome(exit_code, seconds, files, tuple(output.last_lines))


def sweep(engine: Engine) -> int:
    """Remove containers and images whose process was killed, and volumes that an engine left when it stopped; returns how many
    of the first two. Never fails.

    An engine serves several machines, so those of another one, or of another container, stay.
    """
    errors = sdk().errors
    swept = 0
    with suppress(errors.DockerException, OSError):
        label = {"label": OWNER_LABEL}
        for container in engine.client.containers.list(all=True, filters=label, ignore_removed=True):
            if is_dead(container.labels.get(OWNER_LABEL, "")):
                with suppress(errors.APIError):  # another splatfix is removing it
                    container.remove(force=True, v=True)
                    swept += 1
        for image in engine.client.images.list(filters=label):
            if is_dead(image.labels.get(OWNER_LABEL, "")):
                with suppress(errors.APIError):
                    engine.client.images.remove(image.id, force=True)
                    swept += 1
        for volume in engine.client.volumes.list(filters=label):
            if is_dead((volume.attrs.get("Labels") or {}).get(OWNER_LABEL, "")):
                with suppress(errors.APIError):  # a container has it still
                    volume.remove()
    return swept


@contextmanager
def _container(engine: Engine, job: ContainerJob, name: str) -> Iterator[Any]:
    """A created container of this name, removed at the end."""
    owner = owner_label()
    options: dict[str, Any] = {}
    if job.gpu:
        options["device_requests"] = device_requests(engine)
    mounts = []
    labels = None
    if engine.kind != "Podman":
        labels = owner
    for folder in (REPORT_FOLDER, "/scratch"):
        mounts.append(sdk().types.Mount(folder, None, type="volume", labels=labels))
    try:
        with engine_errors("creating the container"):
            container = engine.client.containers.create(
                job.image.id,
                name=name,
                command=["sh", "-c", _RUNNER, "splatfix", *job.command],
                environment=dict(job.variables),
                network_mode="none",
                read_only=True,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges"],
                pids_limit=_PROCESSES,
                mem_limit=job.lane.memory,
                memswap_limit=job.lane.memory,
                mounts=mounts,
                tmpfs={"/tmp": "rw,nosuid,nodev,mode=1777,size=256m"},  # nosec B108
                healthcheck={"test": ["NONE"]},  # it would run beside what is measured
                stdin_open=True,
                labels={LANE_LABEL: job.lane.name, **owner},
                **options,
            )
    except KeyboardInterrupt:
        with suppress(sdk().errors.DockerException, OSError):  # it may have been created
            engine.client.api.remove_container(name, force=True, v=True)
        raise
    before: SplatfixError | None = None
    try:
        yield container
    except SplatfixError as error:
        before = error
        raise
    finally:
        try:
            with engine_errors("removing the container", ""), suppress(sdk().errors.NotFound):
                container.remove(force=True, v=True)
        except SplatfixError as error:
            if error.code != "docker-engine-lost":
                raise
            raise _left(container, error, before) from error


def _left(container: Any, lost: SplatfixError, before: SplatfixError | None) -> SplatfixError:
    """The error for an engine that is lost, with a container on it that cannot be removed now.

    Args:
        before: what ended the run, if it did not end by itself.
    """
    volumes = [mount["Name"] for mount in container.attrs.get("Mounts") or () if mount.get("Name")]
    error = before or lost
    removals = [("rm", "--force", "--volumes", container.short_id)]
    left = f"Container {container.short_id}"
    if volumes:
        left += f" and its volumes {', '.join(name[:12] for name in volumes)}"
        removals.append(("volume", "rm", "--force", *volumes))
    later = "; the next splatfix certify --container removes what is"
    todo = [run("docker", *arguments, text="Or remove it yourself then") for arguments in removals]
    return SplatfixError(
        lost.code,
        error.what,
        meaning=f"{error.meaning} {left} may be left there{later}.",
        todo=(*lost.todo, *todo),
        exit_code=Exit.UNDETERMINED,
        details={**error.details, "container": container.id, "volumes": volumes},
    )


def _follow(
    engine: Engine,
    container: Any,
    job: ContainerJob,
    progress: Callable[[str], None],
) -> ContainerOutput:
    """Start the container and read its output until the command ends, or ask that to end after the lane's time."""
    timers: list[threading.Timer] = []

    def later(seconds: float, action: Callable[[], None]) -> bool:
        timers.append(threading.Timer(seconds, action))
        timers[-1].daemon = True
        return start(timers[-1])

    def stop(signal: str = "SIGTERM") -> None:
        with suppress(sdk().errors.APIError):  # it has just ended
            container.kill(signal)

    def end() -> None:
        stop()
        later(2, stop)  # a shell that was just started does not hear the first; it heeds one only
        later(_GRACE_S, partial(stop, "SIGKILL"))

    def expire() -> None:
        output.expired = True
        end()

    with job.log.open("w", encoding="utf-8") as sink, engine_errors("running the container"):
        output = ContainerOutput(progress, sink)
        # attached before the start, to get every line; streaming reads have no timeout
        stream = container.attach(stream=True, stdout=True, stderr=True, logs=True, demux=True)
        lifeline = container.attach_socket(params={"stdin": 1, "stream": 1})
        try:
            container.start()
        except sdk().errors.APIError as error:
            if explained := explain_gpu_failure(str(error.explanation or error), engine.endpoint.host):
                raise explained from error
            raise
        if not later(job.lane.timeout_s, expire):
            progress("no thread can be started on this machine: the lane's time limit is not kept")
        try:
            for out, err in stream:
                output.feed(out or b"", err or b"")
        except KeyboardInterrupt:
            output.interrupted = True
            progress("interrupted: what runs in the container was told to end")
            end()
            container.wait()
        finally:
            for timer in timers:
                timer.cancel()
            output.finish()
            lifeline.close()
    return output


class ContainerOutput:
    """Splits the container's streams into lines, without credentials: all go to the log, up to its limit, stderr also to
    ``progress``, and the last ones are kept; and what ended the command."""

    def __init__(self, progress: Callable[[str], None], log: IO[str]) -> None:
        self._progress = progress
        self._log = OutputLog(log)
        self._partial = {"out": b"", "err": b""}
        self.expired = self.interrupted = False
        self.last_lines: list[str] = []

    def feed(self, out: bytes, err: bytes) -> None:
        """Take what came on each stream."""
        for name, data in (("out", out), ("err", err)):
            *lines, self._partial[name] = (self._partial[name] + data).split(b"\n")
            for line in lines:
                self._hear(name, line)
            while len(self._partial[name]) > LONGEST_OUTPUT_LINE:
                cut = safe_cut(self._partial[name][:LONGEST_OUTPUT_LINE].decode("latin-1"))
                self._hear(name, self._partial[name][:cut])
                self._partial[name] = self._partial[name][cut:]

    def finish(self) -> None:
        """What came without a newline is a line too."""
        for name, rest in self._partial.items():
            if rest:
                self._hear(name, rest)

    def _hear(self, stream: str, data: bytes) -> None:
        line = without_credentials(data.decode("utf-8", "replace").rstrip("\r"))
        self._log.write(f"{line}\n")
        if line.strip():
            self.last_lines = [*self.last_lines[-19:], line]
        if stream == "err":
            self._progress(line)


def unpack_report(archive: IO[bytes], out: Path) -> tuple[Path, ...]:
    """Write the files of a tar of ``report/`` into ``out``.

    The container is not trusted: links, devices, paths that leave ``out`` and names of what this machine wrote are ignored.
    """
    written = []
    with tarfile.open(fileobj=archive, mode="r|") as tar:
        for count, member in enumerate(tar):
            if count >= MOST_REPORT_FILES:
                raise _too_large(f"has more than {MOST_REPORT_FILES} files, and was not copied whole")
            parts = PurePosixPath(member.name).parts[1:]  # the first is "report", or "/" from Podman
            if not member.isfile() or member.issparse() or not parts or ".." in parts:
                continue
            if _OF_THIS_MACHINE.fullmatch(parts[0]):
                continue
            content = tar.extractfile(member)
            if content is not None:
                target = out.joinpath(*parts)
                if not target.parent.resolve().is_relative_to(out.resolve()):
                    text = f"{target} is not written: a link leads it out of {out}."
                    raise cannot_write(text, say("Remove that link, or choose another folder with --out."))
                write_bytes(target, iter(partial(content.read, 1 << 20), b""))
                written.append(target)
    return tuple(written)


def _too_large(reason: str) -> SplatfixError:
    return SplatfixError.of("containers.container-report-too-large", why=reason)
