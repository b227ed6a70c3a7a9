"""Renders what ``splatfix inspect`` found: JSON with every fatbin, and a table for people."""

from typing import Any

from rich.console import Console

from splatfix.context.inspection import InspectedFile, Inspection
from splatfix.core.codec import to_json
from splatfix.core.step import Step
from splatfix.core.words import counted
from splatfix.model import group_fatbins
from splatfix.report.console import escape, marked, prose, show_step
from splatfix.report.marks import Mark


def document(result: Inspection) -> dict[str, Any]:
    """The content of the JSON document: per file its fatbins (each a list of entries) and per target a verdict."""
    return {
        "targets": list(result.targets),
        "files": [_file_json(item, result.targets) for item in result.files],
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
    hidden = 0
    for item in result.files:
        # a lone file was named by the user, who wants an answer about it whatever it carries
        if item.carries_gpu_code or verbose or len(result.files) == 1:
            _show_file(console, item)
        else:
            hidden += 1
    for path, reason in result.unreadable:
        marked(console, Mark.BAD, f"{escape(path)}: {escape(reason)}", indent=0)
    if verbose:
        for path, reason in result.skipped:
            marked(console, Mark.UNKNOWN, f"{escape(path)}: {escape(reason)}", indent=0)
    elif result.skipped:
        text = f"{counted(len(result.skipped), 'path')} could not be read, such as {escape(result.skipped[0][0])}"
        marked(console, Mark.UNKNOWN, f"{text} (list all with -v)", indent=0)
    if hidden:
        console.print()
        prose(console, "", f"[dim]{counted(hidden, 'more file')} without GPU code (list all with -v)[/]")


def _show_verdict(console: Console, result: Inspection) -> None:
    if not result.files:
        console.print(f"{Mark.UNKNOWN.markup} No native files found")
        return
    total = counted(len(result.files), "file")
    with_verdict = [item for item in result.files if item.verdicts]
    if not with_verdict:
        if result.targets:
            text = f"[bold]No GPU code in {total}, so there is nothing to check[/]"
            marked(console, Mark.UNKNOWN, text, indent=0)
            return
        with_code = sum(item.carries_gpu_code for item in result.files)
        text = f"No GPU code in {total}"
        if with_code:
            text = f"{with_code} of {total} with GPU code"
        prose(console, "", f"[bold]{text}[/]")
        return

    files = counted(len(with_verdict), "file")
    for number, target in enumerate(result.targets):
        failed = sum(not item.verdicts[number].usable for item in with_verdict)
        mark, ability, subject = Mark.GOOD, "can", f"All {files} with GPU code"
        if failed:
            mark, ability, subject = Mark.BAD, "cannot", f"{failed} of {files} with GPU code"
        if len(with_verdict) == 1:
            subject = "The file"
        marked(console, mark, f"[bold]{subject} {ability} run on {target}[/]", indent=0)


def _show_file(console: Console, item: InspectedFile) -> None:
    console.print()
    binary = item.binary
    prose(console, "", f"[bold]{escape(binary.path)}[/] [dim]({binary.format}, {binary.machine})[/]")
    if not item.carries_gpu_code:
        console.print("  no GPU code")
        return
    for group in group_fatbins(binary.fatbins):
        parts = []
        for entry in group.entries:
            if entry.kind.value == "sass":
                parts.append(entry.arch)
            else:  # of PTX the version matters too: a driver compiles only what it knows
                parts.append(f"{entry.kind.value.upper()} {_version(entry.ptx_version)} {entry.arch}")
        prose(console, f"  {counted(group.count, 'fatbin')}: ", escape(", ".join(parts)))
    for coverage in item.verdicts:
        marked(console, {True: Mark.GOOD, False: Mark.BAD}[coverage.usable], escape(coverage.reason))


# Null and not false: nothing in such a file contradicts the target, and nothing shows that it runs there.
_NO_GPU_CODE: dict[str, Any] = {
    "usable": None,
    "via": "none",
    "reason": "it carries no GPU code",
    "fatbins_without_code": [],
}


def _file_json(item: InspectedFile, targets: tuple[str, ...]) -> dict[str, Any]:
    binary = item.binary
    fatbins = []
    for fatbin in binary.fatbins:
        entries = []
        for entry in fatbin.entries:
            row = {**to_json(entry), "ptx_version": _version(entry.ptx_version)}
            del row["offset"]
            entries.append(row)
        fatbins.append(entries)
    # by target, so that a script asks for the one it deploys to
    verdicts = {target: dict(_NO_GPU_CODE) for target in targets}
    for coverage in item.verdicts:
        verdicts[coverage.target] = {
            "usable": coverage.usable,
            "via": coverage.via,
            "reason": coverage.reason,
            "fatbins_without_code": list(coverage.missing),
        }
    return {
        "path": binary.path,
        "format": binary.format,
        "machine": binary.machine,
        "size": binary.size,
        "needed": list(binary.needed),
        "fatbins": fatbins,
        "sections": [to_json(fatbin.section) for fatbin in binary.fatbins],
        "verdicts": verdicts,
    }


def _version(pair: tuple[int, int] | None) -> str | None:
    return f"{pair[0]}.{pair[1]}" if pair else None
