"""What only a machine with an NVIDIA GPU can verify: `make gpu-check`.

Needs no network: it uses the Python it is run with (torch with CUDA, numpy, Pillow, ninja, setuptools), builds in a
temporary folder, and writes `gpu-check.json` with the outcome of every step. Exit codes: 0 all steps passed, 1 a step
failed, 3 there is no usable GPU (stated in the JSON too).

Steps: diagnose; build a small CUDA extension for this GPU and verify its binary; run its kernels against a reference;
check the plain PyTorch kernels on CUDA against float64 and train sample scenes (`splatfix certify`); time the kernels on
CUDA and CPU; run the kernel tests that need a GPU (with pytest and hypothesis in that Python); and, where a CUDA build of
`diff_gaussian_rasterization` is installed, write its results beside the JSON as arrays for tests/records.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROBE = ROOT / "tests" / "fixtures" / "splat_probe"


def run(
    words: list[str], *, timeout: float, env: dict[str, str] | None = None, cwd: Path | None = None
) -> dict[str, Any]:
    """Run a command; exit code (None after a timeout), output, end of standard error, and seconds."""
    started = time.monotonic()
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=timeout, env=env, cwd=cwd, check=False
        )
    except subprocess.TimeoutExpired:
        return {
            "returncode": None,
            "stdout": "",
            "stderr": f"timed out after {timeout} s",
            "seconds": timeout,
        }
    seconds = round(time.monotonic() - started, 2)
    return {
        "returncode": done.returncode,
        "stdout": done.stdout,
        "stderr": done.stderr[-4000:],
        "seconds": seconds,
    }


QUERY_GPU = """
import json, torch
ok = torch.cuda.is_available()
print(json.dumps({
    "torch": torch.__version__, "cuda": torch.version.cuda, "available": ok,
    "name": torch.cuda.get_device_name(0) if ok else None,
    "capability": list(torch.cuda.get_device_capability(0)) if ok else None,
}))
"""

RUN_PROBE = """
import json, torch, splat_probe
power, opacity = torch.rand(100_003, device="cuda") * 4, torch.rand(100_003, device="cuda")
found = {"falloff": (splat_probe.falloff(power, opacity), splat_probe.falloff_reference(power, opacity)),
         "total": (splat_probe.total(opacity), splat_probe.total_reference(opacity))}
print(json.dumps({name: float(((a.double() - b).abs().max() / b.abs().max())) for name, (a, b) in found.items()}))
"""

TIME_KERNELS = """
import json, sys, time, torch
sys.path.insert(0, sys.argv[1])
from splatfix.kernels.ssim import fused_ssim
from splatfix.kernels.knn import distCUDA2

def best(work, device, repeat=5):
    times = []
    for _ in range(repeat):
        if device == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter(); work()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return min(times)

result = {}
for device in ("cpu", "cuda"):
    generator = torch.Generator().manual_seed(0)
    first = torch.rand(1, 3, 540, 960, generator=generator).to(device).requires_grad_(True)
    second = torch.rand(1, 3, 540, 960, generator=generator).to(device)
    result.setdefault("ssim_540p_forward_backward_s", {})[device] = best(
        lambda: torch.autograd.backward(fused_ssim(first, second)), device)
    points = torch.randn(200_000, 3, generator=generator).to(device)
    result.setdefault("knn_200k_s", {})[device] = best(lambda: distCUDA2(points), device, 2)
print(json.dumps({name: {**t, "cpu_over_cuda": t["cpu"] / t["cuda"]} for name, t in result.items()}))
"""


class Checks:
    """Runs the steps in order and records their outcomes."""

    def __init__(self, work: Path, capability: list[int]) -> None:
        self.work = work
        self.arch = f"sm_{capability[0]}{capability[1]}"
        self.env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        self.steps: list[dict[str, Any]] = []
        self.python = Path(sys.executable)  # replaced by `prepare`; without it nothing is installed

    def step(self, name: str, work: Callable[[], dict[str, Any]]) -> None:
        """Run one step: `work` returns its details with `ok`; an exception is a failure."""
        started = time.monotonic()
        try:
            details = work()
        except (OSError, ValueError, KeyError, IndexError, TypeError, subprocess.SubprocessError) as error:
            details = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        self.steps.append({"step": name, "seconds": round(time.monotonic() - started, 1), **details})
        sys.stderr.write(f"{'ok  ' if details['ok'] else 'FAIL'} {name}\n")

    def splatfix(self, *words: str, timeout: float) -> dict[str, Any]:
        return run([sys.executable, "-m", "splatfix", *words], timeout=timeout, env=self.env, cwd=self.work)

    def prepare(self) -> dict[str, Any]:
        self.python = self.environment()
        return {"ok": True}

    def environment(self) -> Path:
        """A venv that sees this Python's packages, so that installing the extension changes nothing outside."""
        folder = self.work / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", str(folder)], check=True)
        (site,) = (folder / "lib").glob("python*/site-packages")
        others = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        (site / "outer.pth").write_text("\n".join(others) + "\n", encoding="utf-8")
        return folder / "bin" / "python"

    def diagnose(self) -> dict[str, Any]:
        done = self.splatfix("diagnose", "--json", timeout=60)
        document = json.loads(done["stdout"])
        bad = [
            f"{f['check']}: {f['summary']}" for f in document["findings"] if f["status"] in ("fail", "crash")
        ]
        driver = document["facts"]["machine"]["driver"]
        return {
            "ok": document["command"] == "diagnose",
            "seconds_wall": done["seconds"],
            "failures": bad,
            "driver": driver,
            "gpus": document["facts"]["machine"]["gpus"],
        }

    def build(self) -> dict[str, Any]:
        done = self.splatfix(
            "install",
            str(PROBE),
            "--target",
            self.arch,
            "--python",
            str(self.python),
            "--yes",
            "--json",
            timeout=400,
        )
        document = json.loads(done["stdout"])
        kept = {name: document.get(name) for name in ("exit_code", "error")}
        if outcome := document.get("outcome"):
            kept["proof"] = [item["proof"] for item in outcome["items"]]
        return {
            "ok": done["returncode"] == 0,
            "arch": self.arch,
            "result": kept,
            "stderr": done["stderr"][-1500:],
        }

    def computes(self) -> dict[str, Any]:
        done = run([str(self.python), "-c", RUN_PROBE], timeout=120, env=self.env, cwd=self.work)
        if done["returncode"] != 0:
            return {"ok": False, "error": done["stderr"][-1500:]}
        errors = json.loads(done["stdout"].splitlines()[-1])
        return {"ok": all(value <= 1e-5 for value in errors.values()), "relative_errors": errors}

    def certify(self) -> dict[str, Any]:
        out = self.work / "report"
        done = self.splatfix(
            "certify", "--suite", "quick", "--device", "cuda", "--out", str(out), "--json", timeout=400
        )
        document = json.loads(done["stdout"])
        scenes = {
            item["scene"]: {
                "psnr": item["result"].get("heldout", {}).get("psnr"),
                "iterations_per_second": item["result"].get("iterations_per_second"),
                "memory": item["result"].get("memory"),
            }
            for item in document.get("scenes", ())
        }
        kept = {
            name: document.get(name)
            for name in ("verdict", "summary", "reasons", "proof", "kernels", "environment")
        }
        return {"ok": done["returncode"] == 0, **kept, "scenes": scenes}

    def times(self) -> dict[str, Any]:
        done = run([sys.executable, "-c", TIME_KERNELS, str(ROOT)], timeout=200, cwd=self.work)
        if done["returncode"] != 0:
            return {"ok": False, "error": done["stderr"][-1500:]}
        return {"ok": True, "times": json.loads(done["stdout"].splitlines()[-1])}

    def tests(self) -> dict[str, Any]:
        """The kernel tests marked `gpu`."""
        there = run([sys.executable, "-c", "import pytest, hypothesis, numpy"], timeout=60)
        if there["returncode"] != 0:
            return {"ok": True, "skipped": there["stderr"].strip().splitlines()[-1]}
        words = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rs",
            "-m",
            "gpu",
            "-p",
            "no:cacheprovider",
            "tests/kernels",
        ]
        done = run(words, timeout=400, env=self.env, cwd=ROOT)
        return {"ok": done["returncode"] == 0, "output": done["stdout"].splitlines()[-12:]}

    def golden(self, target: Path) -> dict[str, Any]:
        """Write arrays of the CUDA rasterizer for tests/records."""
        there = run([sys.executable, "-c", "import torch, diff_gaussian_rasterization"], timeout=60)
        if there["returncode"] != 0:
            return {"ok": True, "skipped": there["stderr"].strip().splitlines()[-1]}
        target.parent.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "tests.kernels.rasterizer_golden", str(target.resolve())]
        done = run(words, timeout=200, env=self.env, cwd=ROOT)
        return {"ok": done["returncode"] in (0, 3), "output": (done["stdout"] + done["stderr"])[-1500:]}


def why_not(gpu: dict[str, Any]) -> str:
    """Why nothing can be run on a GPU."""
    listed = run(["nvidia-smi", "-L"], timeout=20)["stdout"] if shutil.which("nvidia-smi") else ""
    if not listed.startswith("GPU "):
        return "no NVIDIA GPU on this machine"
    return "the torch of this Python sees no GPU" if gpu["torch"] else "this Python has no torch"


def main() -> int:
    """Run everything and write the JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("gpu-check"))
    out: Path = parser.parse_args().out
    document: dict[str, Any] = {
        "schema_version": 2,
        "kind": "gpu-check",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
    }
    said = run([sys.executable, "-c", QUERY_GPU], timeout=120)
    gpu = (
        json.loads(said["stdout"].splitlines()[-1])
        if said["returncode"] == 0
        else {"available": False, "torch": None}
    )
    document["gpu"] = gpu
    if not gpu["available"]:
        why = why_not(gpu)
        document.update(ran=False, exit_code=3, why=why)
        sys.stderr.write(
            f"Nothing was run: {why}.\nRun it where there is one: make gpu-check PYTHON=path/to/python\n"
        )
    else:
        with tempfile.TemporaryDirectory(prefix="splatfix-gpu-") as folder:
            checks = Checks(Path(folder), gpu["capability"])
            checks.step("diagnose", checks.diagnose)
            checks.step("environment", checks.prepare)
            if checks.steps[-1]["ok"]:
                checks.step("build", checks.build)
                checks.step("computes", checks.computes)
            checks.step("certify", checks.certify)
            checks.step("times", checks.times)
            checks.step("tests", checks.tests)
            checks.step("golden", lambda: checks.golden(out / "rasterizer_cuda.npz"))
            if shutil.which("nvidia-smi"):
                document["nvidia_smi"] = run(["nvidia-smi"], timeout=20)["stdout"].splitlines()[:4]
        good = all(step["ok"] for step in checks.steps)
        document.update(ran=True, exit_code=0 if good else 1, steps=checks.steps)
    out.mkdir(parents=True, exist_ok=True)
    target = out / "gpu-check.json"
    target.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    sys.stderr.write(f"Report: {target}\n")
    return int(document["exit_code"])


if __name__ == "__main__":
    sys.exit(main())
