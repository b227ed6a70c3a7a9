"""Twenty real wheels, compiled here by nvcc against the lane's torch: what ``find`` proves of each for five GPUs."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.context import make_context
from splatfix.core.runner import Runner
from splatfix.facts import gather
from splatfix.install.environment import Environment
from splatfix.model import Fact, Facts
from splatfix.wheels.model import Search
from splatfix.wheels.search import wanted_by_name
from tests.archs import goal
from tests.plan.machines import changed, cuda_source
from tests.tables import data
from tests.wheels.forge import search, serving, write_page, write_wheel

from .conftest import absent
from .test_install import splatfix

pytestmark = [pytest.mark.native, pytest.mark.slow]

KERNEL = data(__file__)["texts"]["kernel"]
BINDING = data(__file__)["texts"]["binding"]
TARGETS = ("sm_86", "sm_89", "sm_90", "sm_120", "sm_121")
# What nvcc compiles for, and the targets that run it ("CUDA C++ Programming Guide", binary and PTX compatibility).
BUILDS = data(__file__)["builds"]
MODULES = ("found_probe", "diff_gaussian_rasterization")
TAG = "cp311-cp311-linux_x86_64"


@pytest.fixture(scope="module")
def facts(native: Environment) -> Facts:
    gathered = gather(native.python)
    python = gathered.environment.interpreter.value
    if python is None or not python.version.startswith("3.11"):
        absent("the lane's Python is not 3.11, for which the wheels are named")
    return gathered


@pytest.fixture(scope="module")
def wheels(native: Environment, cuda_site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten builds, each as a wheel of two packages: one stored, one compressed."""
    folder = tmp_path_factory.mktemp("built")
    nvcc, torch = shutil.which("nvcc"), cuda_site / "torch"
    if nvcc is None:
        absent("there is no nvcc")
    (folder / "kernel.cu").write_text(KERNEL)
    (folder / "binding.cpp").write_text(BINDING)
    ask = "import sysconfig; print(sysconfig.get_path('include'))"
    headers = Runner().run([native.python, "-c", ask], timeout=60)
    include = (torch / "include", torch / "include/torch/csrc/api/include", headers.stdout.strip())
    options = [f"-I{path}" for path in include]
    compile_cpp = ["g++", "-c", "-O0", "-fPIC", "-std=c++17", "-w", "-DTORCH_EXTENSION_NAME=_C", *options]
    compile_cpp.append("binding.cpp")
    _run(folder, *compile_cpp, "-o", "binding.o")
    _run(folder, *compile_cpp, "-D_GLIBCXX_USE_CXX11_ABI=0", "-o", "old_abi.o")
    for number, archs in enumerate(BUILDS):
        codes = []
        for name in archs.split():
            digits = name.partition("_")[2]
            codes += ["-gencode", f"arch=compute_{digits},code={name}"]
        _run(folder, nvcc, "-c", "-Xcompiler", "-fPIC", *codes, "kernel.cu", "-o", f"kernel{number}.o")
        _link(folder, "binding.o", number, torch)
        for module, method in zip(MODULES, (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED), strict=True):
            _wheel(folder, folder / "wheels" / str(number), module, method)
    _link(folder, "old_abi.o", 0, torch)
    _wheel(folder, folder / "old-abi", "found_probe", zipfile.ZIP_STORED)
    return folder


def _run(folder: Path, *argv: str | Path) -> None:
    done = Runner().run([str(word) for word in argv], timeout=600, cwd=folder)
    assert done.ok, done.stderr[-2000:]


def _link(folder: Path, binding: str, number: int, torch: Path) -> None:
    # by g++, as torch's builder does: nvcc adds a fatbin of its own for its default architecture
    (runtime,) = torch.parent.glob("nvidia/cu*/lib/libcudart.so.*")
    libraries = [f"-L{torch / 'lib'}", "-lc10", "-ltorch_cpu", "-ltorch_python", runtime]
    _run(folder, "g++", "-shared", binding, f"kernel{number}.o", *libraries, "-o", "_C.so")


def _wheel(folder: Path, into: Path, module: str, method: int) -> None:
    name = f"{module}-0.0.0+cu130torch2.11-{TAG}.whl"
    variant = "inria-v1" if module == MODULES[1] else ""
    write_wheel(into, name, variant=variant, method=method, compiled=(folder / "_C.so").read_bytes())


def asked(name: str, index: str, facts: Facts, target: str) -> Search:
    return search(wanted_by_name(name), index, make_context(facts, goal(target)))


def test_twenty_wheels_for_five_gpus(wheels: Path, facts: Facts) -> None:
    assert len(list((wheels / "wheels").rglob("*.whl"))) == 20
    for number, serves in enumerate(BUILDS.values()):
        folder = wheels / "wheels" / str(number)
        write_page(
            folder / "index.html", {path.name: path.name for path in folder.glob("*.whl")}, digests="sha256"
        )
        with serving(folder) as server:
            for target in TARGETS:
                for name in ("found_probe", "inria-v1"):
                    (candidate,) = asked(name, server.address + "/", facts, target).candidates
                    proven = candidate.rejected is None
                    assert proven is (target in serves.split()), (number, target, candidate)
                    assert proven or candidate.rejected.code == "wrong-gpu-code"
    (other,) = asked("depth-alpha", str(folder), facts, "sm_120").candidates
    assert other.rejected and (other.rejected.exit_code, other.rejected.code) == (1, "wrong-face")


def test_the_old_abi_is_seen_by_torchs_symbols(wheels: Path, facts: Facts) -> None:
    (candidate,) = asked("found_probe", str(wheels / "old-abi"), facts, "sm_120").candidates
    assert candidate.rejected and candidate.rejected.code == "torch-symbols-missing", candidate
    newer = replace(facts.environment.torch.value, version="2.12.0+cu130")  # type: ignore[type-var]
    other = changed(facts, torch=Fact(newer, "test"))
    (candidate,) = asked("found_probe", str(wheels / "wheels" / "0"), other, "sm_120").candidates
    assert candidate.rejected and candidate.rejected.code == "wrong-torch", candidate


def test_it_is_installed_loads_beside_torch_and_is_undone(
    wheels: Path, native: Environment, tmp_path: Path
) -> None:
    source = cuda_source(tmp_path / "source", "found_probe")
    words = ("install", source, "--target", "sm_120", "--backend", "wheels", "--python", native.python)
    code, refused = splatfix(*words, "--index", wheels / "wheels" / "3")
    assert (code, refused["error"]["code"]) == (1, "no-wheel"), refused
    code, done = splatfix(*words, "--index", wheels / "wheels" / "0")
    assert code == 0, done
    (item,) = done["outcome"]["items"]
    assert item["modules"] == ["found_probe", "found_probe._C"]
    assert [rung["reached"] for rung in item["proof"]][:3] == [True, True, True]
    code, back = splatfix("revert", "--python", native.python)
    assert code == 0 and not list(native.purelib.glob("found_probe*")), back
