"""Renders what ``splatfix inspect`` found: JSON with every fatbin, and a table for people."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Console
from rich.markup import escape

from splatfix.checks.inspection import InspectedFile, Inspection
from splatfix.core.codec import to_json
from splatfix.facts.model import group_fatbins
from splatfix.report.console import prose


def document(result: Inspection) -> dict[str, Any]:
    """The content of the JSON document: per file its fatbins (each a list of entries) and per target a verdict."""
    return {
        "targets": list(result.targets),
        "files": [_file(item, result.targets) for item in result.files],
        "unreadable": [{"path": path, "reason": reason} for path, reason in result.unreadable],
        "skipped": [{"path": path, "reason": reason} for path, reason in result.skipped],
    }


def show(console: Console, result: Inspection, *, verbose: bool = False) -> None:
    """Per file: what it carries and whether each target can run it. Files without GPU code only with ``verbose``."""
    silent = 0
    for item in result.files:
        if not item.carries_gpu_code and not verbose and len(result.files) > 1:
            silent += 1
            continue
        console.print(
            f"[bold]{escape(item.binary.path)}[/] [dim]{item.binary.format} {item.binary.machine}[/]",
            soft_wrap=True,
        )
        if not item.carries_gpu_code:
            console.print("  no GPU code")
            continue
        for group in group_fatbins(item.binary.fatbins):
            words = ", ".join(
                entry.arch
                if entry.kind.value == "sass"
                else f"{entry.kind.value.upper()} {_version(entry.ptx_version)} {entry.arch}"
                for entry in group.entries
            )
            plural = "fatbin" if group.count == 1 else "fatbins"
            prose(console, f"  {group.count} {plural}: ", escape(words))
        for coverage in item.verdicts:
            mark = "[green]✓[/]" if coverage.usable else "[bold red]✗[/]"
            prose(console, f"  {mark} ", escape(coverage.reason))
    for path, reason in result.unreadable:
        prose(console, "[bold red]✗[/] ", f"{escape(path)}: {escape(reason)}")
    if verbose:
        for path, reason in result.skipped:
            prose(console, "[magenta]?[/] ", f"{escape(path)}: {escape(reason)}")
    elif result.skipped:
        first = escape(result.skipped[0][0])
        said = f"{len(result.skipped)} place(s) could not be read, such as {first} (--verbose lists them)"
        prose(console, "", said)
    if silent:
        prose(console, "", f"[dim]{silent} more file(s) without GPU code (--verbose lists them)[/]")
    if not result.files and not result.unreadable:
        console.print("No native file there.")
    if result.targets:
        tally = Counter(coverage.usable for item in result.files for coverage in item.verdicts)
        console.print(f"{tally[True]} usable, {tally[False]} not usable")


def _file(item: InspectedFile, targets: tuple[str, ...]) -> dict[str, Any]:
    binary = item.binary
    verdicts: dict[str, dict[str, Any]] = {
        coverage.target: {
            "usable": coverage.usable,
            "via": coverage.via,
            "reason": coverage.reason,
            "fatbins_without_code": list(coverage.missing),
        }
        for coverage in item.verdicts
    }
    if not item.verdicts:
        nothing: dict[str, Any] = {
            "usable": None,
            "via": "none",
            "reason": "it carries no GPU code",
            "fatbins_without_code": [],
        }
        verdicts = {name: dict(nothing) for name in targets}
    return {
        "path": binary.path,
        "format": binary.format,
        "machine": binary.machine,
        "size": binary.size,
        "needed": list(binary.needed),
        "fatbins": [
            [
                {
                    "kind": entry.kind.value,
                    "arch": entry.arch,
                    "ptx_version": _version(entry.ptx_version),
                    "compressed": entry.compressed,
                    "debug": entry.debug,
                }
                for entry in fatbin.entries
            ]
            for fatbin in binary.fatbins
        ],
        "sections": [to_json(fatbin.section) for fatbin in binary.fatbins],
        "verdicts": verdicts,
    }


def _version(pair: tuple[int, int] | None) -> str | None:
    return f"{pair[0]}.{pair[1]}" if pair else None
