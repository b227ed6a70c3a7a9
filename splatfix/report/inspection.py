"""Renders what ``splatfix inspect`` found: JSON with every fatbin, and a table for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from splatfix.checks.inspection import InspectedFile, Inspection
from splatfix.core.codec import to_json
from splatfix.core.step import Step
from splatfix.core.words import counted
from splatfix.facts.model.fact import group_fatbins
from splatfix.report.console import escape, prose, show_step


def document(result: Inspection) -> dict[str, Any]:
    """The content of the JSON document: per file its fatbins (each a list of entries) and per target a verdict."""
    return {
        "targets": list(result.targets),
        "files": [_file(item, result.targets) for item in result.files],
        "unreadable": [{"path": path, "reason": reason} for path, reason in result.unreadable],
        "skipped": [{"path": path, "reason": reason} for path, reason in result.skipped],
    }


def show(
    console: Console, result: Inspection, next_step: Step | None = None, *, verbose: bool = False
) -> None:
    """The verdict per target, then each file with what it carries. Files without GPU code only with ``verbose``."""
    _show_verdict(console, result)
    if next_step is not None:
        show_step(console, next_step, indent=2)
    quiet = 0
    for item in result.files:
        if not item.carries_gpu_code and not verbose and len(result.files) > 1:
            quiet += 1
        else:
            _show_file(console, item)
    for path, reason in result.unreadable:
        prose(console, "[bold red]✗[/] ", f"{escape(path)}: {escape(reason)}")
    if verbose:
        for path, reason in result.skipped:
            prose(console, "[magenta]?[/] ", f"{escape(path)}: {escape(reason)}")
    elif result.skipped:
        first = escape(result.skipped[0][0])
        prose(
            console,
            "[magenta]?[/] ",
            f"{counted(len(result.skipped), 'path')} could not be read, such as {first} (list all with -v)",
        )
    if quiet:
        console.print()
        prose(console, "", f"[dim]{counted(quiet, 'more file')} without GPU code (list all with -v)[/]")


def _show_verdict(console: Console, result: Inspection) -> None:
    if not result.files:
        console.print("[magenta]?[/] No native files found")
        return
    judged = [item for item in result.files if item.verdicts]
    total = counted(len(result.files), "file")
    if result.targets and not judged:
        prose(console, "[magenta]?[/] ", f"[bold]No GPU code in {total}, so there is nothing to check[/]")
    elif not judged:
        with_code = sum(item.carries_gpu_code for item in result.files)
        said = f"{with_code} of {total} with GPU code" if with_code else f"No GPU code in {total}"
        prose(console, "", f"[bold]{said}[/]")
    one, files = len(judged) == 1, counted(len(judged), "file")
    for at, target in enumerate(result.targets if judged else ()):
        bad = sum(not item.verdicts[at].usable for item in judged)
        which = "The file" if one else f"{bad} of {files} with GPU code"
        good = "The file" if one else f"All {files} with GPU code"
        said = f"{which} cannot run on {target}" if bad else f"{good} can run on {target}"
        prose(console, "[bold red]✗[/] " if bad else "[green]✓[/] ", f"[bold]{said}[/]")


def _show_file(console: Console, item: InspectedFile) -> None:
    console.print()
    path = f"[bold]{escape(item.binary.path)}[/]"
    prose(console, "", f"{path} [dim]({item.binary.format}, {item.binary.machine})[/]")
    if not item.carries_gpu_code:
        console.print("  no GPU code")
        return
    for group in group_fatbins(item.binary.fatbins):
        words = ", ".join(
            entry.arch
            if entry.kind.value == "sass"
            else f"{entry.kind.value.upper()} {_version(entry.ptx_version)} {entry.arch}"
            for entry in group.entries
        )
        prose(console, f"  {counted(group.count, 'fatbin')}: ", escape(words))
    for coverage in item.verdicts:
        mark = "[green]✓[/]" if coverage.usable else "[bold red]✗[/]"
        prose(console, f"  {mark} ", escape(coverage.reason))


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
