"""``splatfix report``: certificates that were written earlier, shown in any form, compared, and merged."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from msgspec.structs import replace

from splatfix.app.certify import next_step
from splatfix.app.result import Result
from splatfix.app.stored import NAME, read_stored
from splatfix.certify.baseline import compare, require_alike
from splatfix.certify.levels import open_of, reproduces
from splatfix.context import make_context
from splatfix.context.matrix import binary_matrix
from splatfix.core.codec import to_json
from splatfix.core.errors import Exit, Rejected, SplatfixError, require
from splatfix.core.files import make_folder, set_aside, write_json, write_text
from splatfix.core.reading import Unread
from splatfix.report import merging
from splatfix.report.certificate import StoredDocument
from splatfix.report.comparison import Difference
from splatfix.report.forms import ENVELOPE, envelope

PAGE, TEXT, ROWS, DATA = "certificates.html", "certificates.md", "certificates.csv", "certificates.json"
_DIFFERENCE = {True: Exit.OK, False: Exit.FAILURE, None: Exit.UNDETERMINED}
_SET_ASIDE = re.compile(r"previous(-\d+)?")


def show(path: Path) -> Result[StoredDocument]:
    """Show a certificate in every form that ``certify`` gives, and as the page of the report folder (``html``)."""
    stored = require(read_stored(path, with_facts=True))
    facts, page = stored.facts, str(stored.path.with_suffix(".html"))
    if not Path(page).is_file():
        page = ""
    assert facts is not None  # they were asked for
    document = StoredDocument(
        certificate=stored.certificate,
        facts=facts,
        folder=str(stored.path.parent),
        page=page,
        sha256=stored.sha256,
        options=stored.options,
        matrix=binary_matrix(make_context(facts)),
        next_steps=tuple(filter(None, (next_step(stored.certificate),))),
        file=str(stored.path),
        issued_by=stored.document["splatfix_version"],
        stored={name: value for name, value in stored.document.items() if name not in ENVELOPE},
    )
    return Result("report show", document)


def diff(a: Path, b: Path) -> Result[Difference]:
    """Hold certificate B against A, as ``certify --baseline A`` would have; exit code 1 where B does not reproduce A, 3 where
    that cannot be told.

    Raises:
        SplatfixError: exit code 2 when one is none, see :func:`splatfix.app.stored.read_stored`, or when the two cannot be
            compared, see :func:`splatfix.certify.baseline.require_alike`.
    """
    baseline, judged = require(read_stored(a)), require(read_stored(b))
    certificate_b = judged.certificate
    for stored in (judged, baseline):
        require_alike(stored.path, stored.certificate, certificate_b.renderer, certificate_b.device)
    compared = compare(certificate_b.scenes, baseline.certificate)
    rung = reproduces(compared, open_of(certificate_b.scenes))
    difference = Difference(str(baseline.path), str(judged.path), rung, compared)
    return Result("report diff", difference, _DIFFERENCE[rung.reached])


def merge(
    paths: Sequence[Path], out: Path, refused: Mapping[str, SplatfixError] | None = None
) -> Result[merging.MergeDocument]:
    """Write the matrix of many certificates, and their failures by cause, as HTML, Markdown, CSV and JSON into ``out``.

    What lies there and cannot be read is listed with its reason. Exit code 3 where there is nothing to list; nothing is
    written then.

    Args:
        refused: container lanes that gave no certificate, with what was said.

    Raises:
        SplatfixError: ``cannot-read`` (exit code 2) for a path that does not exist; ``cannot-write``.
    """
    for path in paths:
        if not os.path.lexists(path):
            raise SplatfixError.of("app.nothing-to-read", path=path)
    unreadable: list[Unread] = []
    summaries = []
    for file in _files(paths, unreadable):
        stored = read_stored(Path(file))
        if isinstance(stored, Rejected):
            unreadable.append(Unread(file, stored.error().what))
            continue
        target = f"{file.removesuffix('.json')}.html"
        if not Path(target).is_file():
            target = file
        try:
            link = quote(os.path.relpath(target, out).replace(os.sep, "/"), errors="surrogateescape")
        except ValueError:  # on another drive
            link = Path(target).absolute().as_uri()
        summaries.append(merging.summary_of(file, link, stored.certificate, stored.options, stored.sha256))
    lanes = tuple(merging.RefusedLane(name, problem) for name, problem in (refused or {}).items())
    document = replace(merging.merge(summaries), unreadable=tuple(unreadable), refused=lanes)
    if not summaries and not lanes:
        error = SplatfixError.of("app.nothing-to-merge")
        return Result("report merge", document, error.exit_code, error)
    names = (PAGE, TEXT, ROWS, DATA)
    document = replace(document, files=tuple(str(out / name) for name in names))
    make_folder(out)
    set_aside(out, names)
    write_text(out / PAGE, merging.merged_page(document))
    write_text(out / TEXT, merging.markdown(document))
    write_text(out / ROWS, merging.comma_separated(document))
    write_json(out / DATA, envelope("report merge", Exit.OK, to_json(document)))
    return Result("report merge", document)


def _files(paths: Iterable[Path], unreadable: list[Unread]) -> Iterator[str]:
    """Yield each file once: those named, and every certificate.json below the folders named. Links to folders are not
    followed, and what ``certify`` set aside is left out. Folders that cannot be listed, or have none, are unreadable."""

    def refused(error: OSError) -> None:
        unreadable.append(Unread(os.fspath(error.filename), error.strerror or str(error)))

    visited: set[str] = set()
    for path in paths:
        files = [os.fspath(path)]
        if path.is_dir():
            files = []
            for folder, folders, names in os.walk(path, onerror=refused):
                # os.walk goes into what is left in this list, in its order
                folders[:] = sorted(name for name in folders if not _SET_ASIDE.fullmatch(name))
                if NAME in names:
                    files.append(f"{folder}{os.sep}{NAME}")
        if not files:
            unreadable.append(Unread(os.fspath(path), f"there is no {NAME} in it"))
        for file in files:
            absolute = os.path.normpath(Path(file).absolute())
            if absolute not in visited:
                visited.add(absolute)
                yield file
