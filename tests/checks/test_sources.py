"""Sources to be built: isolation, submodules, and what stops them."""

from pathlib import Path

from splatfix.checks import Finding, Status
from splatfix.facts import (
    CheckoutSource,
    Facts,
    NativeModule,
    Source,
    read_source,
)

from .conftest import of
from .test_checkout import source, with_checkout

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
