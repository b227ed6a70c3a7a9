"""What splatfix finds out about GPU and driver, beside what nvidia-smi and torch say."""

from __future__ import annotations

import csv
import re
from typing import Any

from splatfix.core.runner import ProcessRunner

from ..context import Context, Failed
from ..plan import Notes

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
    ours = [(gpu["name"], gpu["cc"], gpu["uuid"]) for gpu in gpus]
    theirs = [(row["name"], row["compute_cap"], row["uuid"]) for row in smi]
    notes.expect(
        ours == theirs, "name, compute capability and UUID as nvidia-smi has them", f"{ours} and {theirs}"
    )
    sizes = [
        (gpu["memory_total"] or 0, int(row["memory.total"]) << 20)
        for gpu, row in zip(gpus, smi, strict=False)
    ]
    notes.expect(
        bool(sizes) and all(abs(one - other) <= SHARE * other for one, other in sizes),
        "memory as nvidia-smi has it",
        ", ".join(f"{one >> 20} and {other >> 20} MiB" for one, other in sizes) or "no GPU",
    )
    versions = [driver.get("version") or driver.get("library_version"), smi[0]["driver_version"]]
    notes.expect(versions[0] == versions[1], "driver as nvidia-smi has it", " and ".join(map(str, versions)))
    if level:
        notes.expect(
            driver.get("cuda") == level,
            "CUDA level as nvidia-smi has it",
            f"{driver.get('cuda')} and {level}",
        )
    seen = [(gpu["name"], gpu["cc"]) for gpu in torch["gpus"]]
    notes.expect(
        seen == [one[:2] for one in ours],
        "GPUs as torch sees them",
        f"{[one[:2] for one in ours]} and {seen}",
    )
    failed = [
        item
        for item in document["findings"]
        if item["status"] in ("fail", "crash")
        and not (context.rehearsal and item["check"] == "cpu-only-torch")
    ]
    said: dict[bool, list[str]] = {False: [], True: []}
    for item in failed:
        said[item["family"] in WORKS].append(f"{item['check']}: {item['summary']}")
    notes.numbers["failures that may be true"] = said[False]
    notes.expect(not said[True], "no false alarm on this machine", "; ".join(said[True]) or NO_ALARM)


def nvidia_smi() -> tuple[list[dict[str, str]], str]:
    """A row for each GPU, and the CUDA level of the driver ("" where its table does not name one).

    Raises:
        Failed: it gives no answer.
    """
    fields = (*FIELDS, *KEPT)
    asked = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    done = ProcessRunner().run(asked, timeout=20)
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
