"""The host compiler against nvcc's and torch's limits, and Visual Studio's prompt."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from splatfix.context.toolchain import Toolchain
from splatfix.model import Compiler, Fact
from tests.binaries import oracle
from tests.knowledge.torch_sources import TorchSource, torch_sources

from .conftest import Changer

FIFTEEN = Compiler("g++", "/usr/bin/g++", "15.1.0", ("PATH",))


@pytest.mark.parametrize(
    "variable", ["CC", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS -ccbin", "NVCC_APPEND_FLAGS -ccbin"]
)
def test_what_nvcc_is_given_is_not_what_torch_asks_for(changed: Changer, variable: str) -> None:
    given = Compiler("g++", "/opt/bin/g++", "13.1.0", (variable,))
    by_torch = Toolchain(changed(compilers=Fact((FIFTEEN, given), ""))).host_compiler
    assert by_torch is not None and (by_torch.path == "/opt/bin/g++") == (variable == "CC")


@pytest.mark.parametrize("source", torch_sources(), ids=lambda source: source.version)
def test_torch_hands_cc_to_nvcc_and_asks_cxx_itself(source: TorchSource) -> None:
    """And stops in a prompt of Visual Studio without DISTUTILS_USE_SDK."""
    text = source.text("utils/cpp_extension.py")
    assert re.search(r"""getenv\(["']CC["']\)""", text) and "-ccbin" in text
    assert re.search(r"""environ\.get\(["']CXX["'], ["']c\+\+["']\)""", text)
    assert "CUDAHOSTCXX" not in text
    assert "'VSCMD_ARG_TGT_ARCH' in os.environ and 'DISTUTILS_USE_SDK' not in os.environ" in text


@pytest.mark.native
def test_nvcc_takes_the_compiler_that_we_say(tmp_path: Path, changed: Changer) -> None:
    """nvcc's own ``--dryrun`` over every combination of its variables, with ``-ccbin`` for torch's CC."""
    nvcc, gcc = oracle.tool("nvcc"), oracle.tool("gcc")
    settings = {
        "NVCC_APPEND_FLAGS": "NVCC_APPEND_FLAGS -ccbin",
        "CC": "CC",
        "NVCC_PREPEND_FLAGS": "NVCC_PREPEND_FLAGS -ccbin",
        "NVCC_CCBIN": "NVCC_CCBIN",
    }
    (tmp_path / "k.cu").write_text("__global__ void k() {}\n")
    for name in settings:
        (tmp_path / f"of_{name}").symlink_to(gcc)
    for number in range(2 ** len(settings)):
        chosen = [name for place, name in enumerate(settings) if number >> place & 1]
        env = {key: value for key, value in os.environ.items() if key not in settings}
        flags = []
        for name in chosen:
            path = str(tmp_path / f"of_{name}")
            if name == "CC":
                flags = ["-ccbin", path]
            else:
                env[name] = path if name == "NVCC_CCBIN" else f"-ccbin {path}"
        argv = [nvcc, *flags, "--dryrun", str(tmp_path / "k.cu")]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=env, check=False)
        called = set(re.findall(r'^#\$ "?\S*/of_(\w+)"? -', done.stderr, re.MULTILINE))
        here = (*(Compiler("gcc", name, "12.2.0", (settings[name],)) for name in chosen), FIFTEEN)
        ours = Toolchain(changed(compilers=Fact(here, ""))).nvcc_host_compiler
        assert ours is not None
        assert called == ({ours.path} if chosen else set()), (chosen, done.stderr[:400])
