"""The host compiler against nvcc's and torch's limits, and Visual Studio's prompt."""

import dataclasses
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from splatfix.checks import run_checks
from splatfix.context import make_context
from splatfix.context.toolchain import Toolchain
from splatfix.core.step import commands
from splatfix.facts import Compiler, Fact, Facts, Toolkit
from tests.knowledge.torch_sources import TorchSource, torch_sources

from .conftest import Changer, loud, only

TWELVE = Compiler("g++", "/usr/bin/g++-12", "12.3.0", ("PATH",))
THIRTEEN = Compiler("g++", "/usr/bin/g++-13", "13.3.0", ("PATH",))
FIFTEEN = Compiler("g++", "/usr/bin/g++", "15.1.0", ("PATH",))


def named(variable: str, version: str = "13.1.0") -> Compiler:
    return Compiler("g++", "/opt/bin/g++", version, (variable,))


@pytest.mark.parametrize(
    "variable", ["CC", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS -ccbin", "NVCC_APPEND_FLAGS -ccbin"]
)
def test_what_nvcc_is_given_counts_for_nvcc(changed: Changer, variable: str) -> None:
    found = {
        item.code: item
        for item in run_checks(make_context(changed(compilers=Fact((FIFTEEN, named(variable)), ""))))
    }
    assert found["host-gcc-too-new"].status.value == "pass"
    assert "/opt/bin/g++" in found["host-gcc-too-new"].evidence[0].value
    by_torch = Toolchain(changed(compilers=Fact((FIFTEEN, named(variable)), ""))).host_compiler
    assert by_torch is not None and (by_torch.path == "/opt/bin/g++") == (variable == "CC")


def test_gcc_and_another_gxx_on_path(changed: Changer) -> None:
    """nvcc calls gcc; a link g++ of another version beside it does not help."""
    gcc = Compiler("gcc", "/usr/bin/gcc", "15.1.0", ("PATH",))
    facts = changed(compilers=Fact((gcc, Compiler("g++", "/usr/local/bin/g++", "13.3.0", ("PATH",))), ""))
    assert "gcc 15.1.0 is newer" in only(facts, "host-gcc-too-new").summary
    same = changed(compilers=Fact((dataclasses.replace(gcc, version="13.3.0"), named("PATH", "13.3.0")), ""))
    chosen = Toolchain(same).nvcc_host_compiler
    assert chosen is not None and chosen.kind == "g++"


def test_one_that_torch_refuses_is_not_named_for_nvcc(changed: Changer) -> None:
    facts = changed(compilers=Fact((FIFTEEN, Compiler("g++", "/usr/bin/g++-7", "7.5.0", ("PATH",))), ""))
    (step,) = loud(facts)["host-gcc-too-new"].remedy
    assert not step.command and "g++-7" not in step.text and "Install g++-14" in step.text


def test_one_that_nvcc_refuses_is_not_named_for_torch(changed: Changer, rtx_5080: Facts) -> None:
    (toolkit,) = rtx_5080.machine.toolkits.value or ()
    eight = Compiler("g++", "/usr/bin/g++", "8.5.0", ("PATH",))
    narrow: Toolkit = dataclasses.replace(toolkit, gcc_max=12)
    facts = changed(compilers=Fact((eight, THIRTEEN, TWELVE), ""), toolkits=Fact((narrow,), "PATH"))
    assert ("CXX", "/usr/bin/g++-12") in commands(loud(facts)["host-gcc-too-old"].remedy)[0].env
    facts = changed(compilers=Fact((eight, THIRTEEN), ""), toolkits=Fact((narrow,), "PATH"))
    assert not loud(facts)["host-gcc-too-old"].remedy[0].command


@pytest.mark.parametrize("source", torch_sources(), ids=lambda source: source.version)
def test_torch_hands_cc_to_nvcc_and_asks_cxx_itself(source: object) -> None:
    text = source.text("utils/cpp_extension.py")  # type: ignore[attr-defined]
    assert re.search(r"""getenv\(["']CC["']\)""", text) and "-ccbin" in text
    assert re.search(r"""environ\.get\(["']CXX["'], ["']c\+\+["']\)""", text)
    assert "CUDAHOSTCXX" not in text


@pytest.mark.native
def test_nvcc_takes_the_compiler_that_we_say(tmp_path: Path, changed: Changer) -> None:
    """nvcc's own ``--dryrun`` over every combination of its variables, with ``-ccbin`` for torch's CC."""
    nvcc, gcc = shutil.which("nvcc"), shutil.which("gcc")
    if nvcc is None or gcc is None:
        if os.environ.get("SPLATFIX_NATIVE_LANE") == "1":
            pytest.fail("the native lane is not complete: no nvcc, or no gcc")
        pytest.skip("no nvcc, or no gcc")
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
        done = subprocess.run(
            [nvcc, *flags, "--dryrun", str(tmp_path / "k.cu")],
            capture_output=True,
            text=True,
            timeout=60,
            env=env,
            check=False,
        )
        called = set(re.findall(r'^#\$ "?\S*/of_(\w+)"? -', done.stderr, re.MULTILINE))
        here = (*(Compiler("gcc", name, "12.2.0", (settings[name],)) for name in chosen), FIFTEEN)
        ours = Toolchain(changed(compilers=Fact(here, ""))).nvcc_host_compiler
        assert ours is not None
        assert called == ({ours.path} if chosen else set()), (chosen, done.stderr[:400])


@pytest.mark.parametrize("torch", torch_sources(), ids=lambda item: item.version)
def test_torch_does_stop_there(torch: TorchSource) -> None:
    text = torch.text("utils/cpp_extension.py")
    assert "'VSCMD_ARG_TGT_ARCH' in os.environ and 'DISTUTILS_USE_SDK' not in os.environ" in text
