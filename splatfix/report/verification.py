"""The check of a signed report folder, as JSON and for the terminal: what is vouched for, and what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from splatfix.attest.model import Verification
from splatfix.core.codec import to_json
from splatfix.core.words import counted
from splatfix.report.console import escape, paragraph, prose

NOT_VOUCHED_FOR = (
    "that the key belongs to whom you think: compare its id with one that its owner gave you",
    "that the machine, or who ran it, was honest: whoever holds the key can sign a changed report",
    "that the binaries and sources on any machine today are the ones that ran: --python compares an environment",
    "when it was signed: the times are those of that machine's clock",
)


def vouched_for(found: Verification) -> tuple[str, ...]:
    """What follows from a signature that holds; nothing where it does not."""
    if not found.holds or found.statement is None:
        return ()
    said = found.statement
    ran = {str(item["sha256"]) for item in said["ran"] if item["sha256"]}
    level = f" at run level {said['level']}" if said["level"] is not None else ""
    certain = (
        f"{counted(len(found.files), 'file')}: byte for byte what the holder of the key signed, none missing or added",
        f"the statement that the holder signed: {said['verdict']}{level}, issued {said['issued']} by splatfix "
        f"{said['splatfix']['version']}",
    )
    if not ran:
        return certain
    return (
        *certain,
        f"that splatfix recorded the digests of {counted(len(ran), 'file')} that implement what was called, and of "
        f"{counted(len(said['sources']), 'source file')} of its trainer",
    )


def document(found: Verification, folder: Path) -> dict[str, Any]:
    """The content of ``report verify``'s JSON document."""
    return {
        "folder": str(folder),
        "holds": found.holds,
        **to_json(found),
        "vouched_for": list(vouched_for(found)),
        "not_vouched_for": list(NOT_VOUCHED_FOR),
    }


def show(console: Console, found: Verification, folder: Path) -> None:
    """The outcome, every file that is not as it was signed, and what a signature means."""
    where = escape(str(folder))
    if found.holds:
        said = f"[green]✓[/] [bold]As it was signed: {where}[/]"
    elif found.statement is None:
        said = f"[bold red]✗[/] [bold]No signature of this key holds: {where}[/]"
    else:
        said = f"[bold red]✗[/] [bold]Not as it was signed: {counted(len(found.mismatches), 'file')} in {where}[/]"
    paragraph(console, said, first=0, then=2)
    prose(console, "  Key: ", found.key)
    for item in found.mismatches:
        prose(console, "  [bold red]✗[/] ", f"{escape(item.file)}: {escape(item.problem)}")
    if found.not_looked_at:
        prose(console, "  Not looked at, earlier reports: ", escape(", ".join(found.not_looked_at)))
    if found.holds:
        console.print("\n[bold]Vouched for[/]")
        for text in vouched_for(found):
            prose(console, "  [green]✓[/] ", escape(text))
        if found.installed:
            console.print("\n[bold]What ran, in that environment now[/]")
        for ran in found.installed:
            mark = "[bold red]✗[/]" if ran.problem else "[green]✓[/]"
            prose(console, f"  {mark} ", f"{escape(ran.file)}: {escape(ran.problem or 'the same')}")
        console.print("\n[bold]Not vouched for[/]")
        for text in NOT_VOUCHED_FOR:
            prose(console, "  [dim]–[/] ", escape(text))


def show_signed(console: Console, signature: Path, key: str) -> None:
    """Where the signature is, and the id of its key."""
    prose(console, "  Signed: ", escape(f"{signature}, with the key {key}"))
