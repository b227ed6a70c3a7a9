"""Runs a command in a container of a lane's image, copies its report folder, and removes the container in any case."""

from __future__ import annotations

import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from splatfix.containers.engine import Engine, device_requests, engine_errors, explain_gpu_failure, sdk
from splatfix.containers.image import LANE_LABEL, Image
from splatfix.containers.owner import OWNER_LABEL, is_dead, owner_label
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.files import write_bytes
from splatfix.core.redact import without_credentials
from splatfix.core.step import say

REPORT_FOLDER = "/report"
"""Where the command writes its report; the lane's user owns it."""

_MAX_REPORT_BYTES = 1 << 30


@dataclass(frozen=True)
class Outcome:
    """How the command in the container ended."""

    exit_code: int
    seconds: float
    files: tuple[Path, ...]
    """The report's files on this machine."""
    last_lines: tuple[str, ...]
    """The last lines of output, for an error message."""


def run_in_container(
    engine: Engine,
    image: Image,
    command: Sequence[str],
    *,
    lane: str,
    gpu: bool,
    timeout_s: float,
    out: Path,
    progress: Callable[[str], None],
    log: Path,
    memory: str | None = None,
) -> Outcome:
    """Run ``command`` as the image's own user, without network and privileges, and copy ``/report`` into ``out``.

    Lines of stderr go to ``progress``; stdout and stderr both go to ``log``. The container is removed in any case:
    success, failure, timeout (``timeout_s`` seconds) or Ctrl-C. ``memory`` limits it as ``docker run --memory`` does.

    Raises:
        SplatfixError: ``container-timeout``, ``container-out-of-memory``, ``docker-gpu-runtime-missing``, and the
            errors of :mod:`splatfix.containers.engine`.
    """
    with _container(engine, image, command, lane, gpu, memory) as container:
        progress(f"container {container.short_id} runs: {' '.join(command)}")
        started = time.monotonic()
        last_lines = _follow(engine, container, timeout_s, progress, log)
        with engine_errors("waiting for the container's end"):
            exit_code = int(container.wait(timeout=60)["StatusCode"])
            container.reload()
            state = container.attrs["State"]
        if state.get("OOMKilled"):
            raise SplatfixError(
                "container-out-of-memory",
                f"The certification in lane {lane} ran out of memory.",
                meaning="This says nothing about the stack.",
                todo=(say("Give the engine's machine more memory."),),
                exit_code=Exit.UNDETERMINED,
                details={"log": str(log)},
            )
        files = _fetch_report(container, out)
        return Outcome(exit_code, time.monotonic() - started, files, last_lines)


def sweep(engine: Engine) -> int:
    """Remove containers and images whose process was killed; returns how many. Never fails.

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
    return swept


@contextmanager
def _container(
    engine: Engine, image: Image, command: Sequence[str], lane: str, gpu: bool, memory: str | None
) -> Iterator[Any]:
    """A created container, removed at the end."""
    options: dict[str, Any] = {}
    if gpu:
        options["device_requests"] = device_requests()
    if memory is not None:
        options["mem_limit"] = memory
    with engine_errors("creating the container"):
        container = engine.client.containers.create(
            image.id,
            command=list(command),
            network_mode="none",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            labels={LANE_LABEL: lane, **owner_label()},
            **options,
        )
    try:
        yield container
    finally:
        with engine_errors("removing the container"), suppress(sdk().errors.NotFound):
            container.remove(force=True, v=True)


def _start(engine: Engine, container: Any) -> None:
    try:
        container.start()
    except sdk().errors.APIError as error:
        if explained := explain_gpu_failure(str(error.explanation or error), engine.endpoint.host):
            raise explained from error
        raise


def _follow(
    engine: Engine, container: Any, timeout_s: float, progress: Callable[[str], None], log: Path
) -> tuple[str, ...]:
    """Start the container and read its output until it ends, or kill it after ``timeout_s``; returns the last lines."""
    expired = threading.Event()

    def end() -> None:
        expired.set()
        with suppress(sdk().errors.APIError):  # it has just ended
            container.kill()

    watchdog = threading.Timer(timeout_s, end)
    watchdog.daemon = True
    with log.open("w", encoding="utf-8") as sink, engine_errors("running the container"):
        output = _Output(progress, sink)
        # attached before the start, to get every line; streaming reads have no timeout
        stream = container.attach(stream=True, stdout=True, stderr=True, logs=True, demux=True)
        _start(engine, container)
        watchdog.start()
        try:
            for out, err in stream:
                output.feed(out or b"", err or b"")
        finally:
            watchdog.cancel()
            output.finish()
    if expired.is_set():
        raise SplatfixError(
            "container-timeout",
            f"The certification in the container did not end within {timeout_s:g} s, and was stopped.",
            meaning=f"Nothing was certified. Its output is in {log}.",
            exit_code=Exit.UNDETERMINED,
            details={"log": str(log), "last_lines": list(output.last_lines())},
        )
    return output.last_lines()


class _Output:
    """Splits the container's streams into lines, without credentials: all go to the log, stderr also to ``progress``, and the
    last ones are kept."""

    def __init__(self, progress: Callable[[str], None], log: IO[str]) -> None:
        self._progress = progress
        self._log = log
        self._partial = {"out": b"", "err": b""}
        self._lines: list[str] = []

    def feed(self, out: bytes, err: bytes) -> None:
        for which, data in (("out", out), ("err", err)):
            *whole, self._partial[which] = (self._partial[which] + data).split(b"\n")
            for line in whole:
                self._hear(which, line)
        self._log.flush()

    def finish(self) -> None:
        """What came without a newline is a line too."""
        for which, rest in self._partial.items():
            if rest:
                self._hear(which, rest)

    def last_lines(self) -> tuple[str, ...]:
        return tuple(self._lines)

    def _hear(self, which: str, data: bytes) -> None:
        line = without_credentials(data.decode("utf-8", "replace").rstrip("\r"))
        self._log.write(f"{line}\n")
        if line.strip():
            self._lines = [*self._lines[-19:], line]
        if which == "err":
            self._progress(line)


def _fetch_report(container: Any, out: Path) -> tuple[Path, ...]:
    """Copy the container's report folder into ``out``, also from an engine on another machine."""
    with tempfile.TemporaryFile() as file:
        with engine_errors("copying the report"):
            blocks, _ = container.get_archive(REPORT_FOLDER)
            size = 0
            for block in blocks:
                size += len(block)
                if size > _MAX_REPORT_BYTES:
                    raise SplatfixError(
                        "container-report-too-large",
                        f"The report in the container is larger than {_MAX_REPORT_BYTES >> 30} GiB, and was not copied.",
                    )
                file.write(block)
        file.seek(0)
        return unpack_report(file, out)


def unpack_report(archive: IO[bytes], out: Path) -> tuple[Path, ...]:
    """Write the files of a tar of ``report/`` into ``out``.

    The container is not trusted: links, devices and paths that leave ``out`` are ignored.
    """
    written = []
    with tarfile.open(fileobj=archive, mode="r|") as tar:
        for member in tar:
            parts = PurePosixPath(member.name).parts[1:]  # the first is "report" itself
            if not member.isfile() or not parts or ".." in parts or member.name.startswith("/"):
                continue
            content = tar.extractfile(member)
            if content is not None:
                target = out.joinpath(*parts)
                write_bytes(target, content.read())
                written.append(target)
    return tuple(written)
