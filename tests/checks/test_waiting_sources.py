"""Sources that wait to be built: what stops them is said before, and nothing is said of their healthy neighbours."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from splatfix.checks import Finding, Status, run_checks
from splatfix.context import Goal, make_context
from splatfix.facts import CheckoutSource, Fact, Facts, Gpu, NativeModule, Source, read_source

from .conftest import Changer
from .test_checkout_checks import source, with_checkout

GTX_1080 = Fact((Gpu(0, "NVIDIA GeForce GTX 1080", cc="6.1"),), "NVML")


def of(facts: Facts, code: str) -> list[Finding]:
    return [item for item in run_checks(make_context(facts, Goal())) if item.code == code]


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
