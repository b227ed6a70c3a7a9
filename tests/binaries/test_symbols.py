"""Symbols and versions: forged files of every kind, and this process's own C library."""

import sys
from pathlib import Path

import pytest

from splatfix.binaries import SymbolNeeds, missing_exports, provided_versions, read_needs, symbols
from splatfix.binaries._bytes import Reader
from splatfix.binaries.model import BinaryError
from splatfix.binaries.symbols import parse_exported, parse_needs, parse_provided

from .forge_elf import ElfForge

EXPORTS = tuple(f"_ZN3c104Test{index}Ev" for index in range(300))
WIDTHS = pytest.mark.parametrize(("bits", "order"), [(64, "<"), (64, ">"), (32, "<")])
HASHES = pytest.mark.parametrize("hash_style", ["gnu", "sysv", "none"])


@WIDTHS
@HASHES
def test_what_a_library_wants(bits: int, order: str, hash_style: str) -> None:
    forge = ElfForge(bits=bits, order=order, hash_style=hash_style, exports=EXPORTS)
    forge.imports, forge.weak = ("_ZN2at5emptyEv", "cudaMalloc"), ("__gmon_start__",)
    forge.wanted = (("libstdc++.so.6", ("GLIBCXX_3.4.32", "CXXABI_1.3.9")), ("libc.so.6", ("GLIBC_2.34",)))
    versions = tuple((library, version) for library, wanted in forge.wanted for version in wanted)
    needs = SymbolNeeds(imported=forge.imports, weak=forge.weak, versions=versions)
    assert parse_needs(Reader(forge.build())) == needs


@HASHES
@pytest.mark.parametrize("section_table", [True, False])
def test_imports_of_a_library_that_exports_nothing(hash_style: str, section_table: bool) -> None:
    forge = ElfForge(hash_style=hash_style, imports=("cudaMalloc", "cudaFree"), section_table=section_table)
    assert parse_needs(Reader(forge.build())).imported == ("cudaMalloc", "cudaFree")


@WIDTHS
@HASHES
def test_lookup_finds_every_export_and_nothing_else(bits: int, order: str, hash_style: str) -> None:
    forge = ElfForge(bits=bits, order=order, hash_style=hash_style, imports=("wanted",), exports=EXPORTS)
    asked = [*EXPORTS, "wanted", "_ZN3c104Test300Ev", "", "_ZN3c104Test1E", "_ZN3c104Test1Evv"]
    assert parse_exported(Reader(forge.build()), asked) == set(EXPORTS)


def test_missing_exports_over_several_libraries(tmp_path: Path) -> None:
    first, second = tmp_path / "liba.so", tmp_path / "libb.so"
    first.write_bytes(ElfForge(exports=("one", "two")).build())
    second.write_bytes(ElfForge(exports=("three",), hash_style="sysv").build())
    assert missing_exports(["four", "three", "one", "four", "zero"], [first, second]) == ("four", "zero")
    assert missing_exports([], [first]) == ()
    assert missing_exports(["one"], []) == ("one",)


@WIDTHS
def test_versions_a_library_defines(bits: int, order: str) -> None:
    versions = ("GLIBCXX_3.4", "GLIBCXX_3.4.1", "CXXABI_1.3")
    data = ElfForge(bits=bits, order=order, soname="libstdc++.so.6", defined=versions).build()
    assert parse_provided(Reader(data)) == versions
    assert parse_provided(Reader(ElfForge().build())) == ()


def test_files_without_a_dynamic_table() -> None:
    reader = Reader(ElfForge(dynamic=False).build())
    assert parse_needs(reader) == SymbolNeeds() and parse_exported(reader, ["x"]) == set()


def test_hash_chains_may_not_be_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "_SPARE_STEPS", 0)
    monkeypatch.setattr(symbols, "_STEPS_PER_NAME", 0)
    with pytest.raises(BinaryError, match="chains do not end"):
        parse_exported(Reader(ElfForge(exports=EXPORTS).build()), EXPORTS)


def test_errors_name_the_file(tmp_path: Path) -> None:
    text = tmp_path / "libfoo.so"
    text.write_text("INPUT(libbar.so)")
    for call in (read_needs, provided_versions, lambda path: missing_exports(["x"], [path])):
        with pytest.raises(BinaryError, match=r"libfoo\.so: neither an ELF nor a PE file"):
            call(text)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the libraries this process has loaded, from /proc")
def test_the_c_library_of_this_process() -> None:
    lines = Path("/proc/self/maps").read_text().splitlines()
    loaded = {Path(line.split()[-1]) for line in lines if "/libc.so.6" in line or "/ld-musl" in line}
    (libc,) = loaded
    names = ["malloc", "no_such_function_here", "printf"]
    assert missing_exports(names, [libc]) == ("no_such_function_here",)
    if libc.name == "libc.so.6":
        assert "GLIBC_2.17" in provided_versions(libc)
        assert any(library.startswith("ld-linux") for library, _ in read_needs(libc).versions)


def test_an_absurd_number_of_versions_is_refused() -> None:
    wants = ElfForge(wanted=[("libc.so.6", ["GLIBC_2.34"] * 5_000)]).build()
    with pytest.raises(BinaryError, match="symbol versions: not a real library"):
        parse_needs(Reader(wants))
    with pytest.raises(BinaryError, match="claims 5001 symbol versions"):
        parse_provided(Reader(ElfForge(defined=["V"] * 5_000).build()))
