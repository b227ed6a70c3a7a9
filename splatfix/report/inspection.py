"""What ``splatfix inspect`` found: JSON with every fatbin, and a table for people."""

from typing import Any

from msgspec import Struct
from rich.console import Console

from splatfix.context.inspection import InspectedFile, Inspection
from splatfix.core.codec import to_json
from splatfix.core.step import Step
from splatfix.model import group_fatbins
from splatfix.report.console import escape, marked, prose, show_todo
from splatfix.report.forms import writes
from splatfix.report.marks import Mark, mark_of

# Null and not false: nothing in such a file contradicts the target, and nothing shows that it runs there.
_NO_GPU_CODE: dict[str, Any] = {
    "usable": None,
    "via": "none",
    "reason": "it carries no GPU code",
    "fatbins_without_code": [],
}


class InspectionDocument(Struct, frozen=True):
    """Which named files run on which named GPUs."""

    inspection: Inspection
    next_steps: tuple[Step, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the content of the JSON document: per file its fatbins (each a list of entries) and per target a verdict."""
        found = self.inspection
        return {
            "targets": list(found.targets),
            "files": [_file_json(item, found.targets) for item in found.files],
            "unreadable": [{"path": path, "reason": reason} for path, reason in found.unreadable],
            "skipped": [{"path": path, "reason": reason} for path, reason in found.skipped],
            "next_steps": to_json(self.next_steps),
        }


@writes(InspectionDocument)
def show(console: Console, document: InspectionDocument, *, verbose: bool = False) -> None:
    """Print the verdict per target, then each file with what it carries; with ``verbose`` also those without GPU code."""
    found = document.inspection
    with_code = [item for item in found.files if item.carries_gpu_code]
    total = f"{len(with_code)} of {len(found.files)} with GPU code"
    if not with_code:
        marked(console, Mark.UNKNOWN, f"[bold]Native files: {total}[/]", indent=0)
    elif not found.targets:
        prose(console, "", f"[bold]Native files: {total}[/]")
    for number, target in enumerate(found.targets):
        usable = [item.verdicts[number].usable for item in found.files if item.verdicts]
        if usable:
            text = f"[bold]{target}: {sum(usable)} of {len(usable)} with GPU code can run there[/]"
            marked(console, mark_of(all(usable)), text, indent=0)
    show_todo(console, document.next_steps, indent=2)
    # a lone file was named by the user, who wants an answer about it whatever it carries
    everything = verbose or len(found.files) == 1
    for item in found.files if everything else with_code:
        console.print()
        binary = item.binary
        prose(console, "", f"[bold]{escape(binary.path)}[/] [dim]({binary.format}, {binary.machine})[/]")
        if not item.carries_gpu_code:
            console.print("  no GPU code")
        for group in group_fatbins(binary.fatbins):
            parts = []
            for entry in group.entries:
                if entry.kind.value == "sass":
                    parts.append(entry.arch)
                else:  # of PTX the version matters too: a driver compiles only what it knows
                    parts.append(f"{entry.kind.value.upper()} {_version(entry.ptx_version)} {entry.arch}")
            prose(console, f"  fatbins {group.count}: ", escape(", ".join(parts)))
        for coverage in item.verdicts:
            marked(console, mark_of(coverage.usable), escape(coverage.reason))
    for path, reason in found.unreadable:
        marked(console, Mark.BAD, f"{escape(path)}: {escape(reason)}", indent=0)
    for path, reason in found.skipped if verbose else found.skipped[:1]:
        marked(console, Mark.UNKNOWN, f"{escape(path)}: {escape(reason)}", indent=0)
    if not verbose and (len(with_code) < len(found.files) > 1 or found.skipped[1:]):
        console.print("\n[dim]Files without GPU code, and all that were not read: -v[/]")


def _file_json(item: InspectedFile, targets: tuple[str, ...]) -> dict[str, Any]:
    binary = item.binary
    fatbins = []
    for fatbin in binary.fatbins:
        entries = [{**to_json(entry), "ptx_version": _version(entry.ptx_version)} for entry in fatbin.entries]
        for row in entries:
            del row["offset"]
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
        "sections": [fatbin.section for fatbin in binary.fatbins],
        "verdicts": verdicts,
    }


def _version(pair: tuple[int, int] | None) -> str | None:
    return f"{pair[0]}.{pair[1]}" if pair else None
