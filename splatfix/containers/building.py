"""Reads what an engine answers to an image build, and tells people its stages, what is done there, and for how long."""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from splatfix.core.errors import SplatfixError
from splatfix.core.output import KeptLines, OutputLog, lines
from splatfix.core.redact import without_credentials_in
from splatfix.core.threads import start
from splatfix.core.toml import table_beside
from splatfix.explain import explain_image_build

_EVERY_S = 30.0
"""Between two lines about the time: committing a layer of gigabytes is silent for minutes."""
_STEP = re.compile(r"(?:\[\d+/\d+\] )?STEP \d+(?:/\d+)? ?: (?P<word>\w+) (?P<rest>.*)", re.IGNORECASE)
"""Docker's ``Step 3/57 : FROM base AS packages``, and Podman's ``[1/4] STEP 1/14: FROM base AS packages``."""
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
"""The classic builder prints stderr in red."""


@cache
def _signs() -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(pattern), text) for pattern, text in table_beside(__file__)["signs"]]


class Building:
    """Hears the lines of a build and tells, in its words and from a thread of its own, what is under way and for how long."""

    def __init__(self, progress: Callable[[str], None], every_s: float = _EVERY_S) -> None:
        self._progress, self._every_s = progress, every_s
        self._stage, self._activity, self._began = "", "", time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="build-progress", daemon=True)

    def __enter__(self) -> "Building":
        start(self._thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def hear(self, line: str) -> None:
        """Take a line of the build's output."""
        if step := _STEP.match(line):
            word, rest = step["word"].upper(), step["rest"]
            if word == "FROM":
                name = rest.partition(" AS ")[2]
                self._stage = f"stage {name}" if name else "the image itself"
            # told where it takes long: most are in the engine's cache
            self._activity, self._began = f"{self._stage}: {word}", time.monotonic()
        for sign, text in _signs():
            match = sign.match(line)
            if match and (activity := f"{self._stage}: {match.expand(text)}") != self._activity:
                self._progress(activity)
                self._activity, self._began = activity, time.monotonic()

    def _tell(self) -> None:
        while not self._over.wait(self._every_s):
            self._progress(f"{self._activity}, {time.monotonic() - self._began:.0f} s so far")


def follow_build(
    answers: Iterable[Mapping[str, Any]], lane: str, log: Path, progress: Callable[[str], None]
) -> None:
    """Read the engine's answers to a build; each line goes to ``log``, and to ``progress`` what is being done.

    Raises:
        SplatfixError: ``docker-build-failed`` with the root cause.
    """
    failures: list[str] = []

    def output() -> Iterator[bytes]:
        for answer in answers:  # chunks, not lines
            # of the two fields `error` is the older one (moby, pkg/jsonmessage); the newer may have a code alone
            error = str(answer.get("error") or "")
            if isinstance(detail := answer.get("errorDetail"), Mapping):
                error = str(detail.get("message") or error or f"exit code: {detail.get('code')}")
            if error:
                failures.append(error)
                yield f"\n{error}".encode()
                return
            yield str(answer.get("stream", "")).encode()

    kept = KeptLines()
    with log.open("w", encoding="utf-8") as sink, Building(progress) as building:
        output_log = OutputLog(sink)
        for coloured in without_credentials_in(lines(output())):
            line = _COLOUR.sub("", coloured)
            if line.strip():
                output_log.write(line)
                kept.add(line.rstrip("\n"))
                building.hear(line.rstrip("\n"))
    if failures:
        failure = explain_image_build(kept.lines, failures[0])
        reason = failure.lines[0] if failure.lines else "no reason given"
        if failure.failure_class:
            reason += f" [{failure.failure_class}]"
        raise SplatfixError.of(
            "containers.image-not-built",
            lane=lane,
            reason=reason,
            log=log,
            todo=failure.todo[:1],
            details={"log": str(log), "engine": failures[0]},
        )
