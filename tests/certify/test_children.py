"""Children of a certification: what the end of a kernel's or a trainer's means, their variables, and how long they may take."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.certify import Outcome
from splatfix.certify.advice import explained
from splatfix.certify.criteria import judge
from splatfix.certify.kernels import AFTER_A_HANG, IMPLEMENTATIONS, KERNEL_TIMEOUT, check_kernels
from splatfix.certify.model import Criterion
from splatfix.certify.staging import child_variables
from splatfix.core.runner import Completed
from tests.certify.conftest import trained

EVERY = [module for _, module in IMPLEMENTATIONS]


class Hanging:
    """A machine on which some kernels hang; every other one is right after a second."""

    def __init__(self, *hang: str) -> None:
        self.hang, self.waited = hang, 0.0

    def run(self, argv: Any, *, timeout: float, **_: Any) -> Completed:
        _, _, kernel, module, *_ = argv
        if module in self.hang:
            self.waited += timeout
            return Completed((), None, "", "", timeout + 0.1, f"no answer within {timeout:g} s")
        row = {"name": kernel, "implementation": module, "kind": "native"}
        told = [{**row, "outcome": outcome} for outcome in ("failed", "met")]
        return Completed((), 0, "\n".join(["{}", "[" * 9999, *map(json.dumps, told)]), "", 1.0)


@pytest.mark.parametrize("hang", [EVERY[1:2], EVERY[1:6:2], EVERY[1:]])
def test_only_the_first_hang_is_waited_for(tmp_path: Path, hang: list[str]) -> None:
    machine = Hanging(*hang)
    found = {item.implementation: item for item in check_kernels(machine, "python", "cuda", tmp_path, {})}  # type: ignore[arg-type]
    assert machine.waited == KERNEL_TIMEOUT + AFTER_A_HANG * (len(hang) - 1)
    first, *others = hang
    assert found[first].outcome is Outcome.FAILED
    for name in others:
        assert found[name].outcome is Outcome.NOT_MEASURED and first in found[name].detail
    assert all(found[name].outcome is Outcome.MET for name in EVERY if name not in hang)


def test_only_the_staged_folder_is_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHOME", "/elsewhere")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    variables = child_variables(Path("staged"))
    assert variables["PYTHONPATH"] == "staged" and "PYTHONHOME" not in variables


ABI = (
    "ImportError: /env/lib/python3.10/site-packages/diff_gaussian_rasterization/_C.cpython-310-x86_64-linux-gnu.so: "
    "undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs"
)
KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB"


def ended(said: str) -> Criterion:
    output = f'{{"event": "progress", "loss": NaN}}\n{said}\n'
    done = Completed(("t",), 1, output, "", 1.0)
    (found, *_) = judge(trained({}, done=done, device="cuda"))
    return found


@pytest.mark.parametrize(
    ("said", "name", "advice"),
    [
        (ABI, "torch-abi-mismatch", "splatfix install ."),
        (KERNEL, "no-kernel-image", "splatfix install ."),
        (MEMORY, "cuda-oom-runtime", "--resolution"),
        # what is not recognised keeps the advice of the criterion
        ("ValueError: nobody has seen this", "", "trainer.log"),
    ],
)
def test_the_smoke_trainer_failed(said: str, name: str, advice: str) -> None:
    found = ended(said)
    assert found.why.endswith(f"[{name}]." if name else "stopped early.")
    assert advice in found.advice
    assert said.partition(". ")[0] in found.measured


def test_only_what_fails_by_its_output_is_explained() -> None:
    judged = Criterion("training-finishes", Outcome.FAILED, "", "")
    met = replace(judged, outcome=Outcome.MET)
    assert explained(met, ABI, "") == met
    other = replace(judged, code="loss-falls")
    assert explained(other, ABI, "") == other


def test_a_stack_whose_trainer_failed() -> None:
    done = Completed(("train.py",), 1, "", f"Traceback (most recent call last):\n{ABI}\n", 1.0)
    criteria = judge(trained({}, done=done, stack=True))
    found = next(item for item in criteria if item.code == "training-finishes")
    assert "[torch-abi-mismatch]" in found.why
    assert found.advice
