"""``splatfix report``: certificates that were written earlier, shown in any form, compared, and merged."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from splatfix.app.certify import forms_of, next_step
from splatfix.app.result import Result, show_message
from splatfix.app.stored import NAME, Stored, read_stored
from splatfix.certify import Certificate
from splatfix.certify.baseline import compare, require_alike
from splatfix.certify.levels import reproduces
from splatfix.context import make_context
from splatfix.context.matrix import binary_matrix
from splatfix.core.codec import to_json
from splatfix.core.errors import Exit, Rejected, SplatfixError, require
from splatfix.core.files import make_folder, set_aside, write_json, write_text
from splatfix.core.visible import visible
from splatfix.core.words import counted, few
from splatfix.report import certificate, comparison, merged, merging
from splatfix.report.documents import ENVELOPE, envelope
from splatfix.report.html import certificate_page, matrix_page
from splatfix.report.templates import fill_in

PAGE, TEXT, ROWS, DATA = "certificates.html", "certificates.md", "certificates.csv", "certificates.json"
_DIFFERENCE = {True: Exit.OK, False: Exit.FAILURE, None: Exit.UNDETERMINED}
_SET_ASIDE = re.compile(r"previous(-\d+)?")


class Shown(Result, frozen=True, kw_only=True):
    """A certificate that was read."""

    certificate: Certificate


def show(path: Path, *, verbose: bool = False) -> Shown:
    """A certificate in every form that ``certify`` gives, and as the page of the report folder (``html``).

    Raises:
        SplatfixError: exit code 2 when it is none, see :func:`splatfix.app.stored.read_stored`.
    """
    stored = require(read_stored(path))
    subject, sha256 = stored.certificate, stored.sha256
    content = {name: value for name, value in stored.document.items() if name not in ENVELOPE}
    issued_by = stored.document["splatfix_version"]
    page = stored.path.with_suffix(".html")
    return Shown(
        command="report show",
        certificate=subject,
        data=lambda: {"file": str(stored.path), "issued_by": issued_by, "sha256": sha256, **content},
        text=lambda console: certificate.show(
            console,
            subject,
            page if page.is_file() else None,
            next_step(subject, stored.python),
            stored.options,
            verbose=verbose,
        ),
        forms={
            **forms_of(subject, stored.options, sha256),
            "html": lambda: _page(stored),
        },
    )


def diff(a: Path, b: Path) -> Result:
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
    assert compared is not None  # there is a baseline
    rung = reproduces(certificate_b.scenes, compared)
    difference = comparison.Difference(str(baseline.path), str(judged.path), rung, compared)
    return Result(
        "report diff",
        lambda: to_json(difference),
        lambda console: comparison.show(console, difference),
        _DIFFERENCE[rung.reached],
        forms={
            "markdown": lambda: fill_in(
                "difference.md",
                difference=difference,
                heading=comparison.REPRODUCES[rung.reached].text,
                baseline=comparison.baseline_of(compared),
            )
        },
    )


def _page(stored: Stored) -> str:
    """Return the page, made from the report folder; what is gone from there is said on standard error."""
    folder = stored.path.parent
    named = [name for scene in stored.certificate.scenes for name in (*scene.images, scene.log) if name]
    if missing := [name for name in named if not (folder / name).is_file()]:
        files = f"{counted(len(missing), 'file')} ({few([visible(name) for name in missing])})"
        show_message(f"Not in the page, because not in {folder}: {files}.")
    facts = stored.facts
    matrix = binary_matrix(make_context(facts))
    return certificate_page(stored.certificate, facts, folder, stored.options, matrix, stored.sha256)


def merge(paths: Sequence[Path], out: Path, refused: Mapping[str, SplatfixError] | None = None) -> Result:
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
    unreadable: list[tuple[str, str]] = []
    summaries = []
    for file in _files(paths, unreadable):
        stored = read_stored(Path(file))
        if isinstance(stored, Rejected):
            # the file is named beside it
            what = re.sub(rf"(?<!\S){re.escape(file)}(?=[\s:])", "it", stored.error().what)
            unreadable.append((file, what))
            continue
        target = f"{file.removesuffix('.json')}.html"
        if not Path(target).is_file():
            target = file
        try:
            link = quote(os.path.relpath(target, out).replace(os.sep, "/"), errors="surrogateescape")
        except ValueError:  # on another drive
            link = Path(target).absolute().as_uri()
        summaries.append(merging.summary_of(file, link, stored.certificate, stored.options, stored.sha256))
    matrix = merging.merge(summaries)
    refusals = refused or {}
    lanes = [(name, problem.what) for name, problem in refusals.items()]
    content: dict[str, Any] = {
        **to_json(matrix),
        "unreadable": [{"path": path, "reason": reason} for path, reason in unreadable],
        "refused": [{"lane": name, "error": problem.to_json()} for name, problem in refusals.items()],
        "files": [],
    }
    error, exit_code, page = None, Exit.OK, ""
    if summaries or lanes:
        page = str(out / PAGE)
        names = (PAGE, TEXT, ROWS, DATA)
        content["files"] = [str(out / name) for name in names]
        make_folder(out)
        set_aside(out, names)
        write_text(out / PAGE, matrix_page(matrix, unreadable, DATA, lanes))
        write_text(out / TEXT, merged.markdown(matrix, unreadable, lanes))
        write_text(out / ROWS, merged.comma_separated(matrix, unreadable, lanes))
        write_json(out / DATA, envelope("report merge", Exit.OK, content))
    else:
        error = SplatfixError.of("app.nothing-to-merge")
        exit_code = error.exit_code
    return Result(
        "report merge",
        lambda: content,
        lambda console: merged.show(console, matrix, unreadable, page, lanes),
        exit_code,
        error,
    )


def _files(paths: Iterable[Path], unreadable: list[tuple[str, str]]) -> Iterator[str]:
    """Yield each file once: those named, and every certificate.json below the folders named. Links to folders are not
    followed, and what ``certify`` set aside is left out. Folders that cannot be listed, or have none, are unreadable."""

    def refused(error: OSError) -> None:
        unreadable.append((os.fspath(error.filename), error.strerror or str(error)))

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
            unreadable.append((os.fspath(path), f"there is no {NAME} in it"))
        for file in files:
            absolute = os.path.normpath(Path(file).absolute())
            if absolute not in visited:
                visited.add(absolute)
                yield file
