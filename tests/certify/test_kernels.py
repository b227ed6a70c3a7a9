"""One child for each kernel: what its end means, and how long all of them may take."""

import json
from pathlib import Path
from typing import Any

import pytest

from splatfix.certify import Outcome
from splatfix.certify.kernels import AFTER_A_HANG, IMPLEMENTATIONS, KERNEL_TIMEOUT, check_kernels
from splatfix.core.runner import Completed

EVERY = [module for _, module in IMPLEMENTATIONS]


class Hanging:
    """A machine on which some kernels hang; every other one is right after a second."""

    def __init__(self, *hang: str) -> None:
        self.hang, self.waited = hang, 0.0

    def run(self, argv: Any, *, timeout: float, **_: Any) -> Completed:
        if "-c" in argv:
            names = sorted({module.partition(".")[0] for module in EVERY})
            return Completed((), 0, "\n".join(names), "", 0.1)
        _, _, kernel, module, *_ = argv
        if module in self.hang:
            self.waited += timeout
            return Completed((), None, "", "", timeout + 0.1, f"no answer within {timeout:g} s")
        row = {"name": kernel, "implementation": module, "kind": "native", "word": "drawn by lot"}
        told = [{**row, "outcome": outcome} for outcome in ("failed", "met")]
        # and what a module prints that fails, and would be taken for right
        lies = [
            {**told[1], "word": "guessed", "outcome": "failed"},
            {**told[1], "word": "", "outcome": "failed"},
        ]
        return Completed((), 0, "\n".join(["{}", "[" * 9999, *map(json.dumps, (*told, *lies))]), "", 1.0)


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
