"""Verdicts read back. They come from other machines: whoever can write into the folder may have written anything."""

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from splatfix.core.codec import CodecError, Decoder, parse_json
from splatfix.core.reading import read_bytes
from splatfix.fleet.verdict import MOST_VERDICT, SCHEMA_VERSION, NodeVerdict, State, state_of

MOST_CHECKS = 500
"""Of one verdict. splatfix has less than two hundred checks."""
MOST_GPUS = 64
LONGEST_NODE = 255
"""Letters. DNS takes 253 of a host's name."""
_LONGEST = 200
"""Letters of a version, or of a GPU's name."""
_CODE = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")
# a newer splatfix of the same schema may say more; what it says besides is passed over
_DECODER = Decoder(other_keys=True)


def read_verdict(path: Path) -> NodeVerdict:
    """The verdict in a file, without the checks that are ok.

    Raises:
        ValueError: it is none, or not all of one; the message says why, without its full stop.
    """
    content = read_bytes(path, MOST_VERDICT)
    if content is None:
        raise ValueError("there is no such file")
    if not isinstance(content, bytes):
        raise ValueError(content.reason)
    if not content.strip():
        raise ValueError("it is empty")
    document = _parsed(content)
    if isinstance(document, dict) and isinstance(document.get("checks"), list):
        # they are nine of ten, and to decode them takes longer than all the rest
        document["checks"] = [item for item in document["checks"] if not _is_ok(item)]
    return verdict_of(document)


def verdict_of(document: object) -> NodeVerdict:
    """The verdict that a document is.

    Raises:
        ValueError: as :func:`read_verdict`.
    """
    if not isinstance(document, Mapping) or document.get("kind") != "verdict":
        raise ValueError("it is no verdict of splatfix gate")
    if document.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"its schema_version is not {SCHEMA_VERSION}: another splatfix wrote it")
    try:
        verdict: NodeVerdict = _DECODER.decode(NodeVerdict, document)
    except CodecError as error:
        raise ValueError(f"it is no verdict of splatfix gate: {error}") from error
    _require_plausible(verdict)
    return verdict


def time_of(text: str) -> datetime:
    """A time of ISO 8601 with its offset, in UTC.

    Raises:
        ValueError: it is none.
    """
    # Python 3.10 knows no Z
    time = datetime.fromisoformat(re.sub(r"Z\Z", "+00:00", text))
    if time.tzinfo is None:
        raise ValueError("it has no offset from UTC")
    try:
        return time.astimezone(timezone.utc)
    except OverflowError as error:  # of the year 1, or 9999
        raise ValueError("it is no time in UTC") from error


def _parsed(content: bytes) -> Any:
    try:
        return parse_json(content.decode("utf-8-sig"))
    except ValueError as error:
        cut = not content.rstrip().endswith(b"}")
        raise ValueError(f"it is cut off: {error}" if cut else f"it is no JSON: {error}") from error


def _is_ok(check: object) -> bool:
    return isinstance(check, Mapping) and check.get("state") == State.OK.value


def _require_plausible(verdict: NodeVerdict) -> None:
    """What the types do not say, and those who read verdicts rely on.

    Raises:
        ValueError: what it is.
    """
    if not 0 < len(verdict.node) <= LONGEST_NODE:
        raise ValueError(f"the name of its node has {len(verdict.node)} letters")
    if len(verdict.checks) > MOST_CHECKS:
        raise ValueError(f"it has {len(verdict.checks)} checks")
    alike = verdict.alike
    texts = [*alike.gpus, *(alike.driver, alike.cuda, alike.torch, alike.kernel, alike.os, alike.python)]
    if len(alike.gpus) > MOST_GPUS or any(
        text and len(text) > _LONGEST for text in (verdict.machine, *texts)
    ):
        raise ValueError("what it says of its machine is too long")
    if not all(_CODE.fullmatch(check.code) for check in verdict.checks):
        raise ValueError("the code of a check is none")
    try:
        time_of(verdict.finished)
    except ValueError as error:
        raise ValueError("it does not say when it was made") from error
    if state_of(verdict.checks) is not verdict.state:
        raise ValueError(f"it says {verdict.state.value}, and its checks say something else")
