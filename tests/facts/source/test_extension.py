"""setup.py files of the shapes that splatting extensions really have, read without being run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from splatfix.facts.checkout import read_source, walk_extensions
from splatfix.facts.source.cmake import read_cmake
from splatfix.facts.source.includes import IncludeFolders, missing_headers
from splatfix.facts.source.reader import FolderReader
from splatfix.facts.source.setup_py import read_setup_script
from splatfix.model import MissingHeader, Source
from tests.files import put
from tests.tables import data

TABLE = data(__file__)

Names = tuple[str, ...]


def source(folder: Path, setup: str, *empty: str, **files: str) -> Source:
    return read_source(put(folder, {"setup.py": setup, **dict.fromkeys(empty, ""), **files}))


def test_a_package_that_chooses_for_itself(tmp_path: Path) -> None:
    found = source(tmp_path, TABLE["texts"]["own-choice"], "ssim.cu")
    assert (found.reads, found.files) == (("CUDA_ARCHITECTURES",), ("ssim.cu",))
    flags = {"-gencode=arch=compute_", "-arch=sm_%d%d", "-gencode=arch=compute_80,code=sm_80"}
    assert flags <= set(found.nvcc_flags) and "documentation" not in "".join(found.nvcc_flags)


@pytest.mark.parametrize(("code", "reads", "sets"), TABLE["variables"])
def test_variables(tmp_path: Path, code: str, reads: tuple[str, ...], sets: dict[str, str | None]) -> None:
    found = source(tmp_path, f"import os\n{code}\n")
    assert (found.reads, dict(found.sets)) == (reads, sets)


def test_variables_of_files_that_it_imports(tmp_path: Path) -> None:
    others = [f"empty{number}" for number in range(10)]
    text = f"import {', '.join(others)}\nimport torch\nfrom tools.flags import n\nsetup()\n"
    found = source(put(tmp_path, TABLE["imported"]), text, *(f"{name}/__init__.py" for name in others))
    assert found.reads == ("MY_CUDA_ARCHS", "FORCE_CUDA", "OWN_CUDA_ARCH")
    assert [item.name for item in found.arch_variables] == ["MY_CUDA_ARCHS", "OWN_CUDA_ARCH"]
    assert found.switches.on == {"FORCE_CUDA": "1"}


@pytest.mark.parametrize("code", TABLE["flags"])
def test_flags_are_found_wherever_they_come_from(tmp_path: Path, code: str) -> None:
    assert "-DFLAG" in source(tmp_path, code).nvcc_flags


@pytest.mark.parametrize(("code", "files", "told"), TABLE["says"])
def test_a_source(tmp_path: Path, code: str, files: dict[str, str], told: dict[str, object]) -> None:
    put(tmp_path, {"x/setup.py": code} if code else {})
    found = read_source(put(tmp_path / "x", files))
    assert {name: getattr(found, name) for name in told} == told
    assert found.label == (found.name or "x")


def test_submodules_that_were_not_fetched(tmp_path: Path) -> None:
    modules = '[submodule "glm"]\n\tpath = third_party/glm\n\turl = https://example.org/glm\n'
    setup = 'setup(x={"nvcc": ["-I" + join(here, "third_party/glm/")]})'
    assert source(tmp_path, setup, **{".gitmodules": modules}).missing_folders == ("third_party/glm",)
    (tmp_path / "third_party" / "glm").mkdir(parents=True)
    assert read_source(tmp_path).missing_folders == ("third_party/glm",), "an empty folder is as good as none"
    (tmp_path / "third_party" / "glm" / "glm.hpp").write_text("")
    assert read_source(tmp_path).missing_folders == ()


@pytest.mark.parametrize(("file", "requires"), TABLE["requirements-that-setuptools-takes-from-a-file"])
def test_requirements_that_setuptools_takes_from_a_file(tmp_path: Path, file: str, requires: Names) -> None:
    """As fast_gauss, which was built, and did not import without them."""
    dynamic = f"[project]\nname='a'\ndynamic=['dependencies']\n[tool.setuptools.dynamic]\ndependencies = {{file = {file}}}"
    for folder in (tmp_path, tmp_path / "a"):
        folder.mkdir(exist_ok=True)
        (folder / "needs.txt").write_text("-r more.txt\nnumpy  # arrays\n\nPyGLM>=2\n")
    (tmp_path / "a" / "pyproject.toml").write_text(dynamic)
    assert read_source(tmp_path / "a").requires == requires


@pytest.mark.parametrize(("given", "cuda"), [("", False), ("-DWITH_CUDA=ON", True)])
def test_what_cmake_leaves_out_is_no_part_of_a_build(tmp_path: Path, given: str, cuda: bool) -> None:
    """fast_gicp's bindings have no CUDA code, and its kernels include what CUDA 13 lacks: only an option turns those on."""
    setup = f"cmake = ['-DWITH_PYTHON=ON', {given!r}]\n"
    setup += "setup(name='gicp', ext_modules=[CMakeExtension('gicp')])"
    lists = TABLE["texts"]["cmake"]
    fetch = "FetchContent_Declare(\n  pybind11\n  GIT_REPOSITORY https://example.org/pybind11)\n"
    files = {"CMakeLists.txt": f"{lists}{fetch}", "a.cu": "#include <thrust/gone.h>\n"}
    found = source(tmp_path, setup, **files)
    assert (found.needs_cuda, found.modules) == (cuda, ("gicp",))
    reader = FolderReader()
    cmake = read_cmake(tmp_path, read_setup_script(tmp_path / "setup.py", reader), reader)
    assert ("PCL" in cmake.packages, "CUDA" in cmake.packages) == (True, cuda)
    fetched, first, *others = missing_in(tmp_path, "usr/include", toolkits={"/cuda": (tmp_path / "none",)})
    assert (fetched.header, fetched.address) == ("pybind11", "https://example.org/pybind11")
    assert [item.header for item in others] == ["thrust/gone.h"] * cuda
    line = lists[: lists.index("find_package(PCL")].count("\n") + 1
    assert (first.header, first.file, first.line) == ("PCLConfig.cmake", "CMakeLists.txt", line)
    assert first.package == "libpcl-dev"
    put(tmp_path, {"usr/lib/x86_64-linux-gnu/cmake/pcl/PCLConfig.cmake": ""})
    assert "PCLConfig.cmake" not in {item.header for item in missing_in(tmp_path, "usr/include")}


def missing_in(folder: Path, system: str, **more: Any) -> list[MissingHeader]:
    """The headers that the source in a folder lacks, where the system's lie below it."""
    place = folder / system
    place.mkdir(parents=True, exist_ok=True)
    reader, searched = FolderReader(), IncludeFolders(always=(place,), system=(place,), **more)
    script = read_setup_script(folder / "setup.py", reader)
    return list(missing_headers(folder, read_source(folder), script, folder, searched, reader))


@pytest.mark.parametrize(
    ("call", "address"), [("urlopen", "https://x.org/eigen-3.3.7.tar.bz2"), ("print", None)]
)
def test_a_library_that_setup_py_downloads(tmp_path: Path, call: str, address: str | None) -> None:
    """raytracing: its build ended without Eigen, where its server cannot be reached."""
    setup = TABLE["texts"]["fetching"].format(call=call)
    put(tmp_path, {"setup.py": setup, "a.cu": "#include <Eigen/Core>\n"})
    found = [(item.package, item.address) for item in missing_in(tmp_path, "usr")]
    assert found == ([("libeigen3-dev", address)] if address else [])
    put(tmp_path, {"usr/eigen3/Eigen/Core": ""})
    assert missing_in(tmp_path, "usr") == []


@pytest.mark.parametrize("content", [b"def half(:\n", b"print 'python 2'\n", b"\x00\xff", b"("])
def test_damaged_files_are_said(tmp_path: Path, content: bytes) -> None:
    assert "setup.py is not Python" in read_source(put(tmp_path / "a", {"setup.py": content})).error
    damaged = read_source(put(tmp_path / "b", {"pyproject.toml": content + b"="}))
    assert "pyproject.toml cannot be read" in damaged.error


@pytest.mark.parametrize(("files", "found"), TABLE["extensions"])
def test_extensions_of_a_checkout(tmp_path: Path, files: dict[str, str], found: Names) -> None:
    walked = walk_extensions(put(tmp_path, files)).found
    assert tuple(path.relative_to(tmp_path).as_posix() for path in walked) == found


def test_far_folders_end_no_walk(tmp_path: Path) -> None:
    """Those beyond the limit may be a dataset's; the near ones were all looked at."""
    put(tmp_path, {f"a/b/c/{number}/x": "" for number in range(9)})
    assert walk_extensions(tmp_path, most=8).complete
    assert not walk_extensions(tmp_path, most=2).complete


def test_a_walk_names_what_it_could_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("a/ext", "locked/ext", "z/deep/ext")
    put(tmp_path, {f"{name}/setup.py": "setup(ext_modules=[])" for name in names})
    real = os.scandir

    def locked(path: Path) -> object:
        if path == tmp_path / "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", locked)
    walk = walk_extensions(tmp_path)
    assert walk.found == (tmp_path / "a" / "ext", tmp_path / "z" / "deep" / "ext")
    assert walk.unreadable == (tmp_path / "locked",) and walk.complete
    near = walk_extensions(tmp_path, most=5)
    assert not near.complete and near.found == (tmp_path / "a" / "ext",)
