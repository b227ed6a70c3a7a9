"""PyPI's torchvision beside a torch for the CPU: its import describes operators that its compiled part did not bring."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHILD = """
import types, torch
from splatfix.certify.inside.cuda_on_cpu import declare_operators
extension = types.SimpleNamespace(_has_ops=lambda: {loads})
print(declare_operators(extension))
torch.library.register_fake("torchvision::nms")(lambda dets, scores, iou_threshold: dets)
print("imported")
"""


@pytest.mark.parametrize("loads", [False, True])
def test_what_its_import_needs_is_declared(loads: bool) -> None:
    pytest.importorskip("torch")
    argv = [sys.executable, "-c", CHILD.format(loads=loads)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    # with a compiled part that loads nothing is declared: here, where there is none, the import fails as it does without us
    assert done.stdout.split() == (["False"] if loads else ["True", "imported"])
    assert ("does not exist" in done.stderr) is loads
