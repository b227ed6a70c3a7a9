"""Fills in the templates of the folder beside this file (Jinja2): pages and Markdown.

Whatever is not markup of a template or of this file becomes text there, escaped for the form and without the home folder,
so that no name of a stranger's is markup anywhere, no page that is passed on tells a user's name, and no template has to ask
for it.
"""

import base64
import hashlib
import html
import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from splatfix import __version__
from splatfix.core.visible import visible
from splatfix.core.words import counted
from splatfix.report.console import shorten_home
from splatfix.report.marks import Badge, Bar


def _markup(text: str) -> Markup:
    """Text that this file has escaped, or wrote itself."""
    # Bandit asks for care wherever Markup is made: that is here alone, and what a stranger named was escaped before.
    return Markup(text)  # nosec B704


def html_text(value: object) -> Markup:
    """Return anything as content of an element or of an attribute; signs that are not printable are spelled out."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, Badge):
        sign = f'<span aria-hidden="true">{value.mark.sign}</span>'
        return _markup(f'<span class="badge {value.mark.css}">{sign} {html_text(value.text)}</span>')
    if isinstance(value, Bar):
        return _markup(f'<meter value="{value.share:.3f}" aria-label="share"></meter>')
    return _markup(html.escape(visible(shorten_home(str(value)), keep="\n")))


def markdown_text(value: object) -> Markup:
    """Return anything for a line or a table's cell of GitHub's Markdown: it shows as it is, whatever it holds."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, Badge):
        return markdown_text(f"{value.mark.sign} {value.text}")
    line = visible(shorten_home(str(value)), keep="\n").replace("\n", " ")
    # a backslash needs one more only where it would escape the next sign, as CommonMark has it
    return _markup(re.sub(r"\\(?=[!-/:-@\[-`{-~]|$)|[`*<\[\]|~]", r"\\\g<0>", line))


@cache
def _environment(form: str) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # what finalize returns is marked as safe; this is for what would pass it by
        autoescape=True,
        finalize={".html": html_text, ".md": markdown_text}[form],
    )
    environment.filters.update(
        # after four blanks no sign of Markdown needs an escape
        literally=lambda line: _markup(visible(shorten_home(line))),
        # nothing in the target of a link ends it or is a scheme
        url=lambda path: _markup(quote(path, errors="surrogateescape")),
    )
    environment.globals.update(badge=Badge, counted=counted)
    return environment


def fill_in(template: str, **values: Any) -> str:
    """Return the template's text, without empty lines at its end; what it is escaped for, the ending of its name says."""
    text = _environment(Path(template).suffix).get_template(template).render(values)
    return text.rstrip("\n") + "\n"


def part(template: str, **values: Any) -> Markup:
    """Return a template filled in, to stand in another."""
    return _markup(fill_in(template, **values))


def page(template: str, **values: Any) -> str:
    """Return a template filled in as one HTML file, which needs no network and no library, and is readable on a phone, on paper
    and by a screen reader."""
    style, script = (
        _markup(Path(__file__).with_name("html").joinpath(name).read_text("utf-8"))
        for name in ("style.css", "viewer.js")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return fill_in(template, version=__version__, style=style, script=script, script_digest=digest, **values)
