"""``splatfix fleet report``: the verdicts of many nodes, and their certificates, as one picture."""

import gc
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from splatfix.app.report import certificates_below, load_keys, read_certificates, require
from splatfix.app.result import Result
from splatfix.app.stored import NAME
from splatfix.core.codec import CodecError, Decoder, to_json
from splatfix.core.errors import Exit, SplatfixError, usage_error
from splatfix.core.files import make_folder, read_json, set_aside, write_json, write_text
from splatfix.core.limits import MOST_TEXT
from splatfix.core.reading import read_text
from splatfix.core.step import say
from splatfix.fleet.reading import read_verdict
from splatfix.report import fleet as words
from splatfix.report.documents import envelope
from splatfix.report.html import fleet_page
from splatfix.report.nodes import Before, Fleet, NodeMerger, Why

VERDICTS = "verdicts"
"""A run's folder of them."""
PAGE, DATA, ROWS, GAUGES = "fleet.html", "fleet.json", "fleet.csv", "fleet.prom"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_COMMAND = "fleet report"


def report(
    paths: Sequence[Path],
    out: Path,
    *,
    nodes: Path | None = None,
    max_age: str = "",
    since: Path | None = None,
    keys: Sequence[Path] = (),
) -> Result:
    """Write the picture of many nodes as HTML, JSON, CSV and for Prometheus into ``out``.

    Exit code 1 where a node fails; else 3 where a verdict is lost, late, ahead or could not be read, or there is none.

    Args:
        paths: verdicts, and folders of verdicts with reports of certify below.
        nodes: a file with the names of all nodes, one a line; ``-`` for standard input.
        max_age: of a verdict that still counts, such as ``15m``.
        since: an earlier report, to compare with; by default the one that lies in ``out``.
        keys: public keys that certificates may be signed with.

    Raises:
        SplatfixError: exit code 2 for what cannot be read of what was named; ``cannot-write``.
    """
    public = load_keys(keys)
    listed = _names(nodes) if nodes else None
    age = _span(max_age) if max_age else None
    for path in paths:
        require(path)
    before = _earlier(since, out)
    merger = NodeMerger(datetime.now(timezone.utc), age)
    read_verdicts(paths, out, merger)
    unreadable: list[tuple[str, str]] = []
    certificates = read_certificates(_certificates(paths, unreadable), out, public, unreadable)
    matrix = certificates.merged()
    fleet = merger.merged(listed, before, matrix)
    if not (len(merger) or len(certificates) or listed):
        raise SplatfixError.of("app.no-verdicts")
    exit_code = _exit_code(fleet)
    content = {
        **to_json(fleet),
        "certificates": to_json(matrix),
        "unreadable": [{"path": path, "reason": reason} for path, reason in unreadable],
        "files": [str(out / name) for name in (PAGE, DATA, ROWS, GAUGES)],
    }
    make_folder(out)
    write_text(out / PAGE, fleet_page(fleet, matrix, unreadable, DATA))
    write_text(out / ROWS, words.comma_separated(fleet))
    write_text(out / GAUGES, words.prometheus(fleet))
    write_json(out / DATA, envelope(_COMMAND, exit_code, content))
    return Result(
        _COMMAND, lambda: content, lambda console: words.show(console, fleet, str(out / PAGE)), exit_code
    )


def read_verdicts(paths: Sequence[Path], out: Path, merger: NodeMerger) -> None:
    """Add all verdicts that are named, or lie in folders that are; of a file that is none, why.

    Args:
        out: of the report, whose own file is left out.
    """
    gc.disable()  # as for certificates
    try:
        for file in _verdicts(paths, out):
            try:
                merger.add(file, read_verdict(Path(file)))
            except ValueError as problem:
                merger.refuse(file, os.path.basename(file), str(problem))  # noqa: PTH119 - thousands of times
    finally:
        gc.enable()


def _exit_code(fleet: Fleet) -> Exit:
    if fleet.states["fail"] or fleet.drained:
        return Exit.FAILURE
    if any(fleet.remarked[why.value] for why in (Why.LOST, Why.UNREAD, Why.LATE, Why.AHEAD)):
        return Exit.UNDETERMINED
    return Exit.OK


def _verdicts(paths: Sequence[Path], out: Path) -> Iterator[str]:
    """Each file once: those named, and those with the ending .json in the folders named; what this command wrote is left out."""
    visited: set[str] = set()
    own = os.path.normpath((out / DATA).absolute())
    for path in paths:
        if path.name == NAME:
            continue
        files = [os.fspath(path)]
        if path.is_dir():
            # that of a run has them in a folder of their own
            files = [file for folder in (path, path / VERDICTS) for file in _files_in(folder)]
        for file in files:
            absolute = os.path.normpath(os.path.abspath(file))  # noqa: PTH100 - thousands of times
            if absolute not in visited and absolute != own:
                visited.add(absolute)
                yield file


def _files_in(folder: Path) -> Sequence[str]:
    if not folder.is_dir():
        return ()
    with os.scandir(folder) as entries:
        return sorted(entry.path for entry in entries if _may_be_verdict(entry.name))


def _may_be_verdict(name: str) -> bool:
    # what begins with a dot is not whole yet: whoever writes it gives it its name at the end
    return name.endswith(".json") and not name.startswith(".") and name != NAME


def _certificates(paths: Sequence[Path], unreadable: list[tuple[str, str]]) -> Iterator[str]:
    for path in dict.fromkeys(paths):
        if path.is_dir():
            yield from certificates_below(os.fspath(path), unreadable)
        elif path.name == NAME:
            yield os.fspath(path)


def _names(path: Path) -> Mapping[str, str]:
    """The nodes of a list, one a line, and what stands behind a # there: why there is no verdict of it.

    Raises:
        SplatfixError: ``cannot-read`` (exit code 2).
    """
    if path == Path("-"):
        text = sys.stdin.read(MOST_TEXT)
    else:
        content = read_text(path, MOST_TEXT)
        if not isinstance(content, str):
            reason = content.reason if content else "there is no such file"
            raise SplatfixError.of("app.unreadable-file", file=path, reason=reason)
        text = content
    nodes = {}
    for line in text.splitlines():
        name, _, reason = line.partition("#")
        if name.strip():
            # kubectl get nodes -o name
            nodes[name.strip().removeprefix("node/")] = reason.strip()
    return nodes


def _span(text: str) -> timedelta:
    """``90s``, ``15m``, ``6h`` or ``2d``.

    Raises:
        SplatfixError: ``no-span`` (exit code 2).
    """
    match = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if match is None:
        raise usage_error("no-span", f"{text!a} is no span of time.", say("Give it as 90s, 15m, 6h or 2d."))
    return timedelta(seconds=int(match[1]) * _UNITS[match[2]])


def _earlier(since: Path | None, out: Path) -> Before | None:
    """The report to compare with. One that lies in ``out`` and is none is set aside, so that it is not written over.

    Raises:
        SplatfixError: exit code 2 where what was named is none.
    """
    if since is not None:
        return _read_report(since / DATA if since.is_dir() else since)
    if not (out / DATA).exists():
        return None
    try:
        return _read_report(out / DATA)
    except SplatfixError:
        set_aside(out, (PAGE, DATA, ROWS, GAUGES))
        return None


def _read_report(path: Path) -> Before:
    document = read_json(path, f"a {DATA} of splatfix fleet report")
    try:
        if not isinstance(document, dict) or document.get("command") != _COMMAND:
            raise CodecError("it is another document")
        before: Before = Decoder(other_keys=True).decode(Before, document)
    except CodecError as error:
        raise SplatfixError.of("app.no-fleet-report", path=path, error=error) from error
    return before
