"""The reader against cuobjdump on what nvcc writes, for every option that changes the shape of a fat binary."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from splatfix.binaries import EntryKind, read_binary, read_files

from . import oracle

pytestmark = pytest.mark.native

KERNEL = """
__device__ float helper_{name}(float x) {{ return x * 1.5f; }}
__global__ void kernel_{name}(float *x) {{ x[threadIdx.x] = helper_{name}(x[threadIdx.x]); }}
extern "C" void run_{name}(float *x) {{ kernel_{name}<<<1, 32>>>(x); }}
"""
MAIN = "int main() { return 0; }\n"


def code(*targets: str) -> tuple[str, ...]:
    """`120` for sm_120 code, `ptx90` for compute_90, `lto90` for LTO-IR."""
    flags = []
    for target in targets:
        number = target.removeprefix("ptx").removeprefix("lto")
        real = {"ptx": "compute_", "lto": "lto_"}.get(target[:3], "sm_")
        flags.append(f"-gencode=arch=compute_{number},code={real}{number}")
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


ALL = ("-Xfatbin", "-compress-all")
BUILDS = [
    Build("sass-and-ptx", [code("120", "ptx90")], expect=("sass:sm_120", "ptx:sm_90")),
    Build("object", [code("75", "86")], link=None, expect=("sass:sm_75", "sass:sm_86")),
    Build("rdc-object", [("-rdc=true", *code("90", "ptx90"))], link=None, expect=("sass:sm_90", "ptx:sm_90")),
    Build(
        "rdc-linked",
        [("-rdc=true", *code("90", "120a", "ptx120"))] * 2,
        link="nvcc",
        link_flags=("-rdc=true", *code("90", "120a")),
        expect=("sass:sm_90", "sass:sm_120a", "ptx:sm_120"),
    ),
    Build("lz4", [(*ALL, "--compress-mode=speed", *code("90", "ptx90"))], compression="lz4", expect=("sass:sm_90",)),
    Build("zstd", [(*ALL, "--compress-mode=size", *code("90", "ptx90"))], compression="zstd", expect=("sass:sm_90",)),
    Build("zstd-balance", [(*ALL, "--compress-mode=balance", *code("90"))], compression="zstd"),
    Build("compress-all", [(*ALL, *code("90", "ptx90"))], compression="zstd"),
    Build("uncompressed", [("--compress-mode=none", *code("90", "ptx90"))], expect=("ptx:sm_90",)),
    Build("no-compress", [("-no-compress", *code("90", "ptx90"))]),
    Build(
        "a-variants",
        [code("90a", "100a", "103a", "120a", "ptx90a", "ptx100a")],
        expect=("sass:sm_90a", "sass:sm_100a", "sass:sm_103a", "sass:sm_120a", "ptx:sm_90a", "ptx:sm_100a"),
    ),
    Build(
        "f-variants",
        [code("100f", "120f", "121f", "ptx100f", "ptx120f", "110")],
        expect=("sass:sm_100f", "sass:sm_120f", "sass:sm_121f", "ptx:sm_100f", "ptx:sm_120f", "sass:sm_110"),
    ),
    Build("a-code-from-plain-ptx", [("-gencode=arch=compute_120,code=sm_120a",)], expect=("sass:sm_120a",)),
    Build("ptx-only", [code("ptx90")], expect=("ptx:sm_90",)),
    Build("ptx-only-linked-by-nvcc", [code("ptx90")], link="nvcc", link_flags=code("ptx90"), expect=("ptx:sm_90",)),
    Build("mixed-objects", [code("120"), code("80")], expect=("sass:sm_120", "sass:sm_80")),
    Build("link-stub", [code("120", "ptx90")], link="nvcc", expect=("sass:sm_75", "sass:sm_120")),
    Build("debug", [("-G", *code("90", "ptx90"))], expect=("sass:sm_90",)),
    Build("lineinfo", [("-lineinfo", *code("89"))], expect=("sass:sm_89",)),
    Build("lto-object", [("-dc", *code("lto90", "120"))], link=None, expect=("lto:sm_90", "sass:sm_120")),
    Build("dlto-object", [("-dlto", "-dc", "-arch=sm_90")], link=None, expect=("lto:sm_90",)),
    # a linked -dlto build would need the device linker's library, which toolkits made of wheels lack
    Build("every-major", [("-arch=all-major",)], expect=("sass:sm_75", "sass:sm_80", "sass:sm_120")),
    Build("no-arch-flag", [()], expect=("sass:sm_75",)),
]  # fmt: skip


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
    data = bytearray(path.read_bytes())
    data[40:48] = bytes(8)
    data[60:64] = bytes(4)
    bare = path.with_name("bare.so")
    bare.write_bytes(data)
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
    oracle.run(workshop.nvcc, *code("90", "ptx90"), source, "-o", target)
    assert agree(target)
    assert oracle.read(read_files([target]).binaries) == oracle.dumped(target)


def test_objects_joined_by_the_linker(workshop: Workshop) -> None:
    parts = [workshop.compile(code(arch), f"part{index}") for index, arch in enumerate(("75", "86", "ptx90"))]
    joined = workshop.folder / "joined.o"
    oracle.run(oracle.tool("ld"), "-r", *parts, "-o", joined)
    assert len(agree(joined)) == 3


def test_a_bare_fatbin(workshop: Workshop) -> None:
    source = workshop.folder / "bare.cu"
    source.write_text(KERNEL.format(name="bare"))
    target = workshop.folder / "bare.fatbin"
    oracle.run(workshop.nvcc, "-fatbin", *code("90a", "120f", "ptx90"), source, "-o", target)
    assert agree(target)


@pytest.mark.parametrize("arch", ["75", "90", "90a", "100", "100a", "100f", "103a", "120", "120f", "121a"])
def test_a_bare_cubin(workshop: Workshop, arch: str) -> None:
    """The reader finds `a` and `f` in the assembler's note."""
    source = workshop.folder / "bare.cu"
    source.write_text(KERNEL.format(name="bare"))
    target = workshop.folder / f"bare-{arch}.cubin"
    oracle.run(workshop.nvcc, "-cubin", f"-arch=sm_{arch}", source, "-o", target)
    assert read_binary(target).archs == ((EntryKind.SASS, f"sm_{arch}"),)
