"""Our rules for wheels and extension files against the code that decides: packaging.tags, pip's own copy, the interpreters."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import packaging._manylinux
import packaging._musllinux
import packaging.tags
import pytest
from packaging.utils import parse_wheel_filename

from splatfix.knowledge import torch_releases
from splatfix.knowledge.wheel_tags import (
    WheelTarget,
    extension_file_fits,
    python_of_file,
    tag_fits,
)

PYTHONS = [(3, minor) for minor in (7, 8, 9, 10, 11, 12, 13, 14, 15)]
GLIBCS = [(2, minor) for minor in (4, 5, 12, 16, 17, 27, 28, 31, 35, 39, 41)]
LINUX_PLATFORMS = [
    f"{name}_{machine}"
    for machine in ("x86_64", "aarch64", "i686")
    for name in (
        *("linux", "manylinux1", "manylinux2010", "manylinux2014", "musllinux_1_1", "musllinux_1_2"),
        *(f"manylinux_2_{minor}" for minor in (4, 5, 12, 17, 24, 28, 35, 39, 41)),
        "manylinux_3_0",
    )
]
WINDOWS_PLATFORMS = ["win_amd64", "win32", "win_arm64"]


def codes() -> Iterator[str]:
    """Python and ABI parts as wheels of splatting packages and of torch carry them, and their neighbours."""
    for minor in (2, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16):
        own = f"cp3{minor}"
        yield from (f"{own}-{abi}" for abi in (own, f"{own}m", f"{own}t", "abi3", "none"))
        yield f"py3{minor}-none"
    yield from (
        "py3-none",
        "py2-none",
        "py27-none",
        "cp27-cp27mu",
        "pp310-pypy310_pp73",
        "cp3-abi3",
        "py3-abi3",
    )


CODES = list(codes())


def decided(python: tuple[int, int], platforms: list[str], threads: str = "") -> frozenset[str]:
    """Every tag that packaging says this CPython takes."""
    own = f"cp{python[0]}{python[1]}"
    abi = own + (threads or ("m" if python < (3, 8) else ""))
    tags = [
        *packaging.tags.cpython_tags(python, [abi], platforms),
        *packaging.tags.compatible_tags(python, own, platforms),
    ]
    return frozenset(str(tag) for tag in tags)


def linux(monkeypatch: pytest.MonkeyPatch, machine: str, glibc: tuple[int, int] | None) -> list[str]:
    """The platforms that packaging would list on a Linux of this glibc, or of musl 1.2 for None."""
    monkeypatch.setattr(packaging._manylinux, "_have_compatible_abi", lambda *_: True)
    monkeypatch.setattr(packaging._manylinux, "_get_glibc_version", lambda: glibc or (-1, -1))
    many = list(packaging._manylinux.platform_tags([machine])) if glibc else []
    musl = [] if glibc else [f"musllinux_1_{minor}_{machine}" for minor in (2, 1, 0)]
    return [*many, *musl, f"linux_{machine}"]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("glibc", [(2, 4), (2, 5), (2, 16), (2, 28), (2, 39), None], ids=str)
def test_every_tag_on_linux(
    monkeypatch: pytest.MonkeyPatch, machine: str, glibc: tuple[int, int] | None
) -> None:
    platforms = linux(monkeypatch, machine, glibc)
    wrong, seen = [], 0
    for python, threads in [(python, "") for python in PYTHONS] + [((3, 13), "t"), ((3, 14), "t")]:
        takes = decided(python, platforms, threads)
        target = WheelTarget(python, f"linux_{machine}", glibc, None if glibc else (1, 2), threads == "t")
        for code, platform in itertools.product(CODES, [*LINUX_PLATFORMS, *WINDOWS_PLATFORMS, "any"]):
            tag = f"{code}-{platform}"
            seen += 1
            if tag_fits(tag, target) != (tag in takes):
                wrong.append((python, threads, tag, tag in takes))
    assert not wrong, wrong[:10]
    assert seen > 30_000


@pytest.mark.parametrize("platform", WINDOWS_PLATFORMS)
def test_every_tag_on_windows(platform: str) -> None:
    for python in PYTHONS:
        takes = decided(python, [platform])
        for code, place in itertools.product(CODES, [*WINDOWS_PLATFORMS, "manylinux_2_28_x86_64", "any"]):
            tag = f"{code}-{place}"
            assert tag_fits(tag, WheelTarget(python, platform)) == (tag in takes), (python, tag)


@pytest.mark.parametrize(
    ("version", "machine"), [((11, 0), "arm64"), ((14, 0), "arm64"), ((15, 0), "x86_64"), ((11, 0), "x86_64")]
)
def test_every_tag_on_a_mac(version: tuple[int, int], machine: str) -> None:
    platforms = list(packaging.tags.mac_platforms(version, machine))
    takes = decided((3, 12), platforms)
    target = WheelTarget((3, 12), f"macosx_{version[0]}_{version[1]}_{machine}")
    for major, minor, arch in itertools.product(
        (10, 11, 13, 14, 15, 16), (0, 4, 9, 12, 16), ("arm64", "x86_64", "universal2")
    ):
        tag = f"cp312-cp312-macosx_{major}_{minor}_{arch}"
        if (major, minor) != (10, 0):  # no such macOS
            assert tag_fits(tag, target) == (tag in takes), tag


NAMES = [
    "torch-2.9.1+cu128-cp311-cp311-manylinux_2_28_x86_64.whl",
    "gsplat-1.5.3+pt24cu124-cp310-cp310-linux_x86_64.whl",
    "gsplat-1.5.3-py3-none-any.whl",
    "diff_gaussian_rasterization-0.0.0-cp312-cp312-linux_x86_64.whl",
    "nvidia_cublas-13.0.0.19-py3-none-manylinux_2_27_x86_64.whl",
    "nvidia_cuda_nvcc-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl",
    "torchao-0.18.0-cp310-abi3-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
    "ninja-1.13.0-py3-none-musllinux_1_2_x86_64.whl",
    "six-1.17.0-py2.py3-none-any.whl",
    "numpy-2.1.2-1-cp313-cp313t-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("glibc", GLIBCS, ids=str)
def test_wheels_by_their_file_names(
    monkeypatch: pytest.MonkeyPatch, name: str, glibc: tuple[int, int]
) -> None:
    platforms = linux(monkeypatch, "x86_64", glibc)
    tags = {str(tag) for tag in parse_wheel_filename(name)[3]}
    for python in PYTHONS:
        takes = bool(tags & decided(python, platforms))
        target = WheelTarget(python, "linux_x86_64", glibc)
        assert any(tag_fits(tag, target) for tag in tags) == takes, python


def test_pips_own_list_for_this_interpreter() -> None:
    """pip carries its own copy of packaging; what it supports here is what we say of the same tags, and of none besides."""
    tags = pytest.importorskip("pip._internal.utils.compatibility_tags")
    if sys.platform != "linux" or sys.implementation.name != "cpython":
        pytest.skip("Linux and CPython only")
    glibc = packaging._manylinux._get_glibc_version()
    supported = {str(tag) for tag in tags.get_supported()}
    machine = next(tag for tag in supported if "-linux_" in tag).rpartition("-linux_")[2]
    target = WheelTarget(sys.version_info[:2], f"linux_{machine}", glibc if glibc[0] > 0 else None)
    assert len(supported) > 300
    assert not [tag for tag in supported if not tag_fits(tag, target) and "armv7l" not in tag]
    asked = {f"{code}-{platform}" for code in CODES for platform in [*LINUX_PLATFORMS, "any"]}
    assert {tag for tag in asked if tag_fits(tag, target)} == asked & supported


@pytest.mark.parametrize("row", torch_releases.releases(), ids=lambda row: row.release)
def test_what_stands_against_a_torch_wheel(
    monkeypatch: pytest.MonkeyPatch, row: torch_releases.TorchRelease
) -> None:
    """``wheel_obstacle`` against packaging, for every Python and glibc: the file names are made of the row's own fields."""
    last = row.python_max or max(PYTHONS)
    published = [
        python for python in PYTHONS if row.python_min <= python <= last or python in row.python_experimental
    ]
    build = next(item for item in row.builds if "linux-x86_64" not in item.no_wheel)
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


def interpreters() -> list[str]:
    """Every CPython at hand, this one first."""
    found = [sys.executable, *(shutil.which(f"python3.{minor}") or "" for minor in range(7, 16))]
    found += [str(path) for path in sorted(Path.home().glob(".pyenv/versions/*/bin/python3"))]
    return [path for path in dict.fromkeys(found) if path]


_ASK = (
    "import importlib.machinery as m, json, platform, sys, sysconfig; print(json.dumps([sys.version_info[:2], "
    "m.EXTENSION_SUFFIXES, sysconfig.get_config_var('EXT_SUFFIX'), platform.python_implementation()]))"
)


FOREIGN = (
    ".cpython-310-x86_64-linux-gnu.so .cpython-313t-x86_64-linux-gnu.so .cpython-311-darwin.so .cp311-win_amd64.pyd "
    ".abi3.pyd .pyd .dll .py .so.1"
)


def test_files_that_interpreters_import() -> None:
    """Asked of every interpreter on this machine: which endings it looks for, over the endings of all of them."""
    asked = []
    for path in interpreters():
        done = subprocess.run([path, "-c", _ASK], capture_output=True, text=True, timeout=60, check=False)
        if (
            done.returncode == 0
            and (answer := json.loads(done.stdout))[3] == "CPython"
            and answer[0] >= [3, 7]
        ):
            asked.append(answer)
    assert asked
    endings = {ending for _, suffixes, _, _ in asked for ending in suffixes} | set(FOREIGN.split())
    for version, suffixes, own, _ in asked:
        abi_tag = own.strip(".").rpartition(".")[0]
        for ending in endings:
            assert extension_file_fits(f"_C{ending}", abi_tag) == (ending in suffixes), (version, ending)
        assert python_of_file(f"_C{own}") == tuple(version)


@pytest.mark.parametrize(
    ("name", "python"),
    [
        ("_C.cpython-310-x86_64-linux-gnu.so", (3, 10)),
        ("_C.cp39-win_amd64.pyd", (3, 9)),
        ("_C.cpython-37m-darwin.so", (3, 7)),
        ("_C.cpython-313t-x86_64-linux-gnu.so", (3, 13)),
        ("_C.abi3.so", None),
        ("_C.so", None),
        ("libcpython-310.so", None),
    ],
)
def test_the_python_that_a_name_names(name: str, python: tuple[int, int] | None) -> None:
    assert python_of_file(name) == python


def test_free_threaded_windows_and_nonsense() -> None:
    assert extension_file_fits("_C.cp311-win_amd64.pyd", "cp311-win_amd64") and extension_file_fits(
        "_C.pyd", "cp311-win_amd64"
    )
    assert not extension_file_fits("_C.abi3.so", "cp311-win_amd64")
    assert not extension_file_fits("_C.abi3.so", "cpython-313t-x86_64-linux-gnu")
    assert not tag_fits("cp311", WheelTarget((3, 11), "linux_x86_64"))
