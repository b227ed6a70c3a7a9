"""What a build needs around it: memory, swap, ninja, libraries to link, one CUB, headers that agree with glibc's."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from splatfix.checks import Status
from splatfix.core.step import prepend_variable, set_variable
from splatfix.facts import Compiler, Distribution, Fact, Facts, HeaderCopy, NativeModule, Resources, Source
from splatfix.plan import build_environment

from .conftest import Changer, TorchWith, of, only, statuses
from .test_checkout import CheckoutSource, with_checkout

GIB = 2**30
PIP = tuple(Distribution(name, "80.9", "/env") for name in ("setuptools", "wheel", "ninja"))


def files(count: int, **values: Any) -> CheckoutSource:
    modules = (NativeModule("other._C", tuple(f"k{number}.cu" for number in range(count))),)
    made = ("/home/u/gs/sub/other", ("setup.py",), "other", "0", ("other",), modules, True, True)
    return CheckoutSource("sub/other", Source(*made, **values))


def gsplat(*more: Distribution) -> Fact[tuple[Distribution, ...]]:
    return Fact((*PIP, Distribution("gsplat", "1.5.3", "/env"), *more), "site-packages")


def test_the_installer_and_the_check_count_the_same_memory(changed: Changer) -> None:
    room = Resources(cores=16, memory_total=16 * GIB, memory_available=9 * GIB, swap_total=0)
    facts = with_checkout(changed(resources=room), sources=(files(12),))
    jobs = build_environment.job_count(facts).count
    assert of(facts, "build-out-of-memory")[0].remedy[0] == set_variable("MAX_JOBS", f"{jobs}")


def test_more_compilers_than_memory(changed: Changer) -> None:
    room = Resources(cores=16, memory_total=16 * GIB, memory_available=12 * GIB, swap_total=0)
    facts = with_checkout(changed(resources=room), sources=(files(12),))
    finding = of(facts, "build-out-of-memory")[0]
    assert finding.status is Status.WARN
    assert finding.remedy[0] == set_variable("MAX_JOBS", "4")
    assert "12 compilers" in finding.summary


@pytest.mark.parametrize(
    ("room", "values", "count"),
    [
        ({"memory_available": 64 * GIB}, {}, 12),
        ({"memory_available": 12 * GIB, "swap_total": 32 * GIB}, {}, 12),
        ({"memory_available": 12 * GIB}, {}, 4),
        ({"memory_available": 12 * GIB}, {"variables": {"MAX_JOBS": "4"}}, 12),
        ({"memory_available": GIB}, {"tools": {}}, 12),  # without ninja one file after the other
    ],
)
def test_memory_that_is_enough(
    changed: Changer, room: dict[str, int], values: dict[str, Any], count: int
) -> None:
    facts = changed(resources=Resources(cores=16, memory_total=64 * GIB, **room), **values)
    assert statuses(with_checkout(facts, sources=(files(count),)), "build-out-of-memory") == "pass"


def test_memory_is_no_matter_where_nothing_is_built(changed: Changer) -> None:
    tight = Resources(cores=64, memory_total=GIB, memory_available=GIB)
    assert not of(changed(resources=tight), "build-out-of-memory")
    pending = changed(resources=tight, distributions=gsplat())
    assert "gsplat starts 10 compilers" in of(pending, "build-out-of-memory")[0].summary
    assert not of(with_checkout(changed(), sources=(files(9),)), "build-out-of-memory"), "memory is not known"


@pytest.mark.parametrize(
    ("wsl", "swap", "memory", "status"),
    [
        (True, 0, 16, "warn"),
        (True, 4, 16, "pass"),
        (True, 0, 64, "pass"),
        (False, 0, 16, ""),
        (True, None, 16, ""),
    ],
)
def test_wsl_without_swap(changed: Changer, wsl: bool, swap: int | None, memory: int, status: str) -> None:
    room = Resources(memory_total=memory * GIB, swap_total=None if swap is None else swap * GIB)
    assert statuses(changed(wsl=wsl, resources=room), "wsl-without-swap") == status


@pytest.mark.parametrize(
    ("glibc", "cuda", "warns"),
    [
        ("2.41", "12.9.86", True),
        ("2.42", "12.4.131", True),
        ("2.39", "12.9.86", False),
        ("2.41", "13.0.88", False),
    ],
)
def test_glibc_and_cudas_math_headers(
    changed: Changer, torch_with: TorchWith, rtx_5080: Facts, glibc: str, cuda: str, warns: bool
) -> None:
    (toolkit,) = rtx_5080.machine.toolkits.value or ()
    facts = changed(
        glibc=glibc,
        toolkits=Fact((dataclasses.replace(toolkit, version=cuda),), "PATH"),
        torch=torch_with(cuda=cuda[:4]),
    )
    assert bool(of(facts, "glibc-cuda-math-conflict")) is warns


def test_a_compiler_or_a_cuda_that_fits_its_glibc(changed: Changer, rtx_5080: Facts) -> None:
    conda = Compiler("g++", "/env/bin/x86_64-conda-linux-gnu-g++", "13.3.0", ("CXX",))
    assert of(changed(glibc="2.41"), "glibc-cuda-math-conflict")
    assert not of(changed(glibc="2.41", compilers=Fact((conda,), "PATH")), "glibc-cuda-math-conflict")
    (toolkit,) = rtx_5080.machine.toolkits.value or ()
    debian = {"toolkits": Fact((dataclasses.replace(toolkit, root="/usr"),)), "toolkit_choice": Fact(None)}
    assert not of(changed(glibc="2.41", **debian), "glibc-cuda-math-conflict")


def test_ninja_off_the_path(changed: Changer) -> None:
    finding = only(changed(tools={}, distributions=gsplat()), "ninja-not-on-path")
    assert finding.status is Status.WARN
    assert finding.remedy == (prepend_variable("PATH", "/env/bin"),)
    assert not of(changed(tools={}, distributions=Fact(PIP, "")), "ninja-not-on-path"), (
        "nothing is to be built"
    )
    assert not of(changed(distributions=gsplat()), "ninja-not-on-path"), "it is on PATH"
    waiting = with_checkout(changed(tools={}, distributions=Fact(PIP, "")), sources=(files(3),))
    assert of(waiting, "ninja-not-on-path")[0].status is Status.SKIP, "setup.py goes on without it, slower"


@pytest.mark.parametrize(
    ("torch", "places", "lib64", "fails"),
    [
        ("2.0.1", ("lib",), False, True),
        ("2.4.1", ("lib",), False, False),
        ("2.4.1", ("lib",), True, True),  # a lib64 that holds something else stands in front
        ("2.4.1", ("lib64", "lib"), True, False),
        ("2.4.1", ("targets/x86_64-linux/lib",), False, True),
        ("2.4.1", (), False, False),  # cuda-headers-missing tells
        ("2.0.1", ("lib",), None, False),  # facts of an older splatfix
    ],
)
def test_where_the_linker_looks_for_cudart(
    changed: Changer,
    torch_with: TorchWith,
    torch: str,
    places: tuple[str, ...],
    lib64: bool | None,
    fails: bool,
) -> None:
    (toolkit,) = changed().machine.toolkits.value or ()
    conda = dataclasses.replace(toolkit, cudart_in=places, has_lib64=lib64)
    facts = changed(toolkits=Fact((conda,), "conda"), torch=torch_with(version=torch))
    found = of(facts, "linker-cudart-missing")
    assert bool(found) is fails
    if fails:
        assert found[0].remedy[0] == prepend_variable("LIBRARY_PATH", f"/usr/local/cuda-12.9/{places[0]}")
    # a distribution's own lies where every linker looks
    debian = dataclasses.replace(toolkit, root="/usr", cudart_in=("lib/x86_64-linux-gnu",), has_lib64=True)
    assert not of(changed(toolkits=Fact((debian,)), toolkit_choice=Fact(None)), "linker-cudart-missing")


def test_libcuda_for_the_linker(changed: Changer) -> None:
    asking, quiet = files(2, libraries=("cuda",)), files(2)
    nowhere: Fact[tuple[str, ...]] = Fact((), "LIBRARY_PATH")
    facts = with_checkout(changed(linkable_libcuda=nowhere), sources=(asking,))
    said = only(facts, "linker-libcuda-missing").remedy
    assert said[0].command and said[0].command.argv[:2] == ("splatfix", "install")
    assert said[1].command is None and "lib64/stubs" in said[1].text, (
        "whether that toolkit has stubs is not known"
    )
    wsl = with_checkout(changed(linkable_libcuda=nowhere, wsl=True), sources=(asking,))
    assert "/usr/lib/wsl/lib" in of(wsl, "linker-libcuda-missing")[0].remedy[0].line()
    for silent in (
        with_checkout(changed(linkable_libcuda=nowhere), sources=(quiet,)),
        with_checkout(changed(linkable_libcuda=Fact(("/usr/lib/libcuda.so",), "")), sources=(asking,)),
        with_checkout(changed(), sources=(asking,)),
    ):
        assert not of(silent, "linker-libcuda-missing")


def test_two_copies_of_cub(changed: Changer, rtx_5080: Facts) -> None:
    (toolkit,) = rtx_5080.machine.toolkits.value or ()
    own = Fact((dataclasses.replace(toolkit, cub="2.8.2"),), "PATH")

    def copies(*items: HeaderCopy) -> Facts:
        return changed(toolkits=own, header_copies=Fact(items, "folders"))

    in_front = HeaderCopy("/home/u/cub-1.10", "CUB_HOME", "1.10.0", "")
    assert "1.10.0" in only(copies(in_front), "cub-thrust-mismatch").summary
    behind = HeaderCopy("/usr/include", "the compiler's own search", "", "1.15.0")
    assert [item.status for item in of(copies(behind), "cub-thrust-mismatch")] == [Status.SKIP]
    same = HeaderCopy("/home/u/cub", "CUB_HOME", "2.8.2", "")
    inside = HeaderCopy("/usr/local/cuda-12.9/include", "CPATH", "2.9.0", "")
    assert not of(copies(same, inside), "cub-thrust-mismatch")
    unknown = changed(header_copies=Fact((in_front,), "folders"))
    assert not of(unknown, "cub-thrust-mismatch"), "the toolkit's own version is not known"
