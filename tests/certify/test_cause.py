"""A trainer that failed: its criterion names the class that its output shows, and what to do about it."""

import pytest
from msgspec.structs import replace

from splatfix.certify.advice import advised, explained
from splatfix.certify.criteria.stack import judge_stack
from splatfix.certify.model import Criterion, Outcome
from splatfix.certify.record import TrainingRecord
from splatfix.certify.smoke import ended_early
from splatfix.certify.smoke_training import OWN_ADVICE
from splatfix.core.runner import Completed

ABI = (
    "ImportError: /env/lib/python3.10/site-packages/diff_gaussian_rasterization/_C.cpython-310-x86_64-linux-gnu.so: "
    "undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs"
)
KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB"


def ended(said: str) -> Criterion:
    output = f'{{"event": "progress", "loss": NaN}}\n{said}\n'
    done = Completed(("t",), 1, output, "", 1.0)
    return advised(explained(ended_early(done, {}), output, own=OWN_ADVICE), "inria", "cuda")


@pytest.mark.parametrize(
    ("said", "name", "advice"),
    [
        (ABI, "torch-abi-mismatch", "splatfix diagnose --only torch-abi-mismatch"),
        (KERNEL, "no-kernel-image", "splatfix diagnose --only no-kernel-image"),
        (MEMORY, "cuda-oom-runtime", "--resolution"),
        # what is not recognised keeps the advice of the criterion
        ("ValueError: nobody has seen this", "", "trainer.log"),
    ],
)
def test_the_smoke_trainer_failed(said: str, name: str, advice: str) -> None:
    found = ended(said)
    assert found.why.endswith(f"[{name}]." if name else "") and bool(found.why) is bool(name)
    assert advice in found.advice
    assert said.partition(". ")[0] in found.measured


def test_only_a_failed_criterion_without_advice_is_explained() -> None:
    judged = Criterion("training-finishes", Outcome.FAILED, "", "", advice="known")
    assert explained(judged, ABI) == judged
    met = replace(judged, outcome=Outcome.MET, advice="")
    assert explained(met, ABI) == met
    other = replace(judged, code="loss-falls", advice="")
    assert explained(other, ABI) == other


def test_a_stack_whose_trainer_failed() -> None:
    done = Completed(("train.py",), 1, "", f"Traceback (most recent call last):\n{ABI}\n", 1.0)
    found = next(
        item for item in judge_stack(TrainingRecord(), done, (), (), {}) if item.code == "training-finishes"
    )
    assert "[torch-abi-mismatch]" in found.why
    assert found.advice
