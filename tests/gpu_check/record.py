"""The record that a visit leaves: one JSON document, and the same as a table."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
    """Return 0 when every step passed, 1 when one failed, 3 when one was skipped or there was none."""
    outcomes = {step["outcome"] for step in steps}
    if "failed" in outcomes:
        return 1
    return 0 if outcomes and "skipped" not in outcomes else 3


def without_serials(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record with the UUIDs of GPUs hashed, as a certificate has them: it is public."""

    def hashed(uuid: re.Match[str]) -> str:
        return f"sha256:{hashlib.sha256(f'GPU-{uuid[1]}'.encode()).hexdigest()[:16]}"

    return dict(json.loads(_UUID.sub(hashed, json.dumps(record))))


def table(record: Mapping[str, Any]) -> str:
    """Return the record in Markdown; an outcome is passed, failed, skipped, or rehearsed on the CPU with stand-ins."""
    machine = record["machine"]
    head = f"On {machine.get('gpu')}, driver {machine.get('driver')}, torch {machine.get('torch')}:"
    if record["rehearsal"]:
        head = "REHEARSAL on the CPU with stand-ins: nothing here says anything about a GPU."
    lines = [head, "", "| s | step | outcome | what was seen |", "|--:|---|---|---|"]
    for step in record["steps"]:
        shown = [": ".join(claim) for claim in step["claims"]] + [f"NOT: {one}" for one in step["problems"]]
        cell = "<br>".join(shown).replace("|", "\\|")
        ending = f"{step['outcome']}, {step['seconds']:.0f} s"
        lines.append(f"| {step['began']:.0f} | {step['name']}: {step['title']} | {ending} | {cell} |")
    counts = Counter(step["outcome"] for step in record["steps"])
    ending = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    lines += ["", f"{ending}; {record['seconds']:.0f} s; exit code {record['exit_code']}", ""]
    return "\n".join(lines)
