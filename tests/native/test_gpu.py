"""Where an NVIDIA GPU is: an extension built for that GPU runs there, and agrees with its float64 reference."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from splatfix.core.runner import ProcessRunner
from splatfix.facts import gather
from splatfix.install.environment import Environment

pytestmark = [pytest.mark.native, pytest.mark.gpu, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures"

# float32 against float64: one rounding of each factor; the sum of 100,003 numbers in blocks loses a little more
COMPUTE = """
import json, torch
import splat_probe as probe
torch.manual_seed(0)
power = torch.rand(100_003, device="cuda") * 4
opacity = torch.rand_like(power)
got, want = probe.falloff(power, opacity), probe.falloff_reference(power, opacity)
total, expected = probe.total(got), probe.total_reference(got)
torch.cuda.synchronize()
print(json.dumps({
    "falloff": float((got.double() - want).abs().max()),
    "total": float(((total.double() - expected) / expected).abs()),
    "nothing": float(probe.total(power[:0])),
    "capped": float(probe.falloff(torch.zeros(1, device="cuda"), torch.ones(1, device="cuda"))),
}))
"""


@pytest.fixture(scope="module")
def built(native: Environment) -> Environment:
    facts = gather(native.python)
    gpus = facts.machine.gpus.value
    if not gpus:
        pytest.skip("this machine shows no NVIDIA GPU")
    assert shutil.which("nvcc") or facts.machine.toolkits.value, "a GPU, but no toolkit to build with"
    argv = [sys.executable, "-m", "splatfix", "install", FIXTURES / "splat_probe", "--target", "auto"]
    done = ProcessRunner().run([*argv, "--python", native.python, "--json"], timeout=1200, cwd=ROOT)
    assert done.ok, done.stdout + done.stderr
    return native


def test_the_kernels_agree_with_their_reference(built: Environment) -> None:
    done = ProcessRunner().run([built.python, "-c", COMPUTE], timeout=300)
    assert done.ok, done.stderr
    message = json.loads(done.stdout.splitlines()[-1])
    assert message["falloff"] < 1e-6 and message["total"] < 1e-5
    assert message["nothing"] == 0.0 and message["capped"] == pytest.approx(0.99)
