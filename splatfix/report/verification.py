"""The check of a signed report folder, as JSON and for the terminal: what is vouched for, and what is not."""

from pathlib import Path
from typing import Any

from rich.console import Console

from splatfix.attest.model import Identity, Signed, Verification
from splatfix.core.codec import to_json
from splatfix.core.words import counted
from splatfix.report.console import escape, marked, paragraph, prose, section
from splatfix.report.marks import Badge, Mark

UNSIGNED = Badge(Mark.NONE, "unsigned")
_SHORT = 16
"""Digits of a key's id where many stand below each other."""
# A signature is easily taken for more than it is. These stand in every verification, good or bad.
NOT_VOUCHED_FOR = (
    "that the key belongs to whom you think: compare its id with one that its owner gave you",
    "that the machine, or who ran it, was honest: whoever holds the key can sign a changed report",
    "that the binaries and sources on any machine today are the ones that ran: --python compares an environment",
    "when it was signed: the times are those of that machine's clock",
)


def signature_badge(identity: Identity, *, short: bool = False) -> Badge:
    """Whether a certificate is signed, and by whom; in a table by the beginning of the key's id."""
    key = identity.key
    if short:
        key = key[:_SHORT]
    if identity.signature is Signed.SIGNED:
        return Badge(Mark.GOOD, f"signed by {key}")
    if identity.signature is Signed.NOT_CHECKED:
        return Badge(Mark.UNSURE, f"signature not checked, it names {key or 'no key'}")
    if identity.signature is Signed.BAD:
        return Badge(Mark.BAD, f"bad signature: {identity.problem}")
    return UNSIGNED


def show_signature(console: Console, identity: Identity, label: str = "  ") -> None:
    """The state of a signature, behind its mark."""
    badge = signature_badge(identity)
    prose(console, f"{label}{badge.mark.markup} ", escape(badge.text))


def vouched_for(verification: Verification) -> tuple[str, ...]:
    """What follows from a signature that holds; nothing where it does not."""
    statement = verification.statement
    if not verification.holds or statement is None:
        return ()
    files = counted(len(verification.files), "file")
    verdict = str(statement["verdict"])
    if statement["level"] is not None:
        verdict += f" at run level {statement['level']}"
    by = f"splatfix {statement['splatfix']['version']}"
    claims = [
        f"{files}: byte for byte what the holder of the key signed, none missing or added",
        f"the statement that the holder signed: {verdict}, issued {statement['issued']} by {by}",
    ]
    digests = {str(item["sha256"]) for item in statement["ran"] if item["sha256"]}
    if digests:
        implementing = counted(len(digests), "file")
        sources = counted(len(statement["sources"]), "source file")
        claims.append(
            f"that splatfix recorded the digests of {implementing} that implement what was called, and of "
            f"{sources} of its trainer"
        )
    return tuple(claims)


def document(verification: Verification, folder: Path) -> dict[str, Any]:
    """The content of ``report verify``'s JSON document."""
    return {
        "folder": str(folder),
        "holds": verification.holds,
        **to_json(verification),
        "vouched_for": list(vouched_for(verification)),
        "not_vouched_for": list(NOT_VOUCHED_FOR),
    }


def show(console: Console, verification: Verification, folder: Path) -> None:
    """The outcome, every file that is not as it was signed, and what a signature means."""
    _show_headline(console, verification, escape(str(folder)))
    prose(console, "  Key: ", verification.key)
    for mismatch in verification.mismatches:
        marked(console, Mark.BAD, f"{escape(mismatch.file)}: {escape(mismatch.problem)}")
    if verification.not_looked_at:
        prose(console, "  Not looked at, earlier reports: ", escape(", ".join(verification.not_looked_at)))
    if not verification.holds:
        return
    section(console, "Vouched for")
    for text in vouched_for(verification):
        marked(console, Mark.GOOD, escape(text))
    if verification.installed:
        section(console, "What ran, in that environment now")
    for item in verification.installed:
        mark = Mark.BAD if item.problem else Mark.GOOD
        marked(console, mark, f"{escape(item.file)}: {escape(item.problem or 'the same')}")
    section(console, "Not vouched for")
    for text in NOT_VOUCHED_FOR:
        marked(console, Mark.NONE, escape(text))


def _show_headline(console: Console, verification: Verification, folder: str) -> None:
    mark = Mark.BAD
    if verification.holds:
        mark, text = Mark.GOOD, f"As it was signed: {folder}"
    elif verification.statement is None:
        text = f"No signature of this key holds: {folder}"
    else:
        text = f"Not as it was signed: {counted(len(verification.mismatches), 'file')} in {folder}"
    paragraph(console, f"{mark.markup} [bold]{text}[/]", first=0, then=2)


def show_signed(console: Console, signature: Path, key: str) -> None:
    """Where the signature is, and the id of its key."""
    prose(console, "  Signed: ", escape(f"{signature}, with the key {key}"))
