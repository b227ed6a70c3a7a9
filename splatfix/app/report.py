"""``splatfix report``: certificates that were written earlier, shown in any form, compared, and merged."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from splatfix.app.result import Result, show_message
from splatfix.app.stored import NAME, Stored, read_document, read_stored, read_without_facts
from splatfix.core.codec import to_json
from splatfix.core.errors import Exit, SplatfixError, usage_error
from splatfix.core.files import make_folder, set_aside, write_json, write_text
from splatfix.core.step import say
from splatfix.core.visible import visible
from splatfix.core.words import counted, few

PAGE, TEXT, DATA = "certificates.html", "certificates.md", "certificates.json"
_SET_ASIDE = re.compile(r"previous(-\d+)?")
_ENVELOPE = ("schema_version", "command", "splatfix_version", "exit_code", "error")


def show(path: Path, *, verbose: bool = False) -> Result:
    """A certificate in every form that ``certify`` gives, and as the page of the report folder (``html``).

    Raises:
        SplatfixError: exit code 2 when it is none, see :func:`splatfix.app.stored.read_stored`.
    """
    from splatfix.app.certify import next_step
    from splatfix.report import certificate
    from splatfix.report.field_report import markdown
    from splatfix.report.forms import FORMS

    stored = read_stored(path)
    found = stored.certificate
    content = {name: value for name, value in stored.document.items() if name not in _ENVELOPE}
    by = stored.document["splatfix_version"]
    return Result(
        "report show",
        lambda: {"file": str(stored.path), "issued_by": by, **content},
        lambda console: certificate.show(
            console,
            found,
            stored.folder / "certificate.html",
            next_step(found, stored.python),
            stored.options,
            verbose=verbose,
        ),
        forms={
            "markdown": lambda: markdown(found, stored.options),
            "html": lambda: _page(stored),
            **{name: partial(form, found) for name, form in FORMS.items()},
        },
    )


def diff(a: Path, b: Path) -> Result:
    """What differs between two certificates, and the first cause that differs; exit code 1 where B is worse, 3 where
    they cannot be compared.

    Raises:
        SplatfixError: exit code 2 when one is none, see :func:`splatfix.app.stored.read_document`.
    """
    from splatfix.report import difference

    (file_a, document_a), (file_b, document_b) = read_document(a), read_document(b)
    found = difference.compare(str(file_a), document_a, str(file_b), document_b)
    return Result(
        "report diff",
        lambda: to_json(found),
        lambda console: difference.show(console, found),
        Exit.FAILURE if found.worse else Exit.OK if found.comparable else Exit.UNDETERMINED,
        forms={"markdown": lambda: difference.markdown(found)},
    )


def _page(stored: Stored) -> str:
    """The page, made from the report folder; what is gone from there is said on standard error."""
    from splatfix.context import make_context
    from splatfix.context.matrix import binary_matrix
    from splatfix.report.html import certificate_page

    if missing := stored.missing:
        files = few([visible(name) for name in missing])
        show_message(
            f"Not in the page, because not in {stored.folder}: {counted(len(missing), 'file')} ({files})."
        )
    matrix = binary_matrix(make_context(stored.facts))
    return certificate_page(stored.certificate, stored.facts, stored.folder, stored.options, matrix)


def merge(paths: Sequence[Path], out: Path, refused: Mapping[str, SplatfixError] | None = None) -> Result:
    """Write the matrix of many certificates, and their failures by cause, as HTML, Markdown and JSON into ``out``.

    What lies there and cannot be read is listed with its reason. Exit code 3 where there is nothing to list; nothing is
    written then.

    Args:
        refused: container lanes that gave no certificate, with what was said.

    Raises:
        SplatfixError: ``cannot-read`` (exit code 2) for a path that does not exist; ``cannot-write``.
    """
    from splatfix.report import merged
    from splatfix.report.documents import envelope
    from splatfix.report.html.matrix import matrix_page
    from splatfix.report.merging import Merger

    for path in paths:
        _require(path)
    merger, unreadable = Merger(), list[tuple[str, str]]()
    lanes = [(name, problem.what) for name, problem in (refused or {}).items()]
    gc.disable()  # documents are trees, freed without it; looking through them for circles takes a tenth of the time
    try:
        for file in _files(paths, unreadable):
            try:
                merger.add(file, _link(file, out), read_without_facts(file))
            except SplatfixError as problem:
                unreadable.append((file, problem.what))
    finally:
        gc.enable()
    found = merger.merged()
    content: dict[str, Any] = {
        **to_json(found),
        "unreadable": [{"path": path, "reason": reason} for path, reason in unreadable],
        "refused": [{"lane": name, "error": problem.to_json()} for name, problem in (refused or {}).items()],
        "files": [],
    }
    error = None
    if len(merger) or lanes:
        make_folder(out)
        set_aside(out, (PAGE, TEXT, DATA))
        content["files"] = [str(out / name) for name in (PAGE, TEXT, DATA)]
        write_text(out / PAGE, matrix_page(found, unreadable, DATA, lanes))
        write_text(out / TEXT, merged.markdown(found, unreadable, lanes))
        write_json(out / DATA, envelope("report merge", Exit.OK, content))
    else:
        error = SplatfixError(
            "nothing-to-merge",
            "No certificate could be read, and nothing was written.",
            todo=(
                say("Name files that splatfix certify wrote (certificate.json), or folders with such files."),
            ),
            exit_code=Exit.UNDETERMINED,
        )
    return Result(
        "report merge",
        lambda: content,
        lambda console: merged.show(
            console, found, unreadable, str(out / PAGE) if content["files"] else "", lanes
        ),
        error.exit_code if error else Exit.OK,
        error,
    )


def _require(path: Path) -> None:
    """What was named exists.

    Raises:
        SplatfixError: ``cannot-read`` (exit code 2).
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise usage_error(
            "cannot-read",
            f"{path}: there is no such file or folder; nothing was merged.",
            say("Name files that splatfix certify wrote (certificate.json), or folders with such files."),
        ) from error
    except OSError:
        return  # it may be there: whoever reads it lists it with the reason


def _files(paths: Iterable[Path], unreadable: list[tuple[str, str]]) -> Iterator[str]:
    """Each file once: those named, and every certificate.json below the folders named. Links to folders are not followed,
    and what ``certify`` set aside is left out."""
    seen: set[str] = set()
    for path in paths:
        found = _below(os.fspath(path), unreadable) if path.is_dir() else [os.fspath(path)]
        for file in found:
            if (whole := os.path.normpath(Path(file).absolute())) not in seen:
                seen.add(whole)
                yield file


def _below(folder: str, unreadable: list[tuple[str, str]]) -> Iterator[str]:
    def refused(error: OSError) -> None:
        unreadable.append((os.fspath(error.filename or folder), error.strerror or str(error)))

    none = True
    for place, folders, files in os.walk(folder, onerror=refused):
        folders[:] = sorted(name for name in folders if not _SET_ASIDE.fullmatch(name))
        if NAME in files:
            none = False
            yield f"{place}{os.sep}{NAME}"
    if none:
        unreadable.append((folder, f"there is no {NAME} in it"))


def _link(file: str, out: Path) -> str:
    """A relative URL from the folder ``out`` to the certificate's page, or to the file where there is no page."""
    page = f"{file.removesuffix('.json')}.html"
    target = page if Path(page).is_file() else file
    try:
        relative = os.path.relpath(target, out)
    except ValueError:  # on another drive
        return Path(target).absolute().as_uri()
    return quote(relative.replace(os.sep, "/"), errors="surrogateescape")
