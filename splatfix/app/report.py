"""``splatfix report``: certificates that were written earlier, shown in any form and compared."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from splatfix.app.result import Result, show_message
from splatfix.app.stored import Stored, read_document, read_stored
from splatfix.core.codec import to_json
from splatfix.core.errors import Exit
from splatfix.core.visible import visible
from splatfix.core.words import counted, few

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
    """What differs between two certificates, and the first cause that differs; exit code 1 where B is worse.

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
        Exit.FAILURE if found.worse else Exit.OK,
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
