"""The record that a visit leaves: one JSON document, and the same as a table."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KIND = "gpu-check 5"
_UUID = re.compile(r"(?:GPU-)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


@dataclass
class Notes:
    """What a step writes down while it runs; a problem fails the step only at its end."""

    claims: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)

    def expect(self, good: bool, what: str, shown_by: str) -> None:
        """Write down a claim where it holds, a problem where it does not."""
        shown = " ".join(shown_by.split())[:400]  # some errors print tensors
        if good:
            self.claims.append((what, shown))
        else:
            self.problems.append(f"{what}: {shown}")


def exit_code_of(steps: Iterable[Mapping[str, Any]]) -> int:
    """Return 0 when every step passed, 1 when one failed, 3 when one was skipped or the last one is not there."""
    outcomes = {step["name"]: step["outcome"] for step in steps}
    if "failed" in outcomes.values():
        return 1
    return 0 if "taken_back" in outcomes and "skipped" not in outcomes.values() else 3


def public(record: Mapping[str, Any], checkout: Path) -> dict[str, Any]:
    """Return the record with the UUIDs of GPUs hashed, as a certificate has them, and paths relative to the checkout."""

    def hashed(uuid: re.Match[str]) -> str:
        return f"sha256:{hashlib.sha256(f'GPU-{uuid[1]}'.encode()).hexdigest()[:16]}"

    return dict(json.loads(_UUID.sub(hashed, json.dumps(record)).replace(f"{checkout}/", "")))


def table(record: Mapping[str, Any]) -> str:
    """Return the record in Markdown, ratios first."""
    machine = record["machine"]
    lines = [f"On {machine.get('gpu')}, driver {machine.get('driver')}, torch {machine.get('torch')}:", ""]
    if record["rehearsal"]:
        lines = ["REHEARSAL on the CPU with stand-ins: nothing here says anything about a GPU.", ""]
    for row in (row for step in record["steps"] for row in step["numbers"].get("rows", ())):
        if "times of ours" in row:
            times = ", ".join(f"{part[:-3]} {time:g}" for part, time in row["times of ours"].items())
            lines.append(f"- {row['job']}: {row['engine']} takes {times} times as long as ours")
    lines += ["", "| s | step | outcome | what was seen |", "|--:|---|---|---|"]
    for step in record["steps"]:
        shown = [f"NOT: {one}" for one in step["problems"]] + [": ".join(claim) for claim in step["claims"]]
        cell = "<br>".join(one[:160].replace("|", "\\|") for one in shown[:25])
        ending = f"{step['outcome']}, {step['seconds']:.0f} s"
        lines.append(f"| {step['began']:.0f} | {step['name']}: {step['title']} | {ending} | {cell} |")
    counts = Counter(step["outcome"] for step in record["steps"])
    ending = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    lines += ["", f"{ending}; {record['seconds']:.0f} s; exit code {record['exit_code']}", ""]
    return "\n".join(lines)
