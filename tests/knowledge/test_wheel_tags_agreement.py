"""Names of Linux platforms against packaging's own, wheels against pip's list, extension files against interpreters."""

import importlib.machinery
import sys

import packaging._manylinux
import packaging.tags
import pytest

from splatfix.knowledge import torch_releases, wheel_tags
from tests.tables import data

PYTHONS = [(3, minor) for minor in (7, 8, 9, 10, 11, 12, 13, 14, 15)]
GLIBCS = [(2, minor) for minor in (5, 12, 16, 17, 27, 28, 31, 35, 39, 41)]


def linux(monkeypatch: pytest.MonkeyPatch, machine: str, glibc: tuple[int, int]) -> list[str]:
    """The platforms that packaging would list on a Linux of this glibc."""
    monkeypatch.setattr(packaging._manylinux, "_have_compatible_abi", lambda *_: True)
    monkeypatch.setattr(packaging._manylinux, "_get_glibc_version", lambda: glibc)
    return [*packaging._manylinux.platform_tags([machine]), f"linux_{machine}"]


def decided(python: tuple[int, int], platforms: list[str]) -> frozenset[str]:
    """Every tag that packaging says this CPython takes."""
    own = f"cp{python[0]}{python[1]}"
    abi = f"{own}m" if python < (3, 8) else own
    native = packaging.tags.cpython_tags(python, [abi], platforms)
    pure = packaging.tags.compatible_tags(python, own, platforms)
    return frozenset(map(str, (*native, *pure)))


@pytest.mark.parametrize("machine", ["x86_64", "i686", "aarch64"])
@pytest.mark.parametrize("glibc", [(2, 4), *GLIBCS], ids=str)
def test_the_names_of_every_linux(
    monkeypatch: pytest.MonkeyPatch, machine: str, glibc: tuple[int, int]
) -> None:
    target = wheel_tags.WheelTarget((3, 11), f"linux_{machine}", glibc)
    assert set(wheel_tags._platforms(target)) == set(linux(monkeypatch, machine, glibc))


def test_pips_own_list_for_this_interpreter() -> None:
    """pip carries its own copy of packaging; what it supports here is what we say of the same tags."""
    tags = pytest.importorskip("pip._internal.utils.compatibility_tags")
    if sys.platform != "linux" or sys.implementation.name != "cpython":
        pytest.skip("Linux and CPython only")
    glibc = packaging._manylinux._get_glibc_version()
    supported = {str(tag) for tag in tags.get_supported()}
    machine = next(tag for tag in supported if "-linux_" in tag).rpartition("-linux_")[2]
    target = wheel_tags.WheelTarget(sys.version_info[:2], f"linux_{machine}", glibc if glibc[0] > 0 else None)
    assert len(supported) > 300
    assert not [tag for tag in supported if not wheel_tags.tag_fits(tag, target) and "armv7l" not in tag]


@pytest.mark.parametrize("row", torch_releases.releases(), ids=lambda row: row.release)
def test_what_stands_against_a_torch_wheel(
    monkeypatch: pytest.MonkeyPatch, row: torch_releases.TorchRelease
) -> None:
    """``wheel_obstacle`` against packaging, for every Python and glibc: the file names are made of the row's own fields."""
    last = row.python_max or max(PYTHONS)
    published = [
        python for python in PYTHONS if row.python_min <= python <= last or python in row.python_experimental
    ]
    build = row.builds[0]
    many = "manylinux_2_28" if row.min_glibc == (2, 28) else "manylinux1"
    assert row.min_glibc in (None, (2, 28)), "another manylinux: say its name here"
    names = set()
    for major, minor in published:
        own = f"cp{major}{minor}"
        names.add(f"{own}-{own}{'m' if (major, minor) < (3, 8) else ''}-{many}_x86_64")
    for glibc in [item for item in GLIBCS if item >= (2, 5)]:
        platforms = linux(monkeypatch, "x86_64", glibc)
        for python in PYTHONS:
            obstacle = torch_releases.wheel_obstacle(build, python=python, glibc=glibc)
            assert (obstacle is None) == bool(names & decided(python, platforms)), (python, glibc, obstacle)


# this CPython's own are asked anew
EXTENSION_SUFFIXES = [
    (sys.version_info[:2], tuple(importlib.machinery.EXTENSION_SUFFIXES)),
    *data(__file__)["suffixes"],
]
ENDINGS = {ending for _, suffixes in EXTENSION_SUFFIXES for ending in suffixes}


@pytest.mark.parametrize(("version", "suffixes"), EXTENSION_SUFFIXES)
def test_files_that_an_interpreter_imports(version: tuple[int, int], suffixes: tuple[str, ...]) -> None:
    abi_tag = suffixes[0].strip(".").rpartition(".")[0]
    for ending in {*ENDINGS, ".abi3.pyd", ".dll", ".py", ".so.1"}:
        assert wheel_tags.extension_file_fits(f"_C{ending}", abi_tag) == (ending in suffixes), ending
    assert wheel_tags.python_of_file(f"_C{suffixes[0]}") == version
