"""What splatfix finds out about GPU and driver, beside what nvidia-smi and torch say."""

import csv
import re
from typing import Any

from splatfix.core.runner import ProcessRunner

from ..context import Context
from ..record import Failed, Notes

FIELDS = ("index", "name", "compute_cap", "driver_version", "memory.total", "uuid", "pci.bus_id")
KEPT = ("power.limit", "clocks.max.sm")
WORKS = ("driver", "gpu", "torch")
"""Families of checks that must not fail where torch computes on the GPU; toolkit and compilers may be wrong all the same."""
NO_ALARM = f"diagnose finds no failure of {', '.join(WORKS)}"
SHARE = 0.02
"""By which memory sizes may differ: some sources leave out what the driver keeps for itself."""


def run(context: Context, notes: Notes) -> None:
    """Hold ``diagnose`` against both."""
    smi, level = nvidia_smi()
    torch = context.answer("plain", "about_torch", timeout=60)
    _, document = context.splatfix("diagnose", "--python", context.python("plain"), timeout=60)
    machine = document["facts"]["machine"]
    gpus = [gpu for gpu in machine["gpus"]["value"] or () if gpu["vendor"] == "nvidia"]
    driver = machine["driver"]["value"] or {}
    notes.numbers.update(
        nvidia_smi=smi, torch=torch, gpus=gpus, driver=driver, found_via=machine["gpus"]["found_via"]
    )
    by_torch = [(gpu["name"], gpu["cc"]) for gpu in torch["gpus"]]
    expected = [(row["name"], row["compute_cap"], row["uuid"]) for row in smi]
    compared = [
        (
            "name, compute capability and UUID as nvidia-smi has them",
            [(gpu["name"], gpu["cc"], gpu["uuid"]) for gpu in gpus],
            expected,
        ),
        (
            "driver as nvidia-smi has it",
            driver.get("version") or driver.get("library_version"),
            smi[0]["driver_version"],
        ),
        ("GPUs as torch sees them", [(gpu["name"], gpu["cc"]) for gpu in gpus], by_torch),
    ]
    if level:
        compared.append(("CUDA level as nvidia-smi has it", driver.get("cuda"), level))
    for subject, ours, theirs in compared:
        notes.expect(ours == theirs, subject, f"{ours} and {theirs}")
    for gpu, row in zip(gpus, smi, strict=False):
        one, other = gpu["memory_total"] or 0, int(row["memory.total"]) << 20
        shown = f"{one >> 20} and {other >> 20} MiB"
        notes.expect(abs(one - other) <= SHARE * other, "memory as nvidia-smi has it", shown)
    false_alarms, possible = [], []
    for finding in document["findings"]:
        is_stand_in = context.rehearsal and finding["check"] == "cpu-only-torch"
        if finding["status"] not in ("fail", "crash") or is_stand_in:
            continue
        failures = false_alarms if finding["family"] in WORKS else possible
        failures.append(f"{finding['check']}: {finding['summary']}")
    notes.numbers["failures that may be true"] = possible
    notes.expect(not false_alarms, "no false alarm on this machine", "; ".join(false_alarms) or NO_ALARM)


def nvidia_smi() -> tuple[list[dict[str, str]], str]:
    """A row for each GPU, and the CUDA level of the driver ("" where its table does not name one).

    Raises:
        Failed: it gives no answer.
    """
    fields = (*FIELDS, *KEPT)
    query = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    done = ProcessRunner().run(query, timeout=20)
    if not done.ok:
        raise Failed(f"nvidia-smi: {done.why()}")
    rows: list[dict[str, Any]] = [
        dict(zip(fields, row, strict=True))
        for row in csv.reader(done.stdout.splitlines(), skipinitialspace=True)
    ]
    if not rows:
        raise Failed("nvidia-smi names no GPU")
    level = re.search(
        r"CUDA (?:UMD )?Version:\s*([0-9.]+)", ProcessRunner().run(["nvidia-smi"], timeout=20).stdout
    )
    return rows, level.group(1) if level else ""
