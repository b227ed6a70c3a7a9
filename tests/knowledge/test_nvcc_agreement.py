"""Our tables against the CUDA toolkit of this machine: nvcc's and ptxas's lists, PTX targets and host_config.h."""

import itertools
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from splatfix.knowledge.archs import Arch, known_archs, ptx_runs_on, toolkit_supports
from splatfix.knowledge.drivers import ptx_isa_of_cuda
from splatfix.knowledge.host_compilers import limits
from tests.binaries import oracle

pytestmark = pytest.mark.native


def toolkits() -> list[Path]:
    on_path = shutil.which("nvcc")
    roots = [Path(os.environ["CUDA_HOME"])] if os.environ.get("CUDA_HOME") else []
    roots += [Path(on_path).resolve().parent.parent] if on_path else []
    roots += sorted(Path("/usr/local").glob("cuda*"))
    return sorted({root.resolve() for root in roots if (root / "include/crt/host_config.h").is_file()})


@pytest.fixture(params=toolkits() or [None], ids=str)
def toolkit(request: pytest.FixtureRequest) -> Path:
    root: Path = oracle.required(request.param, "nvcc, to hold our tables against")
    return root


def cuda_of(toolkit: Path) -> tuple[int, int]:
    found = re.search(r"release (\d+)\.(\d+)", oracle.run(toolkit / "bin/nvcc", "--version"))
    return int(found[1]), int(found[2])


def test_nvcc_and_ptxas_list_what_the_table_says(toolkit: Path) -> None:
    cuda = cuda_of(toolkit)
    listed = oracle.run(toolkit / "bin/nvcc", "--list-gpu-code").split()
    listed = [name for name in listed if not name.endswith(("a", "f"))]
    # ptxas lists the variants
    listed += re.findall(r"'(sm_\d+[af])'", oracle.run(toolkit / "bin/ptxas", "--help"))
    letters = itertools.product(known_archs(), ("", "a", "f"))
    known = [Arch(plain.major, plain.minor, letter) for plain, letter in letters]
    assert {arch.sm for arch in known if toolkit_supports(cuda, arch)} == set(listed)


def test_ptxas_takes_ptx_as_our_rule_does(toolkit: Path, tmp_path: Path) -> None:
    cuda = cuda_of(toolkit)
    isa = ptx_isa_of_cuda(cuda)
    plain = [arch for arch in known_archs() if toolkit_supports(cuda, arch)]
    targets = [
        target
        for arch, letter in itertools.product(plain, ("", "a", "f"))
        if toolkit_supports(cuda, target := Arch(arch.major, arch.minor, letter))
    ]
    for target in targets:
        source = tmp_path / f"{target.sm}.ptx"
        source.write_text(f".version {isa[0]}.{isa[1]}\n.target {target.sm}\n.address_size 64\n")
        for device in plain:
            argv = [toolkit / "bin/ptxas", f"-arch={device.sm}", source, "-o", tmp_path / "out.cubin"]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
            # A device is a plain number for the driver; for ptxas the "a" of the same number must be asked for.
            expected = ptx_runs_on(target, device) and not (target.variant == "a" and target.plain == device)
            assert (done.returncode == 0) == expected, (target.sm, device.sm, done.stderr)
        if target.variant == "a":
            oracle.run(toolkit / "bin/ptxas", f"-arch={target.sm}", source, "-o", tmp_path / "out.cubin")


def test_ptx_version(toolkit: Path, tmp_path: Path) -> None:
    source = tmp_path / "empty.cu"
    source.write_text("__global__ void k() {}\n")
    oracle.run(toolkit / "bin/nvcc", "-ptx", source, "-o", tmp_path / "out.ptx")
    text = (tmp_path / "out.ptx").read_text()
    cuda = cuda_of(toolkit)
    version = re.search(r"\.version (\d+)\.(\d+)", text)
    assert ptx_isa_of_cuda(cuda) == (int(version[1]), int(version[2]))


def test_host_config_header(toolkit: Path) -> None:
    text = (toolkit / "include/crt/host_config.h").read_text(errors="replace")
    row = limits(cuda_of(toolkit))
    gcc = re.search(r"^#if __GNUC__ > (\d+)", text, re.M)
    clang = re.search(r"^#if \(__clang_major__ >= (\d+)\)", text, re.M)
    msvc = re.search(r"^#if _MSC_VER < (\d+) \|\| _MSC_VER >= (\d+)", text, re.M)
    assert row and gcc and clang and msvc
    assert row.gcc_max_major == int(gcc[1])
    assert row.clang_max_major == int(clang[1]) - 1
    assert row.msvc == (int(msvc[1]), int(msvc[2]) - 1)
