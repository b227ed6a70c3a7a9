"""Reads what an engine answers to an image build, and tells people its stages, and what is done there."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from splatfix.core.errors import SplatfixError
from splatfix.core.output import KeptLines, OutputLog, lines
from splatfix.core.redact import without_credentials_in
from splatfix.core.toml import table_beside
from splatfix.explain import explain_image_build

_STAGE = re.compile(r"(?:\[\d+/\d+\] )?STEP \d+(?:/\d+)? ?: FROM \S+(?: AS (?P<name>\S+))?", re.IGNORECASE)
"""Docker's ``Step 3/57 : FROM base AS packages``, and Podman's ``[1/4] STEP 1/14: FROM base AS packages``."""
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
"""The classic builder prints stderr in red."""


@cache
def _signs() -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(pattern), text) for pattern, text in table_beside(__file__)["signs"]]


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

    kept, stage, told = KeptLines(), "", ""
    with log.open("w", encoding="utf-8") as sink:
        output_log = OutputLog(sink)
        for coloured in without_credentials_in(lines(output())):
            line = _COLOUR.sub("", coloured)
            if not line.strip():
                continue
            output_log.write(line)
            kept.add(line.rstrip("\n"))
            if begun := _STAGE.match(line):
                stage = f"stage {begun['name']}" if begun["name"] else "the image itself"
            for sign, text in _signs():
                match = sign.match(line)
                if match and (activity := f"{stage}: {match.expand(text)}") != told:
                    progress(activity)
                    told = activity
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
