"""Sources to be built: isolation, submodules, and what stops them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from splatfix.checks import Finding, Status
from splatfix.facts import (
    CheckoutSource,
    Distribution,
    Fact,
    Facts,
    NativeModule,
    Source,
    read_source,
)

from .conftest import Changer, installed, of, statuses
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
