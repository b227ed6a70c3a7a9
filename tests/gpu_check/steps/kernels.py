"""Kernels, ours and the installed ones: against float64, against each other, at the sizes of real trainings."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from kernels.rasterizer_golden import beyond

from ..context import DEVICE, ROOT, Context, error_of
from ..record import Failed, Notes

BROUGHT = {"inria-v1": "rasterizer", "simple-knn": "knn", "fused-ssim": "ssim"}
"""Source -> the kernel that it brings."""
HELD_MIB = 4096
CONTEXT_MIB = 1536
"""At most for the CUDA context and torch's own reserve beside the allocation."""
# Environment, kernel, module or renderer, source of a native one.
TIMED = (
    ("stack", "ssim", "splatfix.kernels.ssim", ""),
    ("stack", "ssim", "fused_ssim", "fused-ssim"),
    ("stack", "knn", "splatfix.kernels.knn", ""),
    ("stack", "knn", "simple_knn._C", "simple-knn"),
    ("stack", "rasterizer", "inria", "inria-v1"),
    ("gsplat", "rasterizer", "gsplat", "gsplat"),
    ("stack", "rasterizer", "torch", ""),
    ("plain", "ssim", "nvrtc", ""),
    ("plain", "knn", "nvrtc", ""),
    ("plain", "rasterizer", "nvrtc", ""),
)
GOLDEN = "rasterizer_cuda.npz"
_INI = "[pytest]\npythonpath = .\naddopts = -p no:cacheprovider\nmarkers =\n" + "".join(
    f"    {name}: {name}\n" for name in ("gpu", "native", "docker", "slow")
)


def verify(context: Context, notes: Notes) -> None:
    """All kernels of the environment with the stack: ours, and every one that its sources should have brought."""
    argv = ("verify", "--device", DEVICE, "--python", context.python("stack"))
    _, document = context.splatfix(*argv, timeout=230)
    if "kernels" not in document:
        notes.expect(False, "the kernels are verified", error_of(document))
        return
    checks: list[dict[str, Any]] = document["kernels"]
    notes.numbers["kernels"] = checks
    expected = {("ours", name) for name in ("ssim", "knn", "rasterizer")}
    expected |= {("native", BROUGHT[name]) for name in context.sources if name in BROUGHT}
    for kind, name in sorted(expected):
        matching = [check for check in checks if (check["kind"], check["name"]) == (kind, name)]
        if not matching:
            notes.expect(False, f"{name} ({kind}) is verified on the GPU", "it was not run")
        for check in matching:
            shown = []
            for part in ("value", "gradient"):
                if check[f"{part}_error"] is not None:
                    shown.append(
                        f"{part} error {check[f'{part}_error']:.1e} of {check[f'{part}_allowed']:.0e}"
                    )
            subject = f"{check['implementation']} agrees with its float64 reference on the GPU"
            evidence = "; ".join(filter(None, [", ".join(shown), check["detail"]])) or check["outcome"]
            notes.expect(check["outcome"] == "met", subject, evidence)


def golden(context: Context, notes: Notes) -> None:
    """Arrays of the installed rasterizer, kept for machines without a GPU, and how far ours on the CPU is off them."""
    path = context.folder("golden") / GOLDEN
    table = context.answer("stack", "kernels.rasterizer_golden", path, timeout=60)
    notes.numbers["differences"] = table
    for scene, row in table.items():
        worst = max(row, key=lambda name: row[name])
        shown = ", ".join(beyond(row)) or f"at most {row[worst]:.1e} ({worst})"
        notes.expect(not beyond(row), f"the scene {scene} by the extension and by ours on the CPU", shown)
    shutil.copy(path, Path(context.out) / GOLDEN)


def tests(context: Context, notes: Notes, names: str) -> None:
    """The kernel tests marked ``gpu`` of these names; one that was skipped is not one that passed."""
    folder = context.folder("tests")
    (folder / "pytest.ini").write_text(_INI, encoding="utf-8")
    room = ROOT / "tests" / "kernels"
    argv = [context.python("plain"), "-m", "pytest", "-q", "-m", "gpu", "-k", names]
    argv += ["-c", folder / "pytest.ini", "--rootdir", ROOT, "--confcutdir", room]
    argv += [f"--junit-xml={folder / 'junit.xml'}", room / "test_on_gpu.py"]
    done = context.run(argv, 120, cwd=ROOT, env=context.child_variables())
    notes.numbers["output"] = done.stdout.splitlines()[-12:]
    notes.expect(done.ok, "pytest ends well", done.why() or "exit code 0")
    if (folder / "junit.xml").is_file():
        for case in ElementTree.parse(folder / "junit.xml").iter("testcase"):
            # a skipped test is no shown one: whatever the case holds but properties says that it did not pass
            troubles = [child for child in case if child.tag != "properties"]
            texts = [f"{child.tag}: {child.get('message', '')}"[:300] for child in troubles]
            notes.expect(not texts, str(case.get("name")), "; ".join(texts) or "passed")


def monitor(context: Context, notes: Notes) -> None:
    """Watch a program that holds so much; the driver may hide its process in a container, which the notes then say."""
    held = context.size(HELD_MIB, 256)
    argv = context.child_argv("plain", "allocate", str(held), "3")
    out = context.folder("monitor") / "series"
    code, summary = context.splatfix("monitor", "--interval", "0.1", "--out", out, command=argv, timeout=60)
    notes.numbers["summary"] = summary
    notes.expect(code == 0, "the watched command's exit code is passed on", f"{code}")
    # a rehearsal allocates in host memory
    peak = summary.get("rss_peak_gb" if context.rehearsal else "vram_peak_gb")
    measured = "nothing" if peak is None else f"{peak * 1024:.0f} MiB"
    notes.expect(
        peak is not None and held <= peak * 1024 <= held + CONTEXT_MIB,
        "the peak is the allocation and a CUDA context",
        f"{held} MiB held, {measured} measured; {summary.get('notes')}",
    )


def sizes(context: Context, notes: Notes) -> None:
    """1080p with a million Gaussians, ten million points, SSIM at 1080p; each in a process of its own, for its own memory."""
    width, points, count = context.size(1920, 64), context.size(10_000_000, 500), context.size(1_000_000, 300)
    sizes = {
        "ssim": (f"{width}", f"{width} pixels wide"),
        "knn": (f"{points}", f"{points:,} points"),
        "rasterizer": (f"{width}x{count}", f"{count:,} Gaussians, {width} pixels wide"),
    }
    for environment, kernel, name, source in TIMED:
        if source and source not in context.sources:
            notes.numbers[name] = f"not timed: GPU_SOURCES holds no {source}"
            continue
        size, label = sizes[kernel]
        try:
            timed = context.answer(environment, "timed", f"{kernel}:{name}", size, timeout=45)
        except Failed as error:
            notes.problems.append(str(error))
            continue
        notes.numbers[f"{kernel}:{name}"] = {"size": label, **timed}
        shown = f"{timed['best_s'] * 1000:.2f} ms, peak {timed['peak_mib']} MiB"
        notes.expect(timed["finite"], f"{kernel} by {name}, {label}", shown)
