"""Kernels, ours and the installed ones: against float64, against each other, at the sizes of real trainings."""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from kernels.rasterizer_golden import beyond

from ..context import DEVICE, ROOT, Context, error_of
from ..record import Notes

BROUGHT = {"inria-v1": "rasterizer", "simple-knn": "knn", "fused-ssim": "ssim"}
"""Source -> the kernel that it brings."""
HELD_MIB = 4096
CONTEXT_MIB = 1536
"""At most for the CUDA context and torch's own reserve beside the allocation."""
INSTALLED = {
    "fused-ssim": "ssim:fused_ssim",
    "simple-knn": "knn:simple_knn._C",
    "inria-v1": "rasterizer:inria",
}
"""Source -> the kernel that it brings, and the module or renderer by which it is called."""
ENGINES = dict.fromkeys(("ssim", "knn", "rasterizer"), ("torch", "nvrtc", "warp"))
ENGINES |= dict.fromkeys(("surfels", "contributions"), ("torch", "nvrtc"))
"""By what each kernel is tried at the sizes of real trainings; gswarp has three of them, and need not be here."""
ALLOWED = 1e-3
"""Sum of differences by sum of what was expected. PyTorch in float32 is 5e-6 off PyTorch in float64 at most (60,000 Gaussians,
640 pixels, surfels' rotations); a gradient that is halved for a hundredth of the rows is above it."""
SMALL = {"ssim": "96", "knn": "400", **dict.fromkeys(("rasterizer", "surfels", "contributions"), "96x400")}
SANITIZERS = ("memcheck", "racecheck", "synccheck")
SOURCES = ROOT / "splatfix" / "kernels" / "cuda"
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


def compiled(context: Context, notes: Notes) -> None:
    """NVRTC compiles every file of ours for the GPU that is here, with nothing kept from before."""
    # NVRTC asks the driver, and crashes in a rehearsal's
    under = ("env", "-u", "LD_LIBRARY_PATH") if context.rehearsal else ()
    modules, problem = context.rows("plain", "compiled", timeout=100, under=under)
    notes.numbers["modules"] = modules
    for module in modules:
        shown = module.get("error") or f"{module['bytes']} bytes in {module['seconds']} s {module['log']}"
        subject = f"{module['module']} is compiled for {module['arch']}"
        notes.expect("error" not in module and not module["log"], subject, shown)
    if problem:
        notes.problems.append(problem)


def large(context: Context, notes: Notes) -> None:
    """Ours at the sizes of real trainings: CUDA kernels against PyTorch, and the times of both beside gswarp's."""
    for kernel, (size, label) in _sizes(
        context
    ).items():  # each in a process of its own: a crash leaves the others
        jobs = [f"{kernel}:{engine}:{size}" for engine in ENGINES[kernel]]
        rows, problem = context.rows("plain", "timed", *jobs, timeout=90)
        best = {row["engine"]: row["best_s"] for row in rows if "best_s" in row}
        for row in rows:
            notes.numbers[f"{kernel}:{row['engine']}"] = {"size": label, **row}
            _judge(notes, row, label)
        if {"torch", "nvrtc"} <= best.keys():
            notes.numbers[f"{kernel}: PyTorch by nvrtc"] = round(best["torch"] / best["nvrtc"], 2)
        if problem:
            notes.problems.append(problem)


def _sizes(context: Context) -> dict[str, tuple[str, str]]:
    """Size and its words for each kernel: a million Gaussians and points at 1080p."""
    width, count = context.size(1920, 64), context.size(1_000_000, 300)
    frame = f"{width}x{count}", f"{count:,} Gaussians, {width} pixels wide"
    frames = dict.fromkeys(("rasterizer", "surfels", "contributions"), frame)
    return {"ssim": (f"{width}", f"{width} pixels wide"), "knn": (f"{count}", f"{count:,} points"), **frames}


def _judge(notes: Notes, row: Mapping[str, Any], label: str) -> None:
    """What one engine showed; our CUDA kernels must also agree with the first one, ours in PyTorch."""
    kernel, engine = row["kernel"], row["engine"]
    name = f"{kernel} by {engine}, {label}"
    if "error" in row:
        if engine == "warp":
            notes.numbers[f"{kernel}:{engine}"] = f"not timed: {row['error']}"
        else:
            notes.problems.append(f"{name}: {row['error']}")
        return
    shown = f"{row['best_s'] * 1000:.2f} ms, peak {row['peak_mib']} MiB"
    notes.expect(row["finite"], name, shown)
    if engine == "nvrtc":
        worst = max(row["differences"], key=row["differences"].__getitem__)
        value = row["differences"][worst]
        shown = f"{worst} {value:.1e} apart of {ALLOWED:.0e}"
        notes.expect(value <= ALLOWED, f"{name}, agrees with PyTorch", shown)


def sanitizer(context: Context, notes: Notes) -> None:
    """Our CUDA kernels on small scenes under compute-sanitizer; what it says of torch's own kernels is only written down."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        pytest.skip("no compute-sanitizer is here; a whole CUDA toolkit brings it")
    sources = "".join(path.read_text(encoding="utf-8") for path in sorted(SOURCES.glob("*.cu")))
    kernels = re.compile(
        "|".join(re.findall(r"__global__ void (?:__launch_bounds__\(.*?\) )?(\w+)\(", sources))
    )
    jobs = [f"{kernel}:nvrtc:{size}" for kernel, size in SMALL.items()]
    for tool in SANITIZERS:
        log = context.folder("sanitizer") / f"{tool}.log"
        under = [program, "--tool", tool, "--report-api-errors", "no", "--log-file", str(log)]
        rows, problem = context.rows("plain", "timed", *jobs, timeout=60, under=under)
        problems = [problem] if problem else []
        problems += [f"{row['kernel']}: {row['error']}" for row in rows if "error" in row]
        lines = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
        notes.numbers[tool] = lines[-40:]
        problems += [line for line in lines if kernels.search(line)][:5]
        summary = next((line.strip("= ") for line in reversed(lines) if "SUMMARY" in line), "")
        subject = f"{tool} finds nothing in {', '.join(SMALL)}"
        notes.expect(bool(summary) and not problems, subject, "; ".join(problems) or summary or "no summary")


def tests(context: Context, notes: Notes, expression: str, files: Sequence[str]) -> None:
    """The tests marked ``gpu`` in these files; one that was skipped is not one that passed."""
    folder = context.folder("tests")
    (folder / "pytest.ini").write_text(_INI, encoding="utf-8")
    for file in files:
        path, report = ROOT / "tests" / file, folder / f"{Path(file).stem}.xml"
        argv = [context.python("plain"), "-m", "pytest", "-q", "-m", "gpu", "-k", expression]
        argv += ["-c", folder / "pytest.ini", "--rootdir", ROOT, "--confcutdir", path.parent]
        done = context.run(
            [*argv, f"--junit-xml={report}", path], 120, cwd=ROOT, env=context.child_variables()
        )
        notes.numbers[file] = done.stdout.splitlines()[-12:]
        notes.expect(done.ok, f"{file} ends well", done.why() or "exit code 0")
        if report.is_file():
            _judge_tests(notes, report)


def _judge_tests(notes: Notes, report: Path) -> None:
    for case in ElementTree.parse(report).iter("testcase"):
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


def installed(context: Context, notes: Notes) -> None:
    """The extensions at the sizes of real trainings; each in a process of its own, for its own memory."""
    sizes = _sizes(context)
    jobs = [("stack", source, job) for source, job in INSTALLED.items()]
    for environment, source, job in [*jobs, ("gsplat", "gsplat", "rasterizer:gsplat")]:
        if source not in context.sources:
            notes.numbers[job] = f"not timed: GPU_SOURCES holds no {source}"
            continue
        size, label = sizes[job.partition(":")[0]]
        rows, problem = context.rows(environment, "timed", f"{job}:{size}", timeout=45)
        for row in rows:
            notes.numbers[job] = {"size": label, **row}
            _judge(notes, row, label)
        if problem:
            notes.problems.append(problem)
