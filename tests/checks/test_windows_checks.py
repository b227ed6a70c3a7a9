"""What only Windows lacks: cl on PATH, the 64-bit cl, the Visual C++ runtime."""

from __future__ import annotations

import dataclasses

import pytest

from splatfix.checks import Finding, Status, run_checks
from splatfix.context import Goal, make_context
from splatfix.core.step import set_variable
from splatfix.facts import Compiler, Distribution, Fact, Facts
from tests.knowledge.torch_sources import TorchSource, torch_sources

from .conftest import Changer
from .test_checkout_checks import source, with_checkout

X64 = "C:\\VS\\VC\\Tools\\MSVC\\14.39.33519\\bin\\Hostx64\\x64\\cl.exe"
GSPLAT = Fact(
    (Distribution("gsplat", "1.5.3", "C:/env"), Distribution("setuptools", "80", "C:/env")), "site-packages"
)


def of(facts: Facts, code: str) -> list[Finding]:
    return [item for item in run_checks(make_context(facts, Goal())) if item.code == code]


def cl(path: str, *via: str) -> Fact[tuple[Compiler, ...]]:
    return Fact((Compiler("cl", path, "19.39", via),), "PATH, vswhere")


def test_cl_off_the_path(changed: Changer) -> None:
    studio = cl(X64, "vswhere: Visual Studio 2022")
    facts = changed(system="windows", compilers=studio, distributions=GSPLAT)
    assert of(facts, "msvc-not-on-path")[0].status is Status.WARN
    assert not of(changed(system="windows", compilers=studio), "msvc-not-on-path"), (
        "setup.py finds it by itself"
    )
    on_path = changed(system="windows", compilers=cl(X64, "PATH"), distributions=GSPLAT)
    assert not of(on_path, "msvc-not-on-path")


@pytest.mark.parametrize(
    ("path", "via", "prompt", "fails"),
    [
        (X64, "PATH", "x64", False),
        (X64, "PATH", "x86", True),
        (X64.replace("x64\\cl", "x86\\cl"), "PATH", "", True),
        (X64.replace("Hostx64", "Hostx86"), "PATH", "", True),
        (X64.replace("x64\\cl", "x86\\cl"), "vswhere: Visual Studio", "", False),
        ("C:/VS/bin/Hostx86/x86/cl.exe", "PATH", "", True),
    ],
)
def test_the_32_bit_compiler(changed: Changer, path: str, via: str, prompt: str, fails: bool) -> None:
    facts = changed(system="windows", compilers=cl(path, via), variables={"VSCMD_ARG_TGT_ARCH": prompt})
    found = of(facts, "msvc-x86-host")
    assert [item.status for item in found] == ([Status.FAIL] if fails else [])


def test_the_visual_cpp_runtime(changed: Changer, rtx_5080: Facts) -> None:
    lost: Fact[tuple[str, ...]] = Fact(("vcruntime140_1.dll",), "C:/Windows/System32")
    assert (
        of(changed(system="windows", missing_msvc_runtime=lost), "msvc-runtime-missing")[0].status
        is Status.WARN
    )
    assert not of(changed(missing_msvc_runtime=Fact((), "C:/Windows/System32")), "msvc-runtime-missing")
    assert not of(changed(), "msvc-runtime-missing"), "not looked at"
    python = rtx_5080.environment.interpreter.value
    assert python is not None
    conda = Fact(dataclasses.replace(python, kind="conda"), "probe")
    assert not of(changed(missing_msvc_runtime=lost, interpreter=conda), "msvc-runtime-missing"), (
        "it brings its own"
    )


@pytest.mark.parametrize(
    ("system", "variables", "waits", "status"),
    [
        ("windows", {"VSCMD_ARG_TGT_ARCH": "x64"}, True, Status.WARN),
        ("windows", {"VSCMD_ARG_TGT_ARCH": "x64"}, False, Status.SKIP),
        ("windows", {"VSCMD_ARG_TGT_ARCH": "x64", "DISTUTILS_USE_SDK": "1"}, True, None),
        ("windows", {}, True, None),
        ("linux", {"VSCMD_ARG_TGT_ARCH": "x64"}, True, None),
    ],
)
def test_a_prompt_that_torch_does_not_build_from(
    changed: Changer, system: str, variables: dict[str, str], waits: bool, status: Status | None
) -> None:
    facts = changed(system=system, variables=variables, compilers=cl(X64, "PATH"))
    facts = with_checkout(facts, sources=(source("other"),)) if waits else facts
    found = of(facts, "distutils-use-sdk-unset")
    assert [item.status for item in found] == ([status] if status else [])
    assert [step for item in found for step in item.remedy] == (
        [set_variable("DISTUTILS_USE_SDK", "1")] if status else []
    )


@pytest.mark.parametrize("torch", torch_sources(), ids=lambda item: item.version)
def test_torch_does_stop_there(torch: TorchSource) -> None:
    text = torch.text("utils/cpp_extension.py")
    assert "'VSCMD_ARG_TGT_ARCH' in os.environ and 'DISTUTILS_USE_SDK' not in os.environ" in text
