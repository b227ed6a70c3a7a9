"""PyPI's torchvision beside a torch for the CPU: its import describes operators that its compiled part did not bring."""

import subprocess
import sys

import pytest

from tests.tables import data

CHILD: str = data(__file__)["texts"]["child"]


@pytest.mark.parametrize("loads", [False, True])
def test_what_its_import_needs_is_declared(loads: bool) -> None:
    pytest.importorskip("torch")
    argv = [sys.executable, "-c", CHILD.format(loads=loads)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    # with a compiled part that loads nothing is declared: here, where there is none, the import fails as it does without us
    assert done.stdout.split() == (["False"] if loads else ["True", "imported"])
    assert ("does not exist" in done.stderr) is loads


ACCELERATOR: str = data(__file__)["texts"]["accelerator"]


def test_an_optimizer_that_asks_for_the_accelerator() -> None:
    """Of torch 2.15, in a CUDA build without a driver: "CUDA driver version is insufficient" at the first step."""
    torch = pytest.importorskip("torch")
    if not hasattr(torch, "accelerator"):
        pytest.skip("this torch has no torch.accelerator")
    done = subprocess.run([sys.executable, "-c", ACCELERATOR], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False", "0", "True"], done.stderr
