"""Every document in its forms: as JSON in one envelope, and as text, Markdown, HTML and GitHub annotations by one function each.

A form has nothing but the document to go by, so that no two forms can tell different things.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from splatfix import __version__
from splatfix.core.errors import SplatfixError

SCHEMA_VERSION = 2
ENVELOPE = ("schema_version", "command", "splatfix_version", "exit_code", "error")
"""What every document begins with."""

FORMS: dict[type, dict[str, Callable[..., Any]]] = {}
"""By the class of a document and the name of a form, the function that writes it. Each stands below its document's class."""
COMMANDS: dict[str, type] = {}
"""The document of each command, where its fields are those of the class."""

Writer = TypeVar("Writer", bound=Callable[..., Any])


def writes(document: type, form: str = "text", *, command: str = "") -> Callable[[Writer], Writer]:
    """Enter a function into :data:`FORMS`, and the document of a command into :data:`COMMANDS`.

    ``text`` is written on a console: ``show(console, document)``, with ``verbose`` where the command has ``-v``. Every other form
    (``markdown``, ``html``, ``github``) is a function of the document that returns it.
    """

    def enter(writer: Writer) -> Writer:
        FORMS.setdefault(document, {})[form] = writer
        if command:
            COMMANDS[command] = document
        return writer

    return enter


def writer_of(document: object, form: str) -> Callable[..., Any] | None:
    """Return the function that writes a document in a form; None where it has no such form."""
    forms = (FORMS.get(kind, {}) for kind in type(document).__mro__)
    return next((writers[form] for writers in forms if form in writers), None)


def envelope(
    command: str, exit_code: int, content: Mapping[str, Any], error: SplatfixError | None = None
) -> dict[str, Any]:
    """Return a whole JSON document: what every one starts with, then the command's own content."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": command,
        "splatfix_version": __version__,
        "exit_code": int(exit_code),
        "error": error.to_json() if error else None,
        **content,
    }
