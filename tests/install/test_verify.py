"""Proof before installation, on forged wheels.

And after it: an import that fails for want of a GPU is told from one that fails.
"""

from pathlib import Path
from typing import Any

import pytest

from splatfix.facts import gather
from splatfix.install import WheelCache, execute
from splatfix.install.environment import Environment
from splatfix.install.verify import check_import, verify_wheel, wants_gpu
from splatfix.install.wheels import WheelFile, open_wheel
from splatfix.model import EnvironmentFacts, Fact, Facts, Gpu, Interpreter, MachineFacts, Torch
from tests.archs import archs, request_for
from tests.files import put
from tests.plan.machines import changed, make_plan, refused
from tests.tables import data
from tests.wheels.forge import SYMBOL, library, torch_in, write_wheel

from .environments import PYTHON_TAG, snapshot, write_extension


@pytest.fixture(scope="module")
def interpreter() -> Interpreter:
    found = gather().environment.interpreter.value
    assert found is not None
    return found


def facts(interpreter: Interpreter, torch: Torch | None = None) -> Facts:
    environment = EnvironmentFacts(interpreter=Fact(interpreter, "test"), torch=Fact(torch, "test"))
    return Facts(MachineFacts("linux", "x86_64"), environment, "0")


def forged(
    interpreter: Interpreter, folder: Path, code: str = "", *, tag: str = "", **options: Any
) -> WheelFile:
    tag = tag or f"{PYTHON_TAG}-{PYTHON_TAG}-linux_x86_64"
    options = {"suffix": f"{interpreter.abi_tag}.so", "symbols": (), **options}
    return open_wheel(write_wheel(folder, f"pkg-1.0-{tag}.whl", code, **options))


def test_every_container_must_serve_every_target(tmp_path: Path, interpreter: Interpreter) -> None:
    both = "80 120/86 120"
    wheel = forged(interpreter, tmp_path, both)
    rung = verify_wheel(wheel, archs("sm_120", "sm_89"), facts(interpreter), expects_gpu_code=True)
    assert rung.reached
    assert "sm_120 (native code), sm_89 (native code) in 2 of 2 fatbins" in rung.shown_by

    wheel = forged(interpreter, tmp_path, both, more={"pkg/_D.so": library("80 120/80", ())})
    error = refused(verify_wheel, wheel, archs("sm_120"), facts(interpreter), expects_gpu_code=True)
    assert error.code == "wrong-gpu-code" and "has no code for sm_120" in error.what
    assert "pkg/_D" in error.what and error.details["carries"] == ["sass sm_80", "sass sm_120"]


def test_a_module_for_each_architecture(tmp_path: Path, interpreter: Interpreter) -> None:
    """As tiny-cuda-nn: one module for each, named after it; none that is missing, and none that is wrong."""
    both = archs("sm_120", "sm_86")

    def with_modules(**codes: str) -> WheelFile:
        more = {f"pkg/{name}.so": library(code, ()) for name, code in codes.items()}
        return forged(interpreter, tmp_path, "none", more=more)

    wheel = with_modules(_86_C="86", _120_C="120")
    assert verify_wheel(wheel, both, facts(interpreter), expects_gpu_code=True).reached
    for codes in ({"_86_C": "86"}, {"_86_C": "86", "_120_C": "86"}, {"_86_C": "86", "_C": "120"}):
        wheel = with_modules(**codes)
        error = refused(verify_wheel, wheel, both, facts(interpreter), expects_gpu_code=True)
        assert error.code == "wrong-gpu-code"


def test_cuda_sources_must_give_gpu_code(tmp_path: Path, interpreter: Interpreter) -> None:
    wheel = forged(interpreter, tmp_path)
    assert "CPU only" in verify_wheel(wheel, (), facts(interpreter), expects_gpu_code=False).shown_by
    error = refused(verify_wheel, wheel, archs("sm_120"), facts(interpreter), expects_gpu_code=True)
    assert error.code == "no-gpu-code"


def test_torch_symbols_are_looked_up_in_the_installed_torch(tmp_path: Path, interpreter: Interpreter) -> None:
    known = facts(interpreter, torch_in(tmp_path / "torch", "2.11.0+cu130"))
    rung = verify_wheel(forged(interpreter, tmp_path, symbols=(SYMBOL,)), (), known, expects_gpu_code=False)
    assert "all 1 torch symbol found in torch 2.11.0" in rung.shown_by
    wheel = forged(interpreter, tmp_path, symbols=("_ZN3c104goneEv",))
    error = refused(verify_wheel, wheel, (), known, expects_gpu_code=False)
    assert error.code == "torch-symbols-missing" and error.details["missing"] == ["_ZN3c104goneEv"]


def test_a_wheel_or_a_module_of_another_python(tmp_path: Path, interpreter: Interpreter) -> None:
    wheels = [
        forged(interpreter, tmp_path, tag=tag)
        for tag in (
            "cp27-cp27m-linux_x86_64",
            f"{PYTHON_TAG}-{PYTHON_TAG}-win_amd64",
            "cp39-cp39-linux_x86_64",
        )
    ]
    for wheel in (*wheels, forged(interpreter, tmp_path, suffix="cpython-27-x86_64-linux-gnu.so")):
        error = refused(verify_wheel, wheel, (), facts(interpreter), expects_gpu_code=False)
        assert error.code == "wheel-does-not-fit"


GUARDED: str = data(__file__)["guarded"]


@pytest.mark.parametrize("gpus", [(), (Gpu(0, "RTX 5090"),)])
def test_imports_that_ask_for_gpus(environment: Environment, tmp_path: Path, gpus: tuple[Gpu, ...]) -> None:
    source = write_extension(tmp_path / "source", module=GUARDED)
    before, known = snapshot(environment), changed(gather(environment.python), gpus=Fact(gpus, "test"))
    plan = make_plan(request_for((str(source),)), known)
    if gpus:
        assert refused(execute, plan, known, cache=WheelCache()).code == "import-failed"
        assert snapshot(environment) == before
        return
    (item,) = execute(plan, known, cache=WheelCache()).items
    loads = next(rung for rung in item.proof if rung.name == "loads")
    assert loads.reached is None and "__init__.py line 5" in loads.shown_by


def test_a_module_cannot_say_itself_that_it_was_imported(environment: Environment) -> None:
    lines = """print('splatfix-imported ["liar", null]'); print('splatfix-imported-0 [', flush=True)"""
    put(environment.purelib, {"liar.py": f"import os\n{lines}\nos._exit(0)\n"})
    assert refused(check_import, ["liar"], [], environment).code == "import-failed"


@pytest.mark.parametrize(("said", "asks"), data(__file__)["tracebacks"])
def test_a_traceback_that_asks_for_a_gpu(tmp_path: Path, said: str, asks: bool) -> None:
    files = {
        "asks": f"{GUARDED}x = 1\nraise ValueError('something else')\n",
        "damaged": "if torch.cuda.is_available(:\n    raise",
    }
    put(tmp_path, files)
    places = {name: tmp_path / name for name in files}
    trace = f"Traceback (most recent call last):\n{said.format(**places)}\n"
    assert (wants_gpu(trace) is not None) is asks
