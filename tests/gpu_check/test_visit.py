"""The four minutes that answer what matters: compiled, right, how fast, does it train, what beside others, is it clean."""

import csv
import json
import re
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from splatfix.certify.baseline import MEMORY_TOLERANCE, quality_tolerance
from splatfix.core.files import read_json
from splatfix.core.runner import Runner
from tests.certify.conftest import record_of
from tools.cuda_kernels import MODULES

from .needs import PEERS, torch_says
from .record import Notes
from .visit import ROOT, Visit, error_of

pytestmark = pytest.mark.gpu
WORKS = ("driver", "gpu", "torch")
"""Families of checks that must not fail where torch computes on the GPU; toolkit and compilers may be wrong all the same."""
FIELDS = ("name", "compute_cap", "uuid", "driver_version", "memory.total", "power.limit", "clocks.max.sm")
SHARE = 0.02
"""By which memory sizes may differ: some sources leave out what the driver keeps for itself."""
KERNELS = ("gaussians", "ssim", "knn", "surfels", "contributions")
BENCH = ROOT / "tests" / "benchmarks" / "bench_cuda.py"
NCU = ("gpu__time", "sm__throughput.avg", "gpu__dram_throughput", "sm__warps_active.avg", "launch__registers")
"""How the columns of Nsight Compute that the record keeps begin; the rest is in the archive."""


def test_facts(visit: Visit, notes: Notes) -> None:
    """Facts beside nvidia-smi and torch."""
    smi, level = nvidia_smi()
    torch, problem = torch_says(visit.python("plain"))
    _, document = visit.splatfix("diagnose", "--python", visit.python("plain"), seconds=30)
    assert not problem and "facts" in document, problem or error_of(document)
    machine = document["facts"]["machine"]
    gpus = [gpu for gpu in machine["gpus"]["value"] or () if gpu["vendor"] == "nvidia"]
    driver = machine["driver"]["value"] or {}
    notes.numbers |= {"nvidia-smi": smi, "torch": torch, "gpus": gpus, "driver": driver}
    listed = [[gpu["name"], gpu["cc"], gpu["uuid"]] for gpu in gpus]
    version = driver.get("version") or driver.get("library_version")
    by_torch = [[gpu["name"], gpu["cc"]] for gpu in torch["gpus"]]
    for what, ours, theirs in (
        ("GPUs as nvidia-smi has them", listed, [[row[name] for name in FIELDS[:3]] for row in smi]),
        ("GPUs as torch has them", [gpu[:2] for gpu in listed], by_torch),
        ("driver as nvidia-smi has it", version, smi[0]["driver_version"]),
        ("CUDA as nvidia-smi has it", level and driver.get("cuda"), level),
    ):
        notes.expect(ours == theirs, what, f"{ours} and {theirs}")
    for gpu, row in zip(gpus, smi, strict=False):
        ours, theirs = (gpu["memory_total"] or 0) >> 20, int(row["memory.total"])
        notes.expect(abs(ours - theirs) <= SHARE * theirs, "memory, MiB", f"{ours} and {theirs}")
    failed = [one for one in document["findings"] if one["status"] in ("fail", "crash")]
    wrong = [one["summary"] for one in failed if one["family"] in WORKS]
    wrong = [] if visit.rehearsal and {one["check"] for one in failed} <= {"cpu-only-torch"} else wrong
    notes.numbers["failures"] = [one["summary"] for one in failed]
    notes.expect(not wrong, f"no failure of {', '.join(WORKS)}", "; ".join(wrong) or "torch computes")


def nvidia_smi() -> tuple[list[dict[str, str]], str]:
    """Return a row for each GPU, and the CUDA level of the driver, "" where its table does not name one."""
    query = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    done = Runner().run(query, timeout=20)
    rows = csv.reader(done.stdout.splitlines() if done.ok else (), skipinitialspace=True)
    gpus = [dict(zip(FIELDS, row, strict=True)) for row in rows]
    assert gpus, f"nvidia-smi names no GPU: {done.why()}"
    table = Runner().run(["nvidia-smi"], timeout=20).stdout
    levels = re.findall(r"CUDA (?:UMD )?Version:\s*([0-9.]+)", table)
    return gpus, "".join(levels[:1])


def test_compile(visit: Visit, notes: Notes) -> None:
    """NVRTC compiles every file of our CUDA kernels, in eight processes; the cache keeps them for the steps behind."""
    folder, architecture = visit.work / "compiled", int(visit.machine["capability"].replace(".", ""))
    folder.mkdir()
    jobs = [[file, defines, architecture] for file, defines in MODULES.values()]
    # NVRTC asks the driver, and crashes in a rehearsal's
    under = ("env", "-u", "LD_LIBRARY_PATH") if visit.rehearsal else ()

    def compiled(some: list[Any]) -> tuple[list[dict[str, Any]], str]:
        words = ("splatfix.kernels.nvrtc", folder, json.dumps(some))
        return visit.child("plain", *words, seconds=60, under=under)

    with ThreadPoolExecutor(8) as pool:
        for rows, problem in pool.map(compiled, [jobs[share::8] for share in range(8)]):
            made = [file for row in rows for file in row.get("files", ())]
            notes.problems += [str(row.get("error") or problem) for row in rows if problem]
            for name, *_ in made:
                size = (folder / name).stat().st_size
                notes.expect(size > 0, name, f"{size} bytes by NVRTC {rows[0]['nvrtc']}")
    notes.expect(len(notes.claims) == len(jobs), "all are", f"{len(notes.claims)} of {len(jobs)}")


def test_kernels(visit: Visit, notes: Notes) -> None:
    """Our CUDA kernels against float64, and how often they make the host wait."""
    run_tests(visit, notes, "compiled", "kernels/test_on_gpu.py")


def run_tests(visit: Visit, notes: Notes, expression: str, *files: str) -> None:
    """Run the tests marked ``gpu`` of these files in a child; a skipped one is not one that passed."""
    ini = visit.work / "tests.ini"
    ini.write_text(
        "[pytest]\npythonpath = .\nmarkers =\n    gpu\n    slow\n    native\n    docker\n", "utf-8"
    )
    for file in files:
        path = ROOT / "tests" / file
        words = f"-m pytest -q -rA --tb=line -p no:cacheprovider -c {ini} --rootdir {ROOT} --confcutdir {path.parent}"
        done = visit.run([visit.python("plain"), *words.split(), "-m", "gpu", "-k", expression, path], 120)
        notes.expect(done.ok, f"{file} ends well", done.why() or "exit code 0")
        for outcome, rest in re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED) (.+)$", done.stdout, re.MULTILINE):
            notes.expect(outcome == "PASSED", rest.rpartition("::")[2], outcome.lower())


def test_ours(visit: Visit, notes: Notes) -> None:
    """Ours alone at 1 M and 1080p, each stage; beside PyTorch at 100,000."""
    large, less = visit.scene(1_000_000), visit.scene(100_000)
    jobs = [f"{kernel}:nvrtc:trained-{large}" for kernel in KERNELS[:3]]
    jobs += [f"{kernel}:nvrtc:synthetic-{large}" for kernel in KERNELS if kernel != "ssim"]
    # behind ours: what takes longest is what is left out where the time is spent
    # surfels in PyTorch took 27 s a frame at 100,000 on an H200
    sizes = {"surfels": visit.scene(10_000)}
    jobs += [f"{kernel}:torch+nvrtc:synthetic-{sizes.get(kernel, less)}" for kernel in KERNELS]
    time_kernels(visit, notes, "plain", jobs, 90)


def trained(visit: Visit) -> Path:
    """Return the Gaussians of a trained courtyard: carried along, or trained here."""
    carried, out = (visit.sources or visit.work) / "courtyard.ply", visit.work / "trained"
    if carried.is_file():
        return carried
    if not out.exists():
        words = f"-m smoke_trainer courtyard --device cuda --iterations {visit.size(1200, 2)} --out {out}"
        done = visit.run([visit.python("plain"), *words.split()], 60)
        assert done.ok, f"the scene of the timings is not trained: {done.why()}"
    return next(out.rglob("*.ply"))


def time_kernels(visit: Visit, notes: Notes, environment: str, jobs: list[str], seconds: float) -> None:
    """Time the jobs in one child."""
    given = ("--repeats", visit.size(10, 2), "--trained", trained(visit))
    rows, problem = visit.child(environment, BENCH, *given, *jobs, seconds=seconds)
    notes.numbers["rows"] = notes.numbers.get("rows", []) + rows
    notes.problems += [problem] * bool(problem)
    for row in rows:
        name = f"{row['job']} by {row['engine']}"
        if "error" in row:
            notes.problems.append(f"{name}: {row['error']}")
            continue
        shown = {key: row[key] for key in row if key.endswith("_ms") or key in ("peak_mib", "lists")}
        notes.expect(row["finite"], name, str(shown))
        if "agrees" in row:
            apart = f"{row['worst']} {row['apart'][row['worst']]:.1e} apart of {row['allowed']:.0e}"
            notes.expect(row["agrees"], f"{name} and ours agree", apart)
            notes.expect(True, f"{name}, times of ours", str(row["times of ours"]))


def test_certify(visit: Visit, notes: Notes) -> None:
    """The drop-ins install, and one certification, of the courtyard, with every metric kept."""
    environment, engine = visit.installed("dropins", notes), "torch-cuda" if visit.rehearsal else "nvrtc"
    certify(visit, notes, environment, "inria", engine, "--scene", "courtyard")


def certify(visit: Visit, notes: Notes, environment: str, renderer: str, engine: str, *what: str) -> None:
    """Certify a scene or a suite with one renderer."""
    out, python = visit.work / f"certify-{environment}-{renderer}-{what[-1]}", visit.python(environment)
    if visit.rehearsal:
        what = ("--scene", "courtyard", "--iterations", "12", "--resolution", "32")
    argv = ["certify", *what, "--device", "cuda", "--renderer", renderer, "--python", python, "--out", out]
    _, document = visit.splatfix(*argv, seconds=150)
    assert document.get("scenes"), error_of(document) or document.get("summary")
    kept = visit.out / "certificates.json"
    certificates = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    kept.write_text(json.dumps({**certificates, out.name: document}), encoding="utf-8")
    # too short to be judged is all that a rehearsal can be
    allowed, reasons = ("certified", *["undetermined"] * visit.rehearsal), "; ".join(document["reasons"])
    good = document["verdict"] in allowed and not reasons
    notes.expect(good, f"{renderer} trains", reasons or document["summary"])
    results = [one["result"] for one in document["scenes"]]
    engines = {result["implementations"]["renderer"]["engine"] for result in results}
    notes.expect(engines == {engine}, f"{renderer} drew on the GPU", f"engine {', '.join(sorted(engines))}")
    notes.numbers["scenes"] = [measures(result) for result in results]


def measures(result: Mapping[str, Any]) -> dict[str, float]:
    """Return quality, speed and memory of a training; the step fails where it did not come to its end."""
    assert "heldout" in result, f"a training did not come to its end: {result.get('error')}"
    memory, quality = result["memory"], {name: result["heldout"][name] for name in ("psnr", "ssim")}
    held = float(memory["cuda"]["train"]["allocated"] if memory["cuda"] else memory["rss"])
    return quality | {"iterations_per_second": result["iterations_per_second"], "memory": held}


def test_peers(visit: Visit, notes: Notes) -> None:
    """The peers install; the ratios: fused-ssim, simple-knn, Inria v1 and gsplat take turns with ours in one process."""
    visit.installed("stack", notes)
    once = {"fused_ssim": "ssim:nvrtc+fused_ssim", "simple_knn": "knn:nvrtc+simple_knn._C"}
    twice = {"diff_gaussian_rasterization": "gaussians:nvrtc+inria", "gsplat": "gaussians:nvrtc+gsplat"}
    size, timed = visit.scene(1_000_000), 0
    # what came as no wheel is compiled meanwhile, in an environment of its own
    for environment in ("stack", *visit.installs.keys() & PEERS.keys()):
        future = visit.install(environment)
        there = " ".join(future.result().numbers if future.done() else ()).replace("-", "_")
        jobs = [f"{job}:trained-{size}" for package, job in (once | twice).items() if package in there]
        jobs += [f"{job}:synthetic-{size}" for package, job in twice.items() if package in there]
        timed += len(jobs)
        if jobs:
            time_kernels(visit, notes, environment, jobs, 60)
    notes.expect(timed >= visit.size(6, 4), "all peers are timed", f"{timed} pairs")


def test_calibrate(visit: Visit, notes: Notes) -> None:
    """``vram --calibrate`` fits its model by short runs."""
    stack = "smoke" if visit.rehearsal else "inria"  # which a CPU can
    argv = f"vram --stack {stack} --calibrate --images 24 --resolution 160x120 --points 2600".split()
    code, document = visit.splatfix(*argv, "--python", visit.python(visit.installed("dropins")), seconds=60)
    notes.numbers["document"] = document
    told = document.get("calibration") or ""
    notes.expect(code in (0, 1) and bool(told), "it is calibrated", told or error_of(document))


def test_seed(visit: Visit, notes: Notes) -> None:
    """One seed twice: how far apart the trainings are."""
    words = "-m smoke_trainer courtyard --preset quick --device cuda --renderer inria --seed 0"
    words += " --iterations 12 --resolution 32" * visit.rehearsal
    argv, runs = [visit.python(visit.installed("dropins")), *words.split()], []
    for name in ("first", "second"):
        done = visit.run([*argv, "--out", visit.work / name], 50)
        assert done.ok, f"the {name} training: {done.why()}"
        result = read_json(visit.work / name / "result.json", "the result")
        runs.append(measures(result))
    notes.numbers["runs"] = runs
    quality = quality_tolerance(record_of(result))
    for name, limit in {"psnr": quality, "ssim": quality, "memory": MEMORY_TOLERANCE}.items():
        apart = abs(runs[1][name] - runs[0][name]) / (abs(runs[0][name]) or 1.0)
        notes.expect(apart <= limit, f"{name} of one seed twice", f"{apart:.3%} apart of {limit:.1%}")


def our_kernels() -> str:
    """Return the names of the CUDA kernels as a regular expression."""
    folder = ROOT / "splatfix" / "kernels" / "cuda"
    texts = "".join(path.read_text("utf-8") for path in sorted(folder.glob("*.cu")))
    return "|".join(re.findall(r"__global__ void (?:__launch_bounds__\(.*?\) )?(\w+)\(", texts))


def test_sanitizer(visit: Visit, notes: Notes) -> None:
    """Our kernels on small scenes under memcheck and racecheck."""
    jobs = [f"{kernel}:nvrtc:synthetic-96x400" for kernel in KERNELS]
    if shutil.which("compute-sanitizer") is None:
        pytest.skip("no compute-sanitizer is here; a whole CUDA toolkit brings it")
    for name in ("memcheck", "racecheck"):
        log = visit.work / f"{name}.log"
        under = ["compute-sanitizer", "--tool", name, "--report-api-errors", "no", "--log-file", log]
        rows, problem = visit.child("plain", BENCH, "--repeats", 0, *jobs, seconds=60, under=under)
        lines = log.read_text("utf-8").splitlines() if log.is_file() else []
        notes.numbers[name] = lines[-30:]
        summary = next((line.strip("= ") for line in reversed(lines) if "SUMMARY" in line), "")
        wrong = [problem] * bool(problem) + [row["error"] for row in rows if "error" in row]
        # what it says of torch's own kernels is only written down
        wrong += [line for line in lines if re.search(rf"\b({our_kernels()})\b", line)][:5]
        shown = "; ".join(wrong) or summary or "no summary"
        notes.expect(bool(summary) and not wrong, f"{name} finds nothing", shown)


def test_ncu(visit: Visit, notes: Notes) -> None:
    """Nsight Compute: a launch of each of our kernels, on the scene of a training."""
    log = visit.out / "ncu.csv"
    if shutil.which("ncu") is None:
        pytest.skip("no ncu is here; a whole CUDA toolkit brings it")
    words = f"--clock-control none --set detailed --csv --page raw --kernel-name regex:^({our_kernels()})$ --log-file"
    under = ["ncu", *words.split(), log]
    jobs = [f"{kernel}:nvrtc:trained-{visit.scene(1_000_000)}" for kernel in KERNELS[:3]]
    given = ("--repeats", 0, "--trained", trained(visit))
    _, problem = visit.child("plain", BENCH, *given, *jobs, seconds=60, under=under)
    notes.problems += [problem] * bool(problem)
    lines = log.read_text("utf-8").splitlines() if log.is_file() else []
    for row in csv.DictReader(line for line in lines if line.startswith('"')):
        name = row["Kernel Name"]
        if name and name not in notes.numbers:  # the second line holds units
            notes.numbers[name] = {key: value for key, value in row.items() if key.startswith(NCU)}
            notes.expect(bool(notes.numbers[name]), name, str(notes.numbers[name]))
