"""Sources to be built: isolation, submodules, and what stops them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from splatfix.checks import Finding, Status
from splatfix.core.step import commands
from splatfix.facts import (
    CheckoutSource,
    Compiler,
    Distribution,
    Fact,
    Facts,
    Gpu,
    NativeModule,
    Source,
    read_source,
)

from .conftest import Changer, TorchWith, installed, of, statuses, with_python
from .test_checkout import source, with_checkout


def waiting(changed: Changer, pip: str, requires: tuple[str, ...] | None = None) -> Facts:
    item = source("other")
    if requires is not None:
        inner = dataclasses.replace(
            item.source, build_files=("setup.py", "pyproject.toml"), build_requires=requires
        )
        item = dataclasses.replace(item, source=inner)
    have = installed(ninja="1.11", pip=pip) if pip else installed(ninja="1.11")
    return with_checkout(changed(distributions=have), sources=(item,))


@pytest.mark.parametrize(
    ("pip", "requires", "warns"),
    [
        ("25.3", None, True),
        ("26.1", None, True),
        ("25.2", None, False),
        ("23.0.1", None, False),
        ("23.0.1", ("setuptools", "wheel"), True),
        ("25.2", ("setuptools", "torch"), True),  # torch, but another one
        ("25.2", ("setuptools", "torch==2.9.1"), False),
    ],
)
def test_pip_and_its_isolation(
    changed: Changer, pip: str, requires: tuple[str, ...] | None, warns: bool
) -> None:
    (finding,) = of(waiting(changed, pip, requires), "build-isolation-enabled")
    assert (finding.status is Status.WARN) is warns
    if warns:
        command = "/env/bin/python -m pip install --no-build-isolation /home/u/gs/submodules/other"
        assert finding.remedy[0].line() == command


def test_who_builds_is_not_known(changed: Changer) -> None:
    assert not of(waiting(changed, ""), "build-isolation-enabled")
    (finding,) = of(with_python(waiting(changed, ""), kind="uv"), "build-isolation-enabled")
    assert finding.remedy[0].line().startswith("uv pip install --python /env/bin/python --no-build-isolation")


def test_without_setuptools_old_pip_isolates_too(changed: Changer) -> None:
    bare = Fact((Distribution("pip", "24.0", "/env"),), "")
    facts = with_checkout(changed(distributions=bare), sources=(source("other"),))
    assert of(facts, "build-isolation-enabled")[0].status is Status.WARN


@pytest.mark.parametrize(
    ("pip", "wheel", "isolates"),
    [
        ("23.0.1", False, False),
        ("23.1", False, True),
        ("25.2", False, True),
        ("25.2", True, False),
        ("25.3", True, True),
    ],
)
def test_without_wheel_pip_isolates_from_231_on(
    changed: Changer, pip: str, wheel: bool, isolates: bool
) -> None:
    """load_pyproject_toml of pip 23.0.1, 23.1 and 25.2, read; a venv of Python 3.12 has neither setuptools nor wheel."""
    have = tuple(item for item in installed(pip=pip).value or () if wheel or item.name != "wheel")
    facts = with_checkout(changed(distributions=Fact(have, "")), sources=(source("other"),))
    assert statuses(facts, "build-isolation-enabled") == ("warn" if isolates else "pass")


@pytest.mark.parametrize(
    ("imports", "setuptools", "limit"),
    [
        (("pkg_resources", "pkg_resources.parse_version"), "82.0.1", 82),
        (("pkg_resources",), "81.0", None),
        (("pkg_resources", "pkg_resources.packaging"), "75.0", 70),
        ((), "84.0", None),
    ],
)
def test_what_a_setup_py_imports_of_setuptools(
    changed: Changer, imports: tuple[str, ...], setuptools: str, limit: int | None
) -> None:
    """The setup.py of tiny-cuda-nn imports pkg_resources, though torch's own builder no longer does."""
    have = installed(setuptools=setuptools)
    facts = with_checkout(changed(distributions=have), sources=(source("tinycudann", imports=imports),))
    found = of(facts, "setuptools-incompatible")
    asked = [command.argv[-1] for item in found for command in commands(item.remedy)]
    assert asked == ([f"setuptools<{limit}"] if limit else [])
    assert all("tinycudann imports" in item.summary for item in found)


@pytest.mark.parametrize(
    ("system", "torch", "flags", "warns"),
    [
        ("windows", "2.9.1", (), True),
        ("windows", "2.11.0", ("-O3",), True),
        ("windows", "2.11.0", ("-DUSE_CUDA",), False),
        ("windows", "2.4.1", (), False),
        ("linux", "2.11.0", (), False),
    ],
)
def test_an_ambiguous_std(
    changed: Changer, torch_with: TorchWith, system: str, torch: str, flags: tuple[str, ...], warns: bool
) -> None:
    cl = Fact((Compiler("cl", "C:\\VS\\Hostx64\\x64\\cl.exe", "19.40", ("PATH",)),), "vswhere")
    facts = changed(system=system, torch=torch_with(version=torch), compilers=cl)
    assert bool(of(with_checkout(facts, sources=(source("other", flags),)), "msvc-std-ambiguous")) is warns


GTX_1080 = Fact((Gpu(0, "NVIDIA GeForce GTX 1080", cc="6.1"),), "NVML")


@pytest.mark.parametrize(
    ("name", "version", "told"),
    [
        ("diff_gaussian_rasterization_fastgs", None, True),
        ("gsplat", "1.5.3", True),
        ("gsplat", "0.1.11", False),
        ("gsplat", None, False),
        ("diff_gaussian_rasterization", None, False),
        ("simple_knn", None, False),
    ],
)
def test_a_source_that_this_gpu_cannot_run(
    changed: Changer, name: str, version: str | None, told: bool
) -> None:
    made = source(name)
    named = dataclasses.replace(made, source=dataclasses.replace(made.source, version=version))
    facts = with_checkout(changed(gpus=GTX_1080, extensions=Fact((), "")), sources=(named,))
    assert [item.status for item in of(facts, "arch-below-minimum")] == ([Status.FAIL] if told else [])
    assert not of(with_checkout(changed(extensions=Fact((), "")), sources=(named,)), "arch-below-minimum")


SETUP = """
from setuptools import setup
from torch.utils.cpp_extension import CUDAExtension, BuildExtension
setup(name="rasterizer", packages=["rasterizer"], ext_modules=[
    CUDAExtension(name="rasterizer._C", sources=["cuda/forward.cu", "ext.cpp"])], cmdclass={"build_ext": BuildExtension})
"""


def test_a_file_that_setup_py_names_and_nobody_has(rtx_5080: Facts, tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(SETUP)
    (tmp_path / "ext.cpp").write_text("")
    (tmp_path / "cuda").mkdir()

    def checked() -> list[Finding]:
        item = CheckoutSource(".", read_source(tmp_path))
        return of(with_checkout(rtx_5080, sources=(item,)), "source-incomplete")

    (said,) = checked()
    assert said.status is Status.FAIL and said.summary == "rasterizer lacks cuda/forward.cu."
    assert said.evidence[0].value.endswith("not there: cuda/forward.cu") and said.remedy
    (tmp_path / "cuda" / "forward.cu").write_text("")
    assert not checked()


def test_every_missing_file_is_named_once(rtx_5080: Facts) -> None:
    lost = NativeModule("a._C", ("x.cu", "y.cu"), ("x.cu", "y.cu"))
    item = CheckoutSource(
        "submodules/a", Source("/s/a", ("setup.py",), "a", modules=(lost,), needs_cuda=True)
    )
    (said,) = of(with_checkout(rtx_5080, sources=(item, source("b"))), "source-incomplete")
    assert "x.cu, y.cu" in said.summary and said.subject == "submodules/a"
