"""Symbols of a real CUDA torch: extensions that fit it, and one that asks for what it does not have."""

from pathlib import Path

import pytest

from splatfix.checks import Status, run_checks
from splatfix.context import Goal, make_context
from splatfix.core.runner import ProcessRunner
from splatfix.facts import Extension, Linkage, LiveSystem, gather
from splatfix.facts.environment import probe as environment
from splatfix.install.environment import Environment
from tests.facts.environment.native_files import NEW_ABI, OLD_ABI, extension, load

pytestmark = pytest.mark.native

GONE = "_ZN3c1010TensorImpl25splatfix_never_exportedEv"


def lone(target: Environment) -> tuple[Extension, Linkage]:
    result = environment.probe(LiveSystem(), str(target.python))
    (item,) = (item for item in result.extensions.value or () if item.path.startswith("pkg"))
    assert item.linkage is not None
    return item, item.linkage


def test_symbols_of_a_real_torch(native: Environment, cuda_site: Path) -> None:
    lib = cuda_site / "torch" / "lib"
    # names that libc10 really exports, taken from its own table by binutils
    listed = ProcessRunner().run(["nm", "-D", "--defined-only", lib / "libc10.so"], timeout=120)
    assert listed.ok, listed.why()
    real = sorted({line.split()[-1].split("@")[0] for line in listed.stdout.splitlines() if " T _ZN" in line})
    own = [name for name in real if name.startswith("_ZN3c10")][:300]
    assert len(own) == 300
    extension(native.purelib, [*own, NEW_ABI], lib / "libc10.so")
    _, linkage = lone(native)
    assert linkage.torch_symbols == len({*own, NEW_ABI})
    assert linkage.torch_missing == ()
    assert linkage.cxx11_abi is True


def test_missing_symbols_are_those_of_the_loader(native: Environment, cuda_site: Path) -> None:
    lib = cuda_site / "torch" / "lib"
    built = extension(
        native.purelib, [NEW_ABI, GONE], lib / "libc10.so", flags=["-Wl,--allow-shlib-undefined"]
    )
    _, linkage = lone(native)
    assert linkage.torch_missing == (GONE,)
    probe = environment.try_import(LiveSystem(), str(native.python), "pkg._C")
    assert not probe.ok and GONE in probe.detail
    assert GONE in load(built, lib / "libc10.so")
    facts = gather(str(native.python))
    (finding,) = (
        item for item in run_checks(make_context(facts, Goal())) if item.code == "torch-abi-mismatch"
    )
    assert finding.status is Status.FAIL


def test_the_old_string_abi_is_found(native: Environment, cuda_site: Path) -> None:
    extension(native.purelib, [OLD_ABI], cuda_site / "torch" / "lib" / "libc10.so")
    facts = gather(str(native.python))
    assert facts.environment.torch.value is not None and facts.environment.torch.value.cxx11_abi is True
    assert [
        item.status for item in run_checks(make_context(facts, Goal())) if item.code == "cxx11-abi-mismatch"
    ] == [Status.FAIL]


def test_one_library_of_each_kind(native: Environment) -> None:
    """A healthy environment has no second runtime and bundles nothing."""
    result = environment.probe(LiveSystem(), str(native.python))
    copies = [item for item in result.runtime_copies.value or () if item.library in ("libc10", "libcudart")]
    assert sorted(item.library for item in copies) == ["libc10", "libcudart"]
    assert not any(item.bundled for item in copies)
