"""An import that fails for want of a GPU is told from one that fails: by the loader's words, torch's, and the line itself."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.facts import Fact, Gpu, gather
from splatfix.install import WheelCache, execute
from splatfix.install.environment import Environment
from splatfix.install.verify import wants_gpu
from tests.archs import request_for
from tests.plan.machines import make_plan, refused

from .environments import snapshot, write_extension

GUARDED = """\
class torch:
    class cuda:
        is_available = staticmethod(lambda: False)
if not torch.cuda.is_available():
    raise EnvironmentError("Unknown compute capability.")
"""


@pytest.mark.parametrize("gpus", [(), (Gpu(0, "RTX 5090"),)])
def test_what_asks_for_a_gpu_is_kept_where_there_is_none(
    environment: Environment, tmp_path: Path, gpus: tuple[Gpu, ...]
) -> None:
    source = write_extension(tmp_path / "source")
    (source / "tiny_probe" / "__init__.py").write_text(GUARDED)
    before, facts = snapshot(environment), gather(environment.python)
    facts = replace(facts, machine=replace(facts.machine, gpus=Fact(gpus, "test")))
    plan = make_plan(request_for((str(source),)), facts)
    if gpus:
        assert refused(execute, plan, facts, cache=WheelCache()).code == "import-failed"
        assert snapshot(environment) == before
        return
    (item,) = execute(plan, facts, cache=WheelCache()).items
    loads = next(rung for rung in item.proof if rung.name == "loads")
    assert loads.reached is None and "__init__.py line 5" in loads.shown_by


@pytest.mark.parametrize(
    ("said", "asks"),
    [
        ("ImportError: libcuda.so.1: cannot open shared object file: No such file or directory", True),
        ("RuntimeError: Found no NVIDIA driver on your system. Please check", True),
        ("ImportError: libcudart.so.12: cannot open shared object file: No such file or directory", False),
        ("ModuleNotFoundError: No module named 'matplotlib'", False),
        ("AssertionError: Torch not compiled with CUDA enabled", False),
        ("", False),
    ],
)
def test_by_its_last_line(said: str, asks: bool) -> None:
    assert (wants_gpu(f"Traceback (most recent call last):\n{said}\n") is not None) is asks


@pytest.mark.parametrize(("line", "asks"), [(5, True), (7, False)])
def test_by_the_line_that_raised(tmp_path: Path, line: int, asks: bool) -> None:
    file = tmp_path / "modules.py"
    file.write_text(f"{GUARDED}x = 1\nraise ValueError('something else')\n")
    trace = (
        f'Traceback (most recent call last):\n  File "{file}", line {line}, in <module>\nOSError: Unknown\n'
    )
    assert (wants_gpu(trace) is not None) is asks


def test_a_damaged_file_is_no_proof(tmp_path: Path) -> None:
    (file := tmp_path / "modules.py").write_text("if torch.cuda.is_available(:\n    raise")
    assert wants_gpu(f'  File "{file}", line 2, in <module>\nOSError: Unknown') is None
