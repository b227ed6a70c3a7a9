"""Symbols of a real CUDA torch; what one lacks that does not fit, and its ABI: tests/facts/environment, as the loader says."""

from pathlib import Path

import pytest

from splatfix.core.runner import ProcessRunner
from splatfix.facts import LiveSystem
from splatfix.facts.environment import probe as environment
from splatfix.install.environment import Environment
from tests.facts.environment.native_files import NEW_ABI, extension

pytestmark = pytest.mark.native


def test_symbols_of_a_real_torch(native: Environment, cuda_site: Path) -> None:
    lib = cuda_site / "torch" / "lib"
    # names that libc10 really exports, taken from its own table by binutils
    listed = ProcessRunner().run(["nm", "-D", "--defined-only", lib / "libc10.so"], timeout=120)
    assert listed.ok, listed.why()
    real = sorted({line.split()[-1].split("@")[0] for line in listed.stdout.splitlines() if " T _ZN" in line})
    own = [name for name in real if name.startswith("_ZN3c10")][:300]
    assert len(own) == 300
    extension(native.purelib, [*own, NEW_ABI], lib / "libc10.so")
    result = environment.probe(LiveSystem(), str(native.python))
    (linkage,) = (item.linkage for item in result.extensions.value or () if item.path.startswith("pkg"))
    assert linkage is not None and linkage.torch_symbols == len({*own, NEW_ABI})
    assert linkage.torch_missing == ()
    assert linkage.cxx11_abi is True


def test_one_library_of_each_kind(native: Environment) -> None:
    """A healthy environment has no second runtime and bundles nothing."""
    result = environment.probe(LiveSystem(), str(native.python))
    copies = [item for item in result.runtime_copies.value or () if item.library in ("libc10", "libcudart")]
    assert sorted(item.library for item in copies) == ["libc10", "libcudart"]
    assert not any(item.bundled for item in copies)
