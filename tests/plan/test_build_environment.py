"""What decides on architectures, what a build's environment says, compiler caches, and how builds share the cores."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.context import make_context
from splatfix.context.architectures import ArchChoice, Decider, choose_archs
from splatfix.core.errors import Exit, SplatfixError, require
from splatfix.facts.checkout import read_source
from splatfix.knowledge import Arch
from splatfix.model import Facts, Source
from splatfix.plan import summarise
from splatfix.plan.tools import OWN_TOOLKIT
from splatfix.plan.wheel_build import Jobs, compiler_cache, share_jobs
from tests.tables import data

from .machines import CUDA_13, NEW_DRIVER, RTX_5080, changed, cuda_source, machine, refused
from .test_install_plan import build_of, plan
from .test_install_plan import refused as no_plan

WANTED = (Arch(12, 0), Arch(9, 0, "a"))


def chosen(
    folder: Path, flags: str = "", before: str = "", torch: str = "2.11.0"
) -> ArchChoice | SplatfixError:
    return choose_archs(read_source(cuda_source(folder, flags=flags, before=before)), WANTED, torch)


TABLES = data(__file__)
BLANKED = 'os.environ["TORCH_CUDA_ARCH_LIST"] = ""\n'


@pytest.mark.parametrize(("flags", "before", "decider", "variables"), TABLES["who_decides"])
def test_deciders(tmp_path: Path, flags: str, before: str, decider: str, variables: dict[str, str]) -> None:
    choice = require(chosen(tmp_path, flags, before))
    assert (choice.decider.value, choice.variables) == (decider, variables)


def test_torchs_list_is_blanked_and_nothing_read(tmp_path: Path) -> None:
    build = build_of(plan(cuda_source(tmp_path, before=BLANKED)))
    assert [edit.rule for edit in build.edits] == ["fixed-architectures"]
    assert build.variables["TORCH_CUDA_ARCH_LIST"] == "12.0"


def test_cmake_is_told_in_its_own_variable(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text("project(x LANGUAGES CXX CUDA)\n")
    found = require(choose_archs(read_source(tmp_path), WANTED, "2.11.0"))
    assert found.variables == {"CUDAARCHS": "120;90a", "TORCH_CUDA_ARCH_LIST": "12.0;9.0a"}
    (tmp_path / "CMakeLists.txt").write_text("set(CMAKE_CUDA_ARCHITECTURES $ENV{MY_CUDA_ARCH})\n")
    found = require(choose_archs(read_source(tmp_path), WANTED, "2.11.0"))
    assert found.variables == {"MY_CUDA_ARCH": "120;90a"}


SWITCHED: str = TABLES["switched"]


def test_what_makes_it_compile_cuda_code_is_set(tmp_path: Path) -> None:
    facts = machine(variables={"MY_NO_CUDA": "1", "MY_CUDA_ARCHS": "75", "TORCH_CUDA_ARCH_LIST": "7.5"})
    build = build_of(
        plan(cuda_source(tmp_path, before=SWITCHED.replace("CUDAExtension", "CppExtension")), facts)
    )
    assert build.variables["FORCE_CUDA"] == "1"
    assert any(reason.text.startswith("FORCE_CUDA=1: ") for reason in build.reasons)
    assert any("sources and flags: known once" in reason.text for reason in build.reasons)
    assert set(build.unset) == {"MY_NO_CUDA", "MY_CUDA_ARCHS"} and not build.edits


def test_a_version_from_git_is_told(tmp_path: Path) -> None:
    """setuptools-scm would find no git folder in the scratch copy, and stop."""
    folder = cuda_source(tmp_path)
    assert "SETUPTOOLS_SCM_PRETEND_VERSION" not in build_of(plan(folder)).variables
    (folder / "pyproject.toml").write_text('[build-system]\nrequires = ["setuptools_scm>=6"]\n')
    facts = machine(packages={"pip": "25.0", "setuptools": "80.0", "ninja": "1.11", "setuptools-scm": "8.0"})
    assert build_of(plan(folder, facts)).variables["SETUPTOOLS_SCM_PRETEND_VERSION"] == "0"
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("0123456789" * 4 + "\n")
    assert build_of(plan(folder, facts)).variables["SETUPTOOLS_SCM_PRETEND_VERSION"] == "0+g012345678"


NO_SWITCH: str = TABLES["no_switch"]


def test_without_a_variable_setup_py_is_edited_or_refused(tmp_path: Path) -> None:
    """Where the GPU in sight decides alone; one that asks what the GPU is cannot be told that there is one."""
    build = build_of(plan(cuda_source(tmp_path / "a", before=NO_SWITCH)))
    assert [edit.rule for edit in build.edits] == ["gpu-at-build"]
    gpu = machine(gpus=(RTX_5080,), driver=NEW_DRIVER)
    assert not build_of(plan(cuda_source(tmp_path / "b", before=NO_SWITCH), gpu)).edits
    asks = NO_SWITCH + "cc = torch.cuda.get_device_capability()\n"
    assert no_plan("gpu-needed-to-build", cuda_source(tmp_path / "c", before=asks)).exit_code is Exit.FAILURE
    computes = NO_SWITCH + "if torch.cuda.is_available():\n    assert torch.ones(2).cuda().min() == 1\n"
    no_plan("gpu-needed-to-build", cuda_source(tmp_path / "f", before=computes))
    hidden = NO_SWITCH.replace("torch.cuda.is_available()", "is_available()")
    no_plan("gpu-needed-to-build", cuda_source(tmp_path / "d", before=hidden))
    refusals = {name: summarise((str(tmp_path / name),), make_context(machine())).refused for name in "acd"}
    assert [refusal and refusal.code for refusal in refusals.values()] == [None, *["gpu-needed-to-build"] * 2]
    told = asks + 'os.environ.get("MY_CUDA_ARCHS")\n'
    assert build_of(plan(cuda_source(tmp_path / "e", before=told))).edits


@pytest.mark.parametrize(("flags", "before", "words"), TABLES["numbers_written"])
def test_numbers_written_in_setup_py(tmp_path: Path, flags: str, before: str, words: str) -> None:
    refusal = refused(chosen(tmp_path, flags, before))
    assert refusal.code == "arch-fixed-in-source"
    assert words in refusal.what and "sm_90a" in refusal.meaning


def test_what_we_read_is_what_torch_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own function, fed the flags of each kind, adds flags exactly where we say that torch decides."""
    extension = pytest.importorskip("torch.utils.cpp_extension")
    for flags in (["-O3"], ["-march=native"], ["-gencode=arch=compute_80,code=sm_80"], ["-I/x/search/"]):
        text = ", ".join(repr(flag) for flag in flags)
        found = chosen(tmp_path, text, torch=extension.torch.__version__)
        by_torch = isinstance(found, ArchChoice) and found.decider is Decider.TORCH
        with monkeypatch.context() as patch:
            patch.setenv("TORCH_CUDA_ARCH_LIST", "12.0")
            assert bool(extension._get_cuda_arch_flags(flags)) == by_torch, flags


LENT = "/env/nvidia/cu13/include"
SLIM = replace(
    CUDA_13, found_via=OWN_TOOLKIT, missing=("include/cublas_v2.h",), elsewhere={"cublas_v2.h": LENT}
)


def test_every_folder_of_headers_is_searched(tmp_path: Path) -> None:
    """A toolkit of ours that lacks cublas: its own CCCL and the environment's headers, and the user's own last."""
    facts = machine(toolkits=(SLIM,), variables={"CPATH": "/mine"})
    build = build_of(plan(cuda_source(tmp_path / "source"), facts))
    assert build.variables["CPATH"] == f"{SLIM.root}/include/cccl:{LENT}:/mine"
    said = [reason.text for reason in build.reasons if reason.text.startswith("CPATH=")]
    assert len(said) == 2 and "include/cublas_v2.h" in said[1]


def with_tools(system: str = "linux", **tools: str) -> Facts:
    return changed(machine(), tools=tools, system=system)


def test_a_compiler_cache_stands_before_nvcc_and_the_plan_says_why(tmp_path: Path) -> None:
    build = build_of(plan(cuda_source(tmp_path), with_tools(ninja="1.11", ccache="4.7.5", sccache="0.8")))
    assert build.variables["PYTORCH_NVCC"] == "ccache /usr/local/cuda-13.0/bin/nvcc"
    assert build.variables["CXX"] == "/usr/bin/g++", "torch asks CXX for its version as one program's name"
    said = " | ".join(reason.text for reason in build.reasons)
    assert "ccache 4.7.5 is here" in said and "CXX is called through ccache" in said
    build = build_of(plan(cuda_source(tmp_path), with_tools(ninja="1.11", sccache="0.8.1")))
    assert build.variables["PYTORCH_NVCC"].startswith("sccache ")
    assert build.variables["TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES"] == "1"


def test_cmake_has_launchers_of_its_own() -> None:
    """On Windows and without a cache nothing changes."""
    source = Source("/x", ("pyproject.toml", "CMakeLists.txt"), "x", needs_cuda=True)
    variables, (reason,) = compiler_cache(with_tools(ccache="4.7.5"), CUDA_13, source)
    launchers = {f"CMAKE_{language}_COMPILER_LAUNCHER" for language in ("C", "CXX", "CUDA")}
    assert variables == dict.fromkeys(launchers, "ccache") and "ccache 4.7.5" in reason.text
    for facts in (with_tools(ninja="1.11"), with_tools("windows", ccache="4.7.5")):
        for built in (source, Source("/x", ("setup.py",), "x", needs_cuda=True)):
            assert compiler_cache(facts, CUDA_13, built) == ({}, [])


def source(name: str, files: int) -> Source:
    modules = (f"{name}._C",) if files else ()
    named = tuple(f"{number}.cu" for number in range(files))
    return Source(f"/{name}", ("setup.py",), name, modules=modules, files=named)


COMPUTED = replace(source("computed", 0), uses_torch_builder=True)
BIG, MIDDLE, SMALL, ONE = (source(f"of{count}", count) for count in (5, 3, 2, 1))


@pytest.mark.parametrize(
    ("total", "sources", "counts"),
    [
        (16, (BIG, MIDDLE, SMALL), [5, 3, 2]),  # every one has all that it can use
        (8, (BIG, MIDDLE, SMALL), [4, 2, 2]),
        (2, (BIG, MIDDLE, SMALL), [1, 1, 1]),  # the third waits for one of the others
        (2, (BIG, ONE), [2, 1]),  # beside a long one a short one would only take from it
        (4, (ONE, ONE, ONE), [1, 1, 1]),
        (8, (ONE,), [8]),
        # pointnet2 beside pointnet2_ops: what compiles nothing takes no share
        (8, (BIG, Source("/x", ("setup.py",), "pure")), [8, 1]),
        # a computed list of files may be long
        (8, (COMPUTED, SMALL), [6, 2]),
    ],
)
def test_builds_share(total: int, sources: tuple[Source, ...], counts: list[int]) -> None:
    jobs = share_jobs(Jobs(total, "cores"), sources)
    assert [item.count for item in jobs] == counts
    if total == 8 and counts[0] < 8:
        assert jobs[0].why == "its share of 8 (cores)"
