"""Headers that sources include, against folders of our own that stand for a toolkit's and torch's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.facts.source.checkout import read_checkout
from splatfix.facts.source.includes import IncludeFolders, certain_includes, include_folders
from splatfix.model import Checkout, EnvironmentFacts, Fact, MachineFacts, MissingHeader, Toolkit, Torch
from tests.files import put
from tests.tables import data

TABLE = data(__file__)

SETUP = "setup(name='dgr', ext_modules=[CUDAExtension('dgr._C', sources=['a.cu'])])\n"


@pytest.fixture
def here(tmp_path: Path) -> IncludeFolders:
    put(tmp_path / "cuda", {"include/cuda_runtime.h": "", "include/cccl/thrust/sort.h": ""})
    put(tmp_path / "torch", {"torch/extension.h": "", "ATen/ATen.h": ""})
    places = (tmp_path / "cuda/include", tmp_path / "cuda/include/cccl")
    return IncludeFolders({"/cuda-13": places}, (tmp_path / "torch",))


def lost(root: Path, here: IncludeFolders, **files: str) -> tuple[MissingHeader, ...]:
    """What an extension of these files lacks."""
    found = read_checkout(put(root, {"setup.py": SETUP, **files}), (), here).value
    assert isinstance(found, Checkout)
    return tuple(one for item in found.sources for one in item.headers_missing)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "dgr"


@pytest.mark.parametrize(("files", "missing"), TABLE["lost"])
def test_lost(root: Path, here: IncludeFolders, files: dict[str, str], missing: tuple[object, ...]) -> None:
    found = lost(root, here, **files)
    assert tuple((one.header, one.file, one.line, one.toolkits) for one in found) == missing


@pytest.mark.parametrize(("files", "package"), TABLE["of-the-system"])
def test_a_library_of_the_system(
    root: Path, here: IncludeFolders, tmp_path: Path, files: dict[str, str], package: str
) -> None:
    system = replace(here, system=(put(tmp_path / "usr", {"eigen3/Eigen/Core": ""}),))
    assert [one.package for one in lost(root, system, **files)] == ([package] if package else [])


def test_what_cmake_finds_by_a_module_of_the_checkouts_own(root: Path, here: IncludeFolders) -> None:
    """permuto_sdf finds EasyPBR in site-packages, after its README has cloned and built it."""
    (one,) = lost(root, here, **TABLE["cmake"])
    assert (one.header, one.file, one.line, one.toolkits) == ("EasyPBR", "CMakeLists.txt", 2, ())
    assert lost(root, replace(here, installed=frozenset({"easypbr"})), **TABLE["cmake"]) == ()


def test_one_walk_for_all_headers(root: Path, here: IncludeFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run of DPVO took 30 s: the whole checkout was walked through for each header of Eigen."""
    walks: list[Path] = []
    real = os.walk
    monkeypatch.setattr(os, "walk", lambda folder: walks.append(folder) or real(folder))
    text = "".join(f"#include <thrust/part{number}.h>\n" for number in range(60))
    found = lost(root, here, **{"a.cu": text, "third/thrust/part7.h": ""})
    assert len(found) == 59 and len(walks) == 1


def test_a_headers_guard_is_no_condition() -> None:
    inside = "#include <a.h>\n#if X\n#include <b.h>\n#endif\n#include <c.h>\n"
    for guard in ("#ifndef A_H\n#define A_H\n", "#if !defined(A_H)\n#define A_H 1\n"):
        found = certain_includes(f"{guard}{inside}#endif\n")
        assert [header for _, header in found] == ["a.h", "c.h"]
    assert list(certain_includes("#ifndef OLD\n#include <a.h>\n#endif\n#include <b.h>\n")) == [(4, "b.h")]


def test_folders_of_a_machine(tmp_path: Path) -> None:
    headers = {"cuda/targets/x86_64-linux/include/cuda_runtime.h": "", "torch/include/torch/extension.h": ""}
    root = str(put(tmp_path, headers) / "cuda")
    both = (Toolkit(root, "13.0", ("PATH",)), Toolkit("/elsewhere", "12.8", ("PATH",)))
    machine = MachineFacts("linux", "x86_64", toolkits=Fact(both, ""))
    torch = Torch("2.11.0", "13.0", None, str(tmp_path / "torch"))
    found = include_folders(machine, EnvironmentFacts(torch=Fact(torch, "")))
    assert list(found.toolkits) == [root], "of a machine elsewhere nothing is known"
    assert found.lacking("cuda_texture_types.h") == (root,)
    assert found.lacking("THC/THC.h") == () and found.lacking("torch/extension.h") is None
    assert IncludeFolders().lacking("THC/THC.h") is None
