"""The reader against cuobjdump on what nvcc writes, for every option that changes the shape of a fat binary."""

from collections import Counter
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
BUILDS = data(__file__)


def flags_of(words: str) -> tuple[str, ...]:
    """Options as they are; of targets `120` is sm_120 code, `ptx90` compute_90, `lto90` LTO-IR."""
    flags = []
    for word in words.split():
        number = word.removeprefix("ptx").removeprefix("lto")
        real = {"ptx": "compute_", "lto": "lto_"}.get(word[:3], "sm_")
        is_option = word.startswith("-")
        flags.append(word if is_option else f"-gencode=arch=compute_{number},code={real}{number}")
    return tuple(flags)


class Workshop:
    """Compiles each object once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = oracle.cuda_root()
        self.nvcc = self.root / "bin" / "nvcc"
        self.objects: dict[tuple[str, str], Path] = {}

    def source(self, name: str, behind: str = "") -> Path:
        path = self.folder / f"{name}.cu"
        path.write_text(KERNEL.format(name=name) + behind)
        return path

    def compile(self, words: str, name: str) -> Path:
        if (name, words) not in self.objects:
            target = self.folder / f"{name}-{len(self.objects)}.o"
            how = [*["-c"] * ("-dc" not in words), *flags_of(words), "-Xcompiler=-fPIC"]
            oracle.run(self.nvcc, *how, self.source(name), "-o", target)
            self.objects[name, words] = target
        return self.objects[name, words]

    def build(self, name: str) -> Path:
        """The file of that row of the table; no link is the object itself."""
        row = BUILDS[name]
        objects = [self.compile(words, f"part{index}") for index, words in enumerate(row["objects"])]
        link = row.get("link", "g++")
        if not link:
            return objects[0]
        target = self.folder / f"{name}.so"
        folders = [f"-L{self.root / folder}" for folder in ("lib64", "lib") if (self.root / folder).is_dir()]
        linker = oracle.tool("g++") if link == "g++" else self.nvcc
        given = [*flags_of(row.get("link_flags", "")), *objects, "-o", target, *folders, "-lcudart"]
        oracle.run(linker, "-shared", *given)
        return target


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("nvcc"))


def agree(path: Path) -> Counter[oracle.Seen]:
    """cuobjdump's answer equals the reader's; returns it."""
    mine = oracle.read([read_binary(path)])
    assert mine == oracle.dumped(path), path.name
    return mine


@pytest.mark.parametrize("name", BUILDS)
def test_nvcc_output(workshop: Workshop, name: str) -> None:
    path, row = workshop.build(name), BUILDS[name]
    seen = agree(path)
    assert seen, "nothing to compare"
    assert {f"{one.kind.value}:{one.arch}" for one in seen} >= set(row.get("expect", "").split())
    if "compression" in row:
        kinds = {entry.compressed for box in read_binary(path).fatbins for entry in box.entries}
        assert kinds == {row["compression"]}
    if name == "debug":
        assert all(one.debug for one in seen)


@pytest.mark.parametrize("name", ["sass-and-ptx", "rdc-linked", "mixed-objects", "zstd"])
def test_stripped(workshop: Workshop, name: str) -> None:
    path = workshop.build(name)
    for option in ("--strip-debug", "--strip-unneeded", "--strip-all"):
        stripped = path.with_name(f"stripped{option}-{path.name}")
        oracle.run(oracle.tool("strip"), option, path, "-o", stripped)
        assert agree(stripped) == agree(path)


def test_without_section_headers_nothing_is_lost(workshop: Workshop) -> None:
    """cuobjdump cannot read such a file; its answer for the whole one holds."""
    path = workshop.build("rdc-linked")
    content = bytearray(path.read_bytes())
    content[40:48] = bytes(8)
    content[60:64] = bytes(4)
    bare = path.with_name("bare.so")
    bare.write_bytes(content)
    assert oracle.read([read_binary(bare)]) == oracle.dumped(path)
    assert read_binary(bare).needed == read_binary(path).needed


def test_containers_of_mixed_objects_are_told_apart(workshop: Workshop) -> None:
    """The union over the file would say that this library serves both GPUs; neither can run all of it."""
    fatbins = read_binary(workshop.build("mixed-objects")).fatbins
    boxes = [[entry.arch for entry in box.entries] for box in fatbins if not box.empty]
    assert boxes == [["sm_120"], ["sm_80"]]


def test_empty_containers_and_link_time_code(workshop: Workshop) -> None:
    ptx_only = read_binary(workshop.build("ptx-only-linked-by-nvcc"))
    assert {box.empty for box in ptx_only.fatbins} == {True, False}
    linked = read_binary(workshop.build("rdc-linked"))
    assert {box.relocatable for box in linked.fatbins} == {True, False}


def test_an_executable(workshop: Workshop) -> None:
    source, target = workshop.source("main", "int main() { return 0; }\n"), workshop.folder / "program"
    oracle.run(workshop.nvcc, *flags_of("90 ptx90"), source, "-o", target)
    assert agree(target)
    assert oracle.read(read_files([target]).binaries) == oracle.dumped(target)


def test_objects_joined_by_the_linker(workshop: Workshop) -> None:
    parts = [workshop.compile(arch, f"part{index}") for index, arch in enumerate(("75", "86", "ptx90"))]
    joined = workshop.folder / "joined.o"
    oracle.run(oracle.tool("ld"), "-r", *parts, "-o", joined)
    assert len(agree(joined)) == 3


def test_a_bare_fatbin(workshop: Workshop) -> None:
    target = workshop.folder / "bare.fatbin"
    words = flags_of("90a 120f ptx90")
    oracle.run(workshop.nvcc, "-fatbin", *words, workshop.source("bare"), "-o", target)
    assert agree(target)


@pytest.mark.parametrize("arch", ["75", "90", "90a", "100", "100a", "100f", "103a", "120", "120f", "121a"])
def test_a_bare_cubin(workshop: Workshop, arch: str) -> None:
    """The reader finds `a` and `f` in the assembler's note."""
    target = workshop.folder / f"bare-{arch}.cubin"
    oracle.run(workshop.nvcc, "-cubin", f"-arch=sm_{arch}", workshop.source("bare"), "-o", target)
    assert read_binary(target).archs == ((EntryKind.SASS, f"sm_{arch}"),)
