"""Runs one command in a container of a lane's image and brings its report folder back; the container never stays behind."""

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

from splatfix.containers.engine import Engine, engine_errors, sdk
from splatfix.containers.gpu import device_requests, explain_gpu_failure
from splatfix.containers.image import LANE_LABEL, Image
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.files import write_bytes
from splatfix.core.step import say

REPORT_FOLDER = "/report"
"""Where the command inside leaves its report; the lane's user owns it."""

_MAX_REPORT_BYTES = 1 << 30


@dataclass(frozen=True)
class Limits:
    """What the container may take of the engine's machine; None: no limit."""

    cpus: float | None = None
    memory: str | None = None
    """In Docker's words, such as ``8g``."""


@dataclass(frozen=True)
class Outcome:
    """How the command in the container ended, its report folder being back already."""

    exit_code: int
    seconds: float
    files: tuple[Path, ...]
    """The report's files on this machine."""
    last_lines: tuple[str, ...]
    """The end of what it said, for an error message."""


def run_in_container(
    engine: Engine,
    image: Image,
    command: Sequence[str],
    *,
    lane: str,
    gpu: bool,
    timeout_s: float,
    limits: Limits,
    out: Path,
    progress: Callable[[str], None],
    log: Path,
) -> Outcome:
    """Run ``command`` as the image's own user, without network and privileges, and copy ``/report`` into ``out``.

    What it writes to stderr goes to ``progress`` line by line; stdout and stderr both go to ``log``. The container
    is removed however this ends: success, failure, ``timeout_s`` seconds, or Ctrl-C.

    Raises:
        SplatfixError: ``container-timeout``, ``container-out-of-memory``, ``docker-gpu-runtime-missing`` and whatever
            the engine refuses.
    """
    with _container(engine, image, command, lane, gpu, limits) as container:
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
                f"The certification in lane {lane} was ended because it needed more memory than it may have.",
                meaning="That says nothing about whether this stack trains.",
                todo=(say("Give the container, or the engine's machine, more memory."),),
                exit_code=Exit.UNDETERMINED,
                details={"log": str(log)},
            )
        files = _fetch_report(container, out)
        return Outcome(exit_code, time.monotonic() - started, files, last_lines)


@contextmanager
def _container(
    engine: Engine, image: Image, command: Sequence[str], lane: str, gpu: bool, limits: Limits
) -> Iterator[Any]:
    """A container that is created but not started, and removed at the end whatever happens."""
    options: dict[str, Any] = {}
    if gpu:
        options["device_requests"] = device_requests()
    if limits.cpus is not None:
        options["nano_cpus"] = int(limits.cpus * 1e9)
    if limits.memory is not None:
        options["mem_limit"] = limits.memory
    with engine_errors("creating the container"):
        container = engine.client.containers.create(
            image.id,
            command=list(command),
            network_mode="none",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            labels={LANE_LABEL: lane},
            **options,
        )
    try:
        yield container
    finally:
        with engine_errors("removing the container"), suppress(sdk().errors.NotFound):  # a person was faster
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
    """Start the container and read what it says until it ends; end it after ``timeout_s``."""
    expired = threading.Event()

    def end() -> None:
        expired.set()
        with suppress(sdk().errors.APIError):  # it ended by itself in that very moment
            container.kill()

    watchdog = threading.Timer(timeout_s, end)
    watchdog.daemon = True
    said = _Said(progress)
    with log.open("wb") as sink, engine_errors("running the container"):
        # attached before the start, so that not a line is lost; streaming reads know no timeout of their own
        stream = container.attach(stream=True, stdout=True, stderr=True, logs=True, demux=True)
        _start(engine, container)
        watchdog.start()
        try:
            for out, err in stream:
                sink.write((out or b"") + (err or b""))
                sink.flush()
                said.hear(out or b"", err or b"")
        finally:
            watchdog.cancel()
    if expired.is_set():
        raise SplatfixError(
            "container-timeout",
            f"The certification in the container did not end within {timeout_s:g} s and was stopped.",
            meaning="Nothing was certified. What it said until then is in " + str(log) + ".",
            todo=(say("Look at that log; on a slow machine give it more time."),),
            exit_code=Exit.UNDETERMINED,
            details={"log": str(log), "last_lines": list(said.last_lines())},
        )
    return said.last_lines()


class _Said:
    """Cuts the container's two streams into lines: stderr is told as it comes, the end of both is kept."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._progress = progress
        self._partial = {"out": b"", "err": b""}
        self._lines: list[str] = []

    def hear(self, out: bytes, err: bytes) -> None:
        for line in self._cut("out", out):
            self._keep(line)
        for line in self._cut("err", err):
            self._keep(line)
            self._progress(line)

    def last_lines(self) -> tuple[str, ...]:
        rest = [data.decode("utf-8", "replace") for data in self._partial.values() if data.strip()]
        return tuple([*self._lines, *rest][-20:])

    def _cut(self, which: str, data: bytes) -> list[str]:
        *whole, self._partial[which] = (self._partial[which] + data).split(b"\n")
        return [line.decode("utf-8", "replace").rstrip("\r") for line in whole]

    def _keep(self, line: str) -> None:
        if line.strip():
            self._lines = [*self._lines[-19:], line]


def _fetch_report(container: Any, out: Path) -> tuple[Path, ...]:
    """Copy the container's report folder into ``out``; works the same for an engine on another machine."""
    with tempfile.TemporaryFile() as file:
        with engine_errors("bringing the report back"):
            blocks, _ = container.get_archive(REPORT_FOLDER)
            size = 0
            for block in blocks:
                size += len(block)
                if size > _MAX_REPORT_BYTES:
                    raise SplatfixError(
                        "container-report-too-large",
                        f"The report in the container is larger than {_MAX_REPORT_BYTES >> 30} GiB and was left there.",
                    )
                file.write(block)
        file.seek(0)
        return unpack_report(file, out)


def unpack_report(archive: IO[bytes], out: Path) -> tuple[Path, ...]:
    """Write the files of a tar of ``report/`` into ``out``: plain files only, and none outside of ``out``.

    What ran in the container is not trusted with this machine: links, devices and paths that climb are left out.
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
