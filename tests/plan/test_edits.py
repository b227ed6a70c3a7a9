"""The edit rules on small texts of the shapes they are for; each is safe to apply twice and leaves all else alone."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from splatfix.core.codec import from_json, to_json
from splatfix.core.errors import require
from splatfix.core.toml import parse_toml
from splatfix.facts.checkout import read_source, source_texts
from splatfix.knowledge.breakages import Breakage, breakage, breakages
from splatfix.model import Source
from splatfix.plan.edits import Cures, PlannedEdit, apply, edited, needed_cures
from tests.files import put
from tests.tables import data

from .machines import cuda_source, refused

Version = tuple[int, ...]
Versions = dict[str, Version]


def on(cuda: Version, torch: Version = (2, 11), **more: Version) -> Versions:
    return {"cuda": cuda, "torch": torch, **more}


def cures_of(source: Source, versions: Versions, system: str = "linux") -> Cures:
    return require(needed_cures(source, dict(source_texts(Path(source.folder))), versions, system))


LINUX_13 = on((13, 0))

TABLES = data(__file__)
SAMPLES: dict[str, dict[str, str]] = parse_toml((Path(__file__).parent / "edits.toml").read_text())
HEADER, FORWARD = SAMPLES["cstdint"]["before"], SAMPLES["cub-functors"]["before"]


def concerns(item: Breakage, name: str, text: str) -> bool:
    assert item.find is not None
    return item.find.looks_at(name) and item.find.find(text) is not None


@pytest.mark.parametrize("item", [item for item in breakages() if item.edits], ids=lambda item: item.key)
def test_every_edit_is_made_once(item: Breakage) -> None:
    sample = SAMPLES[item.key]
    name, before = sample["file"], sample["before"]
    assert concerns(item, name, before)
    after = apply(item, before)
    assert sample["after"] in after
    assert apply(item, after) == after, "applied twice, it changed something twice"
    assert not concerns(item, name, after), "the cured file still seems to need it"
    assert not concerns(item, "notes.txt", before)
    if item.key.startswith("cxx-standard"):  # each spelling by itself too
        for flag in ast.literal_eval(before.partition(" = ")[2]):
            assert concerns(item, name, f'flags = ["{flag}"]'), flag


@pytest.mark.parametrize("flags", TABLES["forms_of_arch"])
def test_every_form_of_an_arch_is_left_to_torch(flags: str) -> None:
    """As nvcc --help names the options; what is left may not hold the word that switches torch's own choice off."""
    item = breakage("fixed-architectures")
    text = f'nvcc = ["-O3", {flags}, "-std=c++17"]\n'
    assert concerns(item, "setup.py", text)
    left = apply(item, text)
    compiled = ast.literal_eval(left.partition(" = ")[2])
    assert compiled[0] == "-O3" and compiled[-1] == "-std=c++17"
    assert set(compiled[1:-1]) == {"-DSPLATFIX_TORCH_DECIDES"} and "arch" not in left
    assert apply(item, left) == left


@pytest.mark.parametrize(("rule", "name", "text"), TABLES["left_alone"])
def test_what_names_no_dropped_architecture_is_left_alone(rule: str, name: str, text: str) -> None:
    assert not concerns(breakage(rule), name, text)
    assert apply(breakage(rule), text) == text


GUARDED = "#ifndef X_H\n#define X_H\n#include <cub/cub.cuh>\nint a = cub::Max;\n#endif\n"


@pytest.mark.parametrize(
    ("text", "include", "use"),
    [(FORWARD, "cooperative_groups", "__global__"), (GUARDED, "cub/cub.cuh", "int a")],
)
def test_functors_stand_after_the_includes_and_before_their_use(text: str, include: str, use: str) -> None:
    """Also where an include guard stands around all of a header; a file may have no include."""
    after = apply(breakage("cub-functors"), text)
    assert after.index(include) < after.index("namespace splatfix_cub {") < after.index(use)
    assert apply(breakage("cstdint"), "uint8_t x;\n") == "#include <cstdint>\nuint8_t x;\n"


def test_which_rules_a_source_needs(tmp_path: Path) -> None:
    files = {"forward.cu": FORWARD, "state.h": HEADER, "third_party/glm/x.h": "uint32_t x;"}
    source = read_source(put(cuda_source(tmp_path), files))

    def needed(versions: Versions, system: str = "linux") -> dict[str, tuple[str, ...]]:
        return {edit.rule: edit.files for edit in cures_of(source, versions, system).edits}

    assert needed(LINUX_13) == {
        "cstdint": ("state.h",),
        "cub-functors": ("forward.cu",),
        "gnu-unique": ("setup.py",),
    }
    assert set(needed(on((12, 8)))) == {"cstdint", "gnu-unique"}
    assert set(needed(LINUX_13, "windows")) == {"cstdint", "cub-functors", "windows-small-char"}
    edits = cures_of(source, LINUX_13).edits
    assert from_json(tuple[PlannedEdit, ...], to_json(edits)) == edits  # type: ignore[arg-type]
    assert "<cstdint>" in edited("state.h", HEADER, edits) and edited("other.h", HEADER, edits) == HEADER


@pytest.mark.parametrize(("rule", "text", "cuda", "gcc", "named"), TABLES["reasons"])
def test_a_reason_names_no_other_version(
    tmp_path: Path, rule: str, text: str, cuda: Version, gcc: Version, named: bool
) -> None:
    source = read_source(put(cuda_source(tmp_path), {"one.cu": text}))
    (edit,) = (item for item in cures_of(source, on(cuda, gcc=gcc)).edits if item.rule == rule)
    assert (edit.cures == breakage(rule).symptom) is named
    assert named or not re.search(r"\d", edit.cures)


def test_the_functors_compute(tmp_path: Path) -> None:
    """What they are replaced by compiles as C++ and gives the same results as the names say."""
    text = "#define __host__\n#define __device__\n" + apply(breakage("cub-functors"), "// cub::Max\n")
    put(tmp_path, {"x.cpp": text + TABLES["functors"]})
    subprocess.run(["g++", "-std=c++17", "-o", tmp_path / "x", tmp_path / "x.cpp"], check=True)
    subprocess.run([tmp_path / "x"], check=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cub-functors", "cub::Max a;"),
        ("cub-iterators", "cub::CountingInputIterator<int> a;"),
        ("thrust-functors", "thrust::identity<int> a;"),
    ],
)
def test_a_header_and_what_includes_it_may_both_be_cured(name: str, text: str) -> None:
    """Both get what was taken out; the second of them in one translation unit must not define it again."""
    cured = apply(breakage(name), text).splitlines()
    lines = [line for line in cured if line and not line.startswith("#include")]
    assert lines[0].startswith("#ifndef SPLATFIX_") and lines[-2] == "#endif"
    assert lines[1] == f"#define {lines[0].split()[1]}"


OLD_CCCL: str = TABLES["old_cccl"]


@pytest.mark.native
def test_what_cccl_3_took_out_compiles_with_cuda_13_once_edited(tmp_path: Path) -> None:
    nvcc = next((path for path in Path("/usr/local").glob("cuda-13*/bin/nvcc") if path.is_file()), None)
    if nvcc is None:
        pytest.skip("no CUDA 13 toolkit below /usr/local")

    def compiled(text: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "x.cu").write_text(text)
        argv = [nvcc, "-std=c++17", "-arch=sm_90", "-c", "x.cu", "-o", "x.o"]
        return subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)

    refused = compiled(OLD_CCCL)
    assert refused.returncode != 0 and "CountingInputIterator" in refused.stderr
    text = OLD_CCCL
    for name in ("cub-functors", "cub-iterators", "thrust-functors", "thrust-execution-policy"):
        text = apply(breakage(name), text)
    # once more as its own header, as where a source is spread over several files
    done = compiled(
        text.replace("void run", "void first") + text.replace("Twice", "Two").replace("Add", "Plus")
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("arch", "text", "stops"), TABLES["stopped"])
def test_refused_by_rule(tmp_path: Path, arch: tuple[int, ...], text: str, stops: bool) -> None:
    source = read_source(put(cuda_source(tmp_path), {"add.cu": text}))
    conditions = on((12, 6), (2, 6), arch=arch)
    if not stops:
        assert cures_of(source, conditions).edits == ()
        return
    caught = refused(cures_of, source, conditions)
    assert caught.code == "refused-by-rule"
    assert "6.1" in caught.what and "add.cu" in caught.what and "7.0" in caught.what


@pytest.mark.parametrize(("header", "code", "cuda", "cured"), TABLES["kernel_templates"])
def test_kernel_templates(tmp_path: Path, header: str, code: str, cuda: tuple[int, int], cured: bool) -> None:
    source = read_source(put(cuda_source(tmp_path), {"fill.cuh": header, "fill.cu": code}))
    records = cures_of(source, on(cuda)).by_variables
    assert [record.key for record in records] == ["template-stubs"] * cured


def test_cmake_lists_count_only_where_cmake_builds(tmp_path: Path) -> None:
    """Inria's rasterizers carry a CMakeLists.txt that their setup.py never looks at."""
    lists = {"CMakeLists.txt": "set(CMAKE_CUDA_ARCHITECTURES 70 86)\n"}
    source = read_source(put(cuda_source(tmp_path / "both"), lists))
    assert cures_of(source, LINUX_13).edits == ()
    project = '[build-system]\nrequires = ["scikit-build-core"]\n'
    source = read_source(put(tmp_path / "cmake", {**lists, "pyproject.toml": project}))
    (edit,) = cures_of(source, LINUX_13).edits
    assert (edit.rule, edit.files) == ("cmake-architectures", ("CMakeLists.txt",))
    assert cures_of(source, on((12, 8))).edits == ()
