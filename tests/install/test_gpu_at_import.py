"""An import that fails for want of a GPU is told from one that fails: by the loader's words, torch's, and the line itself."""

from pathlib import Path

import pytest

from splatfix.facts import Fact, Gpu, gather
from splatfix.install import WheelCache, execute
from splatfix.install.environment import Environment
from splatfix.install.verify import wants_gpu
from tests.archs import request_for
from tests.files import put
from tests.plan.machines import changed, make_plan, refused

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
    before, facts = snapshot(environment), changed(gather(environment.python), gpus=Fact(gpus, "test"))
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
        # by the line that raised
        ('  File "{asks}", line 5, in <module>\nOSError: Unknown', True),
        ('  File "{asks}", line 7, in <module>\nOSError: Unknown', False),
        ('  File "{damaged}", line 2, in <module>\nOSError: Unknown', False),
    ],
)
def test_a_traceback_that_asks_for_a_gpu(tmp_path: Path, said: str, asks: bool) -> None:
    files = {
        "asks": f"{GUARDED}x = 1\nraise ValueError('something else')\n",
        "damaged": "if torch.cuda.is_available(:\n    raise",
    }
    places = {name: put(tmp_path, files) / name for name in files}
    trace = f"Traceback (most recent call last):\n{said.format(**places)}\n"
    assert (wants_gpu(trace) is not None) is asks
