"""The reader against cuobjdump and binutils on every library of a full CUDA build of torch."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from splatfix.binaries import find_binaries, missing_exports, provided_versions, read_binary, read_needs

from . import oracle

pytestmark = [pytest.mark.native, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def packages() -> Path:
    return oracle.native_packages()


@pytest.fixture(scope="module")
def libraries(packages: Path) -> list[Path]:
    found = [path for name in ("torch", "nvidia") for path in find_binaries(packages / name)]
    assert len(found) > 20, "this is not a full CUDA build of torch"
    return found


def test_device_code_of_every_library(libraries: list[Path]) -> None:
    entries = 0
    for path in libraries:
        mine = oracle.read([read_binary(path)])
        assert mine == oracle.dumped(path), path
        entries += sum(mine.values())
    assert entries > 1_000


def test_links_of_every_library(libraries: list[Path]) -> None:
    readelf = oracle.tool("readelf")
    for path in libraries:
        text = oracle.run(readelf, "-dW", path)
        binary = read_binary(path)
        assert list(binary.needed) == re.findall(r"\(NEEDED\).*\[(.*)\]", text), path
        assert [binary.soname] == (re.findall(r"\(SONAME\).*\[(.*)\]", text) or [None]), path
        searched = re.findall(r"\(RUNPATH\).*\[(.*)\]", text) or re.findall(r"\(RPATH\).*\[(.*)\]", text)
        assert list(binary.rpath) == [part for part in "".join(searched).split(":") if part], path


def symbols(path: Path, option: str) -> list[tuple[str, str]]:
    """(kind, name with version) by nm."""
    listing = subprocess.run(
        [oracle.tool("nm"), "-D", option, path], capture_output=True, text=True, check=True, errors="replace"
    ).stdout
    return [
        (words[-2], words[-1]) for words in (line.split() for line in listing.splitlines()) if len(words) >= 2
    ]


def test_symbols_and_versions_of_every_library(libraries: list[Path]) -> None:
    for path in libraries:
        rows = symbols(path, "--undefined-only")
        needs = read_needs(path)
        assert set(needs.imported) == {name.partition("@")[0] for kind, name in rows if kind == "U"}, path
        assert set(needs.weak) == {name.partition("@")[0] for kind, name in rows if kind in "wv"}, path
        # only what is needed has its name before its flags
        text, pairs, library = oracle.run(oracle.tool("readelf"), "-VW", path), [], ""
        for file, version in re.findall(r"File: (\S+)|Name: (\S+)\s+Flags:", text):
            library = file or library
            pairs += [(library, version)] * bool(version)
        assert list(needs.versions) == pairs, path


def test_exports_of_torch_against_nm(packages: Path) -> None:
    """Every name that libtorch_python.so imports, looked up in torch's libraries both ways."""
    folder = packages / "torch" / "lib"
    imported = read_needs(folder / "libtorch_python.so").imported
    homes = [folder / name for name in ("libtorch_cpu.so", "libc10.so", "libtorch_cuda.so", "libc10_cuda.so")]
    exported = {name.partition("@")[0] for home in homes for _, name in symbols(home, "--defined-only")}
    expected = [name for name in imported if name not in exported]
    assert list(missing_exports(imported, homes)) == expected
    assert 0 < len(expected) < len(imported)
    assert missing_exports(["_ZN2at6gone_vE", imported[0]], [])[0] == "_ZN2at6gone_vE"


def test_versions_of_the_system_c_plus_plus_library() -> None:
    candidates = [
        Path(folder) / "libstdc++.so.6"
        for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/aarch64-linux-gnu", "/usr/lib")
    ]
    path = oracle.required(next((one for one in candidates if one.exists()), None), "libstdc++.so.6")
    text = oracle.run(oracle.tool("readelf"), "-VW", os.path.realpath(path))
    names = re.findall(r"Flags: (?:none|WEAK).*Name: (\S+)", text)
    assert list(provided_versions(path)) == names and "GLIBCXX_3.4" in names
