"""What is behind the four minutes: other forms, other sources; and that all is taken back."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from kernels.rasterizer_golden import beyond

from .needs import ABOUT_TORCH, PEERS, VARIANTS
from .record import Notes
from .test_visit import certify, nvidia_smi, run_tests
from .visit import Visit

pytestmark = pytest.mark.gpu
HELD_MIB, CONTEXT_MIB = 4096, 1536
"""Allocated; and at most for the CUDA context and torch's own reserve beside it."""
OTHERS = ["kernels/test_on_gpu.py", "smoke_trainer/test_device.py", "kernels/test_rasterizer_golden.py"]
LISTED = """
import json, sys
from splatfix.context import make_context
from splatfix.facts import gather
gpus = make_context(gather(sys.executable)).visible_gpus
print(json.dumps({"gpus": [{"uuid": gpu.uuid or gpu.name} for gpu in gpus if gpu.vendor == "nvidia"]}))
"""


def test_others(visit: Visit, notes: Notes) -> None:
    """All other tests marked gpu: kernels in PyTorch, and that no step of the trainer waits without need."""
    run_tests(visit, notes, "not compiled", *OTHERS)


def test_visible(visit: Visit, notes: Notes) -> None:
    """CUDA_VISIBLE_DEVICES: which GPUs CUDA lists then, in order, and which splatfix names."""
    uuids = [row["uuid"] for row in nvidia_smi()[0]]
    forms = [None, "0", "", "-1", "9", "0,0", "0,9", "none", uuids[0], uuids[0][:12], "GPU-ffffffff", "MIG-0"]
    forms += ["1", "1,0", ",".join(uuids[1::-1])] if len(uuids) > 1 else []
    program = visit.work / "listed.py"
    program.write_text(LISTED, encoding="utf-8")

    def listed(form: str | None) -> list[Any]:
        under = ["env", "-u", "CUDA_VISIBLE_DEVICES"]
        under += [] if form is None else [f"CUDA_VISIBLE_DEVICES={form}"]
        answers = [visit.child("plain", one, seconds=50, under=under) for one in (ABOUT_TORCH, program)]
        return [[gpu["uuid"][-36:] for row in rows for gpu in row["gpus"]] or why for rows, why in answers]

    with ThreadPoolExecutor(8) as pool:
        for form, (cuda, ours) in zip(forms, pool.map(listed, forms), strict=True):
            what = re.sub("GPU-[0-9a-f]+", lambda uuid: f"GPU- and {len(uuid[0]) - 4} digits", repr(form))
            notes.expect(cuda == ours, f"CUDA_VISIBLE_DEVICES {what}", f"CUDA {cuda}, splatfix {ours}")


def test_golden(visit: Visit, notes: Notes) -> None:
    """Arrays of Inria v1, which machines without a GPU hold ours against."""
    path = visit.work / "rasterizer_cuda.npz"
    rows, problem = visit.child(visit.installed("stack"), "kernels.rasterizer_golden", path, seconds=60)
    assert not problem, problem
    for scene, row in rows[-1].items():
        shown = ", ".join(beyond(row)) or f"at most {max(row.values()):.1e}"
        notes.expect(not beyond(row), f"{scene}, beside ours on the CPU", shown)
    with np.load(path) as arrays:
        np.savez_compressed(visit.out / "arrays.npz", **{f"golden/{name}": arrays[name] for name in arrays})


def test_monitor(visit: Visit, notes: Notes) -> None:
    """``splatfix monitor`` beside an allocation of known size."""
    held = visit.size(HELD_MIB, 256)
    text = f"import time, torch; held = torch.ones({held} << 18, device='cuda'); torch.cuda.synchronize(); time.sleep(3)"
    command = [visit.python("plain"), "-c", text]
    argv = ("monitor", "--interval", "0.1", "--out", visit.work / "series")
    code, summary = visit.splatfix(*argv, seconds=60, command=command)
    # a rehearsal allocates in host memory; in a container the driver may hide the process, which the notes then say
    peak = (summary.get("rss_peak_gb" if visit.rehearsal else "vram_peak_gb") or 0.0) * 1024
    shown = f"{held} held, {peak:.0f} MiB seen, exit code {code}; {summary.get('notes')}"
    good = code == 0 and held <= peak <= held + CONTEXT_MIB
    notes.expect(good, "the peak is the allocation and a context", shown)


@pytest.mark.parametrize("renderer", ["inria", "gsplat", "torch"])
def test_quick(visit: Visit, notes: Notes, renderer: str) -> None:
    """The quick suite with each renderer."""
    environment = "plain" if renderer == "torch" else visit.installed("stack")
    if renderer == "gsplat" and "gsplat" not in " ".join(visit.install("stack").result().numbers):
        pytest.skip("no gsplat among the peers")
    engine = "torch-cuda" if renderer == "torch" else "cuda"
    certify(visit, notes, environment, renderer, engine, "--suite", "quick")


@pytest.mark.parametrize("source", [*PEERS, *VARIANTS])
def test_source(visit: Visit, notes: Notes, source: str) -> None:
    """A source is built for the GPU that is here, loads and computes."""
    if visit.sources is None or not (visit.sources / source).is_dir():
        pytest.skip(f"GPU_SOURCES holds no {source}")
    for other in (*PEERS, *VARIANTS):  # four at a time; none before, for they would disturb what is timed
        if (visit.sources / other).is_dir():
            visit.install(other)
    visit.installed(source, notes)
