"""A question is asked once, whatever asks it and from wherever; errors are answers too."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from splatfix.binaries import BinaryError
from splatfix.core.runner import Completed
from splatfix.facts import System
from splatfix.facts.system.live import CachingSystem


class Slow(System):
    def __init__(self) -> None:
        super().__init__(env={})
        self.calls: list[str] = []

    def run(self, argv: Sequence[str], timeout: float = 8.0) -> Completed:
        self.calls.append(argv[0])
        time.sleep(0.1)
        return Completed(tuple(argv), 0, str(len(self.calls)), "", 0.0)

    def read_binary(self, path: str) -> object:  # type: ignore[override]
        self.calls.append(path)
        raise BinaryError("broken")


def test_many_threads_one_question() -> None:
    machine = Slow()
    once = CachingSystem(machine)
    with ThreadPoolExecutor(8) as pool:
        answers = {done.stdout for done in pool.map(lambda _: once.run(["nvcc", "--version"], 1.0), range(8))}
    assert machine.calls == ["nvcc"]
    assert answers == {"1"}


def test_an_error_comes_again_without_asking_again() -> None:
    machine = Slow()
    once = CachingSystem(machine)
    for _ in range(3):
        with pytest.raises(BinaryError, match="broken"):
            once.read_binary("/x.so")
    assert machine.calls == ["/x.so"]
