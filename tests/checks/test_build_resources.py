"""What a build needs around it: memory, swap, ninja, libraries to link, one CUB, headers that agree with glibc's."""

from typing import Any

from splatfix.checks import Status
from splatfix.core.step import prepend_variable, set_variable
from splatfix.facts import Distribution, Fact, NativeModule, Resources, Source
from splatfix.plan import build_environment

from .conftest import Changer, of, only
from .test_checkout import CheckoutSource, with_checkout

GIB = 2**30
PIP = tuple(Distribution(name, "80.9", "/env") for name in ("setuptools", "wheel", "ninja"))


def files(count: int, **values: Any) -> CheckoutSource:
    modules = (NativeModule("other._C", tuple(f"k{number}.cu" for number in range(count))),)
    made = ("/home/u/gs/sub/other", ("setup.py",), "other", "0", ("other",), modules, True, True)
    return CheckoutSource("sub/other", Source(*made, **values))


def gsplat(*more: Distribution) -> Fact[tuple[Distribution, ...]]:
    return Fact((*PIP, Distribution("gsplat", "1.4.0", "/env"), *more), "site-packages")


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


def test_what_compiles_at_first_use_has_a_limit_of_its_own(changed: Changer) -> None:
    tight = Resources(cores=64, memory_total=GIB, memory_available=GIB)
    pending = changed(resources=tight, distributions=gsplat())
    assert "gsplat starts 10 compilers" in of(pending, "build-out-of-memory")[0].summary


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
