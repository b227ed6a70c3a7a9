"""The reader against cuobjdump on what nvcc writes, for every option that changes the shape of a fat binary."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from splatfix.binaries import EntryKind, read_binary, read_files
from tests.tables import data

from . import oracle

pytestmark = pytest.mark.native

KERNEL = """
__device__ float helper_{name}(float x) {{ return x * 1.5f; }}
__global__ void kernel_{name}(float *x) {{ x[threadIdx.x] = helper_{name}(x[threadIdx.x]); }}
extern "C" void run_{name}(float *x) {{ kernel_{name}<<<1, 32>>>(x); }}
"""
MAIN = "int main() { return 0; }\n"


def flags_of(words: str) -> tuple[str, ...]:
    """Options as they are; of targets `120` is sm_120 code, `ptx90` compute_90, `lto90` LTO-IR."""
    flags = []
    for word in words.split():
        number = word.removeprefix("ptx").removeprefix("lto")
        real = {"ptx": "compute_", "lto": "lto_"}.get(word[:3], "sm_")
        is_option = word.startswith("-")
        flags.append(word if is_option else f"-gencode=arch=compute_{number},code={real}{number}")
    return tuple(flags)


@dataclass(frozen=True)
class Build:
    """How to make one file: each object's flags, then the link (None: the object itself is the file)."""

    name: str
    objects: Sequence[Sequence[str]]
    link: str | None = "g++"
    link_flags: Sequence[str] = ()
    compression: str | None = None
    expect: Sequence[str] = ()
    """Architectures that must appear, as `sass:sm_90a`, so that both tools failing alike is noticed."""


def build_of(
    name: str,
    objects: Sequence[str],
    link: str = "g++",
    link_flags: str = "",
    expect: str = "",
    compression: str = "",
) -> Build:
    """A row of the table; no link is the object itself."""
    made = [flags_of(words) for words in objects]
    return Build(name, made, link or None, flags_of(link_flags), compression or None, expect.split())


BUILDS = [build_of(name, **row) for name, row in data(__file__).items()]


class Workshop:
    """Compiles each object once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = oracle.cuda_root()
        self.nvcc = self.root / "bin" / "nvcc"
        self.objects: dict[tuple[str, tuple[str, ...]], Path] = {}

    def compile(self, flags: Sequence[str], name: str) -> Path:
        key = (name, tuple(flags))
        if key not in self.objects:
            source = self.folder / f"{name}.cu"
            source.write_text(KERNEL.format(name=name))
            target = self.folder / f"{name}-{len(self.objects)}.o"
            how = () if "-dc" in flags else ("-c",)
            oracle.run(self.nvcc, *how, *flags, source, "-o", target, "-Xcompiler=-fPIC")
            self.objects[key] = target
        return self.objects[key]

    def build(self, build: Build) -> Path:
        objects = [self.compile(flags, f"part{index}") for index, flags in enumerate(build.objects)]
        if build.link is None:
            return objects[0]
        target = self.folder / f"{build.name}.so"
        libraries = [
            f"-L{self.root / folder}" for folder in ("lib64", "lib") if (self.root / folder).is_dir()
        ]
        linker = oracle.tool("g++") if build.link == "g++" else self.nvcc
        oracle.run(linker, "-shared", *build.link_flags, *objects, "-o", target, *libraries, "-lcudart")
        return target


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("nvcc"))


def agree(path: Path) -> Counter[oracle.Seen]:
    """cuobjdump's answer equals the reader's; returns it."""
    mine = oracle.read([read_binary(path)])
    assert mine == oracle.dumped(path), path.name
    return mine


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.name)
def test_nvcc_output(workshop: Workshop, build: Build) -> None:
    path = workshop.build(build)
    seen = agree(path)
    assert seen, "nothing to compare"
    archs = {f"{one.kind.value}:{one.arch}" for one in seen}
    assert archs >= set(build.expect)
    kinds = {entry.compressed for box in read_binary(path).fatbins for entry in box.entries}
    if build.compression:
        assert kinds == {build.compression}
    if build.name in ("uncompressed", "no-compress"):
        assert kinds == {None}
    if build.name == "debug":
        assert all(one.debug for one in seen)


@pytest.mark.parametrize("name", ["sass-and-ptx", "rdc-linked", "mixed-objects", "zstd"])
def test_stripped(workshop: Workshop, name: str) -> None:
    path = workshop.build(next(build for build in BUILDS if build.name == name))
    for option in ("--strip-debug", "--strip-unneeded", "--strip-all"):
        stripped = path.with_name(f"stripped{option}-{path.name}")
        oracle.run(oracle.tool("strip"), option, path, "-o", stripped)
        assert agree(stripped) == agree(path)


def test_without_section_headers_nothing_is_lost(workshop: Workshop) -> None:
    """cuobjdump cannot read such a file; its answer for the whole one holds."""
    path = workshop.build(next(build for build in BUILDS if build.name == "rdc-linked"))
    content = bytearray(path.read_bytes())
    content[40:48] = bytes(8)
    content[60:64] = bytes(4)
    bare = path.with_name("bare.so")
    bare.write_bytes(content)
    assert oracle.read([read_binary(bare)]) == oracle.dumped(path)
    assert read_binary(bare).needed == read_binary(path).needed


def test_containers_of_mixed_objects_are_told_apart(workshop: Workshop) -> None:
    """The union over the file would say that this library serves both GPUs; neither can run all of it."""
    path = workshop.build(next(build for build in BUILDS if build.name == "mixed-objects"))
    boxes = [[entry.arch for entry in box.entries] for box in read_binary(path).fatbins if not box.empty]
    assert boxes == [["sm_120"], ["sm_80"]]


def test_empty_containers_and_link_time_code(workshop: Workshop) -> None:
    by_name = {build.name: build for build in BUILDS}
    ptx_only = read_binary(workshop.build(by_name["ptx-only-linked-by-nvcc"]))
    assert any(box.empty for box in ptx_only.fatbins) and any(not box.empty for box in ptx_only.fatbins)
    linked = read_binary(workshop.build(by_name["rdc-linked"]))
    assert {box.relocatable for box in linked.fatbins} == {True, False}


def test_an_executable(workshop: Workshop) -> None:
    source = workshop.folder / "main.cu"
    source.write_text(KERNEL.format(name="main") + MAIN)
    target = workshop.folder / "program"
    oracle.run(workshop.nvcc, *flags_of("90 ptx90"), source, "-o", target)
    assert agree(target)
    assert oracle.read(read_files([target]).binaries) == oracle.dumped(target)


def test_objects_joined_by_the_linker(workshop: Workshop) -> None:
    parts = [
        workshop.compile(flags_of(arch), f"part{index}") for index, arch in enumerate(("75", "86", "ptx90"))
    ]
    joined = workshop.folder / "joined.o"
    oracle.run(oracle.tool("ld"), "-r", *parts, "-o", joined)
    assert len(agree(joined)) == 3


def test_a_bare_fatbin(workshop: Workshop) -> None:
    source = workshop.folder / "bare.cu"
    source.write_text(KERNEL.format(name="bare"))
    target = workshop.folder / "bare.fatbin"
    oracle.run(workshop.nvcc, "-fatbin", *flags_of("90a 120f ptx90"), source, "-o", target)
    assert agree(target)


@pytest.mark.parametrize("arch", ["75", "90", "90a", "100", "100a", "100f", "103a", "120", "120f", "121a"])
def test_a_bare_cubin(workshop: Workshop, arch: str) -> None:
    """The reader finds `a` and `f` in the assembler's note."""
    source = workshop.folder / "bare.cu"
    source.write_text(KERNEL.format(name="bare"))
    target = workshop.folder / f"bare-{arch}.cubin"
    oracle.run(workshop.nvcc, "-cubin", f"-arch=sm_{arch}", source, "-o", target)
    assert read_binary(target).archs == ((EntryKind.SASS, f"sm_{arch}"),)
