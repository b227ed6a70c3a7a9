"""CUDA toolkits wherever they are installed, and the one torch would choose."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from splatfix.facts import System
from splatfix.facts.machine import toolkits
from splatfix.facts.system.playback import PlaybackSystem
from splatfix.model import Toolkit
from tests.facts.conftest import MachineOf
from tests.files import put
from tests.tables import data

Script = Callable[[Path, str], Path]

TABLE = data(__file__)
TEXTS: dict[str, str] = TABLE["texts"]


@pytest.fixture
def toolkit(tmp_path: Path, script: Script) -> Path:
    """A toolkit folder with a stand-in nvcc that gives recorded answers, complete but for cuSPARSE."""
    root = tmp_path / "cuda-13.0"
    script(root / "bin" / "nvcc", TEXTS["nvcc-13"])
    parts = ["bin/ptxas", "bin/cudafe++", "nvvm/bin/cicc", "nvvm/libdevice/libdevice.10.bc"]
    headers = [name for name in toolkits.NEEDED_HEADERS if name != "cusparse.h"]
    parts += ["lib64/libcudart.so", *(f"include/{name}" for name in headers)]
    return put(root, {**dict.fromkeys(parts, ""), "include/crt/host_config.h": TEXTS["host-config"]})


def found_at(root: Path, **env: str) -> Toolkit:
    """The toolkit of this folder, as it is found under these variables."""
    result = toolkits.probe(system(**env))
    return next(item for item in result.value or () if Path(item.root) == root)


def system(**env: str) -> System:
    return System(env={"PATH": "/usr/bin:/bin", **env})


def test_a_toolkit_describes_itself(toolkit: Path, script: Script) -> None:
    item = found_at(toolkit, CUDA_HOME=str(toolkit))
    assert (item.version, item.archs) == ("13.0.88", ("sm_75", "sm_80", "sm_90", "sm_120"))
    assert (item.gcc_max, item.clang_max) == (15, 20)
    assert (item.missing, item.found_via) == (("include/cusparse.h",), ("CUDA_HOME",))
    script(toolkit / "bin" / "nvcc", "#!/bin/sh\necho broken >&2; exit 3\n")
    item = found_at(toolkit, CUDA_HOME=str(toolkit))
    assert item.version is None and "exit code 3: broken" in item.error


def test_wrapper_scripts_and_links_are_seen_through(toolkit: Path, tmp_path: Path, script: Script) -> None:
    local = tmp_path / "local"
    path = f"{local}/bin:/usr/bin:/bin"
    wrapper = script(local / "bin" / "nvcc", f'#!/bin/sh\nexec {toolkit}/bin/nvcc "$@"\n')
    item = found_at(toolkit, PATH=path)
    assert (item.wrapper, item.on_path) == (str(wrapper), (str(wrapper),))
    choice = toolkits.torch_choice(system(PATH=path), torch_is_cuda=True)
    assert (choice.root, choice.real_root, choice.has_headers) == (str(local), str(toolkit), False)
    wrapper.unlink()
    wrapper.symlink_to(toolkit / "bin" / "nvcc")
    item = found_at(toolkit, PATH=path)
    assert item.wrapper is None and len(item.on_path) == 1


def test_a_cpu_build_of_torch_chooses_nothing(toolkit: Path) -> None:
    choice = toolkits.torch_choice(system(CUDA_HOME=str(toolkit)), torch_is_cuda=False)
    assert choice.root is None and "without CUDA" in choice.rule


def test_the_choice_is_torchs_own(toolkit: Path, tmp_path: Path, script: Script) -> None:
    """torch's `_find_cuda_home` and ours, over a grid of environments: variables set, empty, wrong; nvcc behind a
    wrapper, a link, nothing."""
    pytest.importorskip("torch")
    wrapper = script(tmp_path / "local" / "bin" / "nvcc", f'#!/bin/sh\nexec {toolkit}/bin/nvcc "$@"\n')
    paths = ["/usr/bin:/bin", f"{wrapper.parent}:/usr/bin", f"{toolkit}/bin:{wrapper.parent}"]
    paths.append(f"/no/such:{toolkit}/bin")
    values = [None, "", str(toolkit), "/no/such/folder"]
    grid = []
    for path, home, other in product(paths, values, values):
        env = {"PATH": path, "CUDA_HOME": home, "CUDA_PATH": other}
        grid.append({name: value for name, value in env.items() if value is not None})
    argv = [sys.executable, "-c", TEXTS["ask-torch"], json.dumps(grid)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
    wanted = json.loads(done.stdout.splitlines()[-1])
    ours = [toolkits.torch_choice(System(env=env), torch_is_cuda=True).root for env in grid]
    assert list(zip(ours, grid, strict=True)) == list(zip(wanted, grid, strict=True))
    assert len(set(map(str, wanted))) >= 4, "the grid must tell the rules apart"


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on PATH")
def test_the_real_nvcc_of_this_machine() -> None:
    nvcc = str(shutil.which("nvcc"))
    root = toolkits.ask_root(System(), nvcc)
    assert Path(root, "bin", "nvcc").exists()
    item = found_at(Path(os.path.realpath(root)), **os.environ)
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    assert item.version and item.version in said and isinstance(item.gcc_max, int)
    assert "sm_120" in item.archs or item.version < "12.8"


VERSION = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 12.4, V12.4.131\n"
SITE = "/env/lib/python3.11/site-packages"
LIMITS = "#if __GNUC__ > 13\n#if _MSC_VER < 1910 || _MSC_VER >= 1950\n"


def roots(machine: PlaybackSystem, *brought: tuple[str, ...]) -> dict[str, toolkits.Toolkit]:
    return {item.root: item for item in toolkits.probe(machine, *brought).value or ()}


@pytest.mark.parametrize(("root", "given", "told", "missing", "there"), TABLE["layouts"])
def test_layouts(
    machine_of: MachineOf, root: str, given: dict[str, Any], told: dict[str, Any], missing: str, there: str
) -> None:
    """The HPC SDK's folders; conda's, which keeps headers under targets, also without an nvcc."""
    item = roots(machine_of(**given))[root]
    assert {name: getattr(item, name) for name in told} == told
    assert missing in item.missing and there not in item.missing


@pytest.mark.parametrize(("version", "elsewhere"), TABLE["elsewhere"].items())
def test_missing_headers_in_the_environments_packages(
    machine_of: MachineOf, version: str, elsewhere: dict[str, str]
) -> None:
    """Headers of CUDA 13 are none for a toolkit 12.4, nor the other way round."""
    root = f"/usr/local/cuda-{version}"
    brought = ["cublas/include/cublas_v2.h", "cusparse/include/cusparse.h", "nccl/lib/libnccl.so.2"]
    brought += ["cu13/include/cublasLt.h", "cu13/include/cccl/cub/cub.cuh"]
    box = machine_of(
        files={f"{root}/include/crt/host_config.h": LIMITS},
        exists=[f"{root}/bin/nvcc", *(f"{SITE}/nvidia/{name}" for name in brought)],
        commands={(f"{root}/bin/nvcc", "--version"): VERSION.replace("12.4", version)},
    )
    packaged = toolkits.packaged(box, [SITE])
    assert packaged == tuple(f"{SITE}/nvidia/{name}" for name in ("cu13", "cublas", "cusparse", "nccl"))
    item = roots(box, packaged)[root]
    wanted = {header: f"{SITE}/nvidia/{folder}" for header, folder in elsewhere.items()}
    assert item.elsewhere == wanted and "include/cusolverDn.h" in item.missing
