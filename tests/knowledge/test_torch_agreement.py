"""Our rules for arch lists, compilers and cubins and our table of builds against torch's own code, over grids."""

import collections
import functools
import importlib.util
import itertools
import logging
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from splatfix.knowledge.archs import Arch, cubin_runs_on, known_archs
from splatfix.knowledge.cpp_extension import (
    ArchList,
    ArchListError,
    UsesVisibleGpus,
    arch_flags_switched_off,
    behaviour,
    compiler_verdict,
    expand_arch_list,
    visible_gpu_arch_list,
)
from splatfix.knowledge.host_compilers import compiler_check_skipped
from splatfix.knowledge.torch_releases import build
from tests.files import put
from tests.tables import data

from .torch_sources import TorchSource, torch_sources

GRID = data(__file__)
SOURCES = pytest.mark.parametrize("source", torch_sources(), ids=lambda source: source.version)
FILE = "utils/cpp_extension.py"
CUDA = "cuda/__init__.py"
SINCE_SBSA = "DEVICE_REQUIREMENT_POST_JETSON_SBSA_UNIFICATION"
NAMES = {"_CompatInterval", "_CompatSet", "_device_requirement", "_code_compatible_with_device"}
NAMES |= {"DEVICE_REQUIREMENT", SINCE_SBSA, "PYTORCH_RELEASES_CODE_CC"}
WITH_TABLE = [source for source in torch_sources() if "DEVICE_REQUIREMENT" in source.text(CUDA)]
SOURCES_WITH_TABLE = pytest.mark.parametrize("source", WITH_TABLE, ids=lambda source: source.version)


class ArchFlags:
    """torch's _get_cuda_arch_flags over a pretended environment and pretended GPUs, both to be set at will."""

    def __init__(self, source: TorchSource) -> None:
        self.environ: dict[str, str] = {}
        self.gpus: Sequence[Arch] = ()
        self.torch_archs: Sequence[str] = ()
        cuda = SimpleNamespace(
            device_count=lambda: len(self.gpus),
            get_device_capability=lambda index: (self.gpus[index].major, self.gpus[index].minor),
            get_arch_list=lambda: list(self.torch_archs),
        )
        distributed = SimpleNamespace(is_available=lambda: False, is_initialized=lambda: False)
        stubs = {
            "collections": collections,
            "re": re,
            "os": SimpleNamespace(environ=self.environ),
            "torch": SimpleNamespace(cuda=cuda, distributed=distributed),
            "logger": logging.getLogger("splatfix.test.silent"),
            "warnings": SimpleNamespace(warn=lambda *_, **__: None),
        }
        self._function = source.definitions(FILE, {"_get_cuda_arch_flags"}, stubs)["_get_cuda_arch_flags"]

    def __call__(
        self,
        text: str | None,
        gpus: Sequence[Arch] = (),
        torch_archs: Sequence[str] = (),
        cflags: list[str] | None = None,
    ) -> Any:
        self.environ.clear()
        if text is not None:
            self.environ["TORCH_CUDA_ARCH_LIST"] = text
        self.gpus, self.torch_archs = gpus, torch_archs
        return self._function(cflags)


@functools.cache
def arch_flags(source: TorchSource) -> ArchFlags:
    return ArchFlags(source)


def outcome(function: Any, *args: Any) -> tuple[str, ...] | str:
    try:
        return tuple(function(*args))
    except (ValueError, IndexError) as error:
        return f"{type(error).__name__}: {error}"


def ours(result: object) -> tuple[str, ...] | str:
    """The nvcc flags of a list, as torch writes and sorts them, or its exception."""
    if isinstance(result, ArchList):
        flags = set()
        for entry in result.entries:
            arch = f"-gencode=arch={entry.arch.compute},code="
            flags |= {arch + entry.arch.sm, arch + (entry.arch.compute if entry.ptx else entry.arch.sm)}
        return tuple(sorted(flags))
    assert isinstance(result, ArchListError), result
    return result.exception


def test_a_torch_is_here() -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("no torch here: nothing to hold our rules against")
    assert WITH_TABLE


@SOURCES
def test_every_item_and_pair_of_an_arch_list(source: TorchSource) -> None:
    rules = behaviour(source.version)
    every = {
        arch for row in map(behaviour, ("1.13", "2.6", "2.8", "2.15")) if row for arch in row.supported_arches
    }
    names = [name for name, _ in rules.named_arches]
    plain = [*sorted(every), *names, *GRID["odd_items"]]
    items = [*plain, *(item + "+PTX" for item in plain)]
    pairs = [f"{a}{sep}{b}" for a, b in itertools.product(items, items) for sep in (";", " ")]
    checked = 0
    for text in [*items, *pairs, *GRID["awkward"]]:
        result = expand_arch_list(text, source.version)
        if isinstance(result, UsesVisibleGpus):
            assert text in ("", "native")
            continue
        assert ours(result) == outcome(arch_flags(source), text), text
        checked += 1
    assert checked > 5000


@SOURCES
@pytest.mark.parametrize("text", [None, "", "native"])
def test_unset_list_over_visible_gpus(source: TorchSource, text: str | None) -> None:
    rules = behaviour(source.version)
    if text == "native" and not rules.native_keyword:
        pytest.skip("this torch has no native keyword")
    assert isinstance(expand_arch_list(text, source.version), UsesVisibleGpus)
    gpus = [Arch.parse(text) for text in GRID["gpus"]]
    boxes: list[tuple[Arch, ...]] = [(), *((gpu,) for gpu in gpus), *itertools.product(gpus, gpus)]
    boxes.append((gpus[4], gpus[9], gpus[4]))
    for torch_list, box in itertools.product(GRID["torch_lists"], boxes):
        real = outcome(arch_flags(source), text, box, torch_list)
        assert ours(visible_gpu_arch_list(box, torch_list, source.version)) == real, (box, torch_list)


@SOURCES
def test_the_arch_substring_rule(source: TorchSource) -> None:
    some = (itertools.combinations(GRID["flags"], n) for n in range(4))
    for chosen in itertools.chain.from_iterable(some):
        off = arch_flags(source)("8.6", cflags=list(chosen)) == []
        assert (arch_flags_switched_off(chosen, source.version) is not None) == off, chosen


@SOURCES
def test_rows_say_what_the_file_says(source: TorchSource) -> None:
    row = behaviour(source.version)
    assert row.same_minor
    text = source.text(FILE)
    assert ('== "native"' in text) == row.native_keyword
    constants = source.definitions(
        FILE, {"MINIMUM_GCC_VERSION", "MINIMUM_CLANG_VERSION", "CUDA_GCC_VERSIONS", "CUDA_CLANG_VERSIONS"}, {}
    )
    for name, bounds in (("CUDA_GCC_VERSIONS", row.gcc), ("CUDA_CLANG_VERSIONS", row.clang)):
        assert {cuda: (row.min, row.max_exclusive) for cuda, row in bounds.items()} == constants[name]


COMPILERS = tuple(
    (name, f"{major}.{minor}.0")
    for name, majors in (("g++", range(4, 19)), ("clang++", range(3, 24)))
    for major in majors
    for minor in (0, 5)
)


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[str, list[str]]]:
    """The imported torch's _check_cuda_version with a pretended nvcc, torch and compiler: its verdict, and its warnings."""
    torch = pytest.importorskip("torch")
    module = pytest.importorskip("torch.utils.cpp_extension")
    from torch.torch_version import TorchVersion

    put(tmp_path, {"bin/nvcc": ""})
    said: list[str] = []
    monkeypatch.setattr(module, "CUDA_HOME", str(tmp_path))
    monkeypatch.setattr(module, "logger", SimpleNamespace(warning=lambda text, *_: said.append(text)))
    monkeypatch.delenv("TORCH_DONT_CHECK_COMPILER_ABI", raising=False)

    def ask(nvcc: str, torch_cuda: str | None, compiler: str, version: str) -> tuple[str, list[str]]:
        release = nvcc.rpartition(".")[0]
        banner = f"Cuda compilation tools, release {release}, V{nvcc}".encode()
        monkeypatch.setattr(module.subprocess, "check_output", lambda *_, **__: banner)
        monkeypatch.setattr(torch.version, "cuda", torch_cuda)
        said.clear()
        try:
            module._check_cuda_version(compiler, TorchVersion(version))
        except RuntimeError as error:
            kinds = {"is less": "too-old", "is greater": "too-new"}
            return next((kind for words, kind in kinds.items() if words in str(error)), "major-differs"), said
        return "pass", said

    return ask


def test_compilers_over_nvcc_and_torchs_cuda(
    check: Callable[..., tuple[str, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr("torch.utils.cpp_extension._is_binary_build", lambda: True)
    for nvcc, torch_cuda in itertools.product(GRID["nvccs"], (None, "11.8", "12.8", "13.0")):
        cuda = tuple(map(int, nvcc.split(".")))
        for name, version in COMPILERS:
            real, said = check(nvcc, torch_cuda, name, version)
            expected = "pass"
            if torch_cuda is not None and torch_cuda.partition(".")[0] != str(cuda[0]):
                expected = "major-differs"
            elif torch_cuda is not None:
                kind = "clang" if name.startswith("clang") else "gcc"
                compiler = tuple(map(int, version.split(".")))
                verdict = compiler_verdict(kind, compiler, cuda, torch.__version__)
                expected = "pass" if verdict in ("ok", "no-row") else str(verdict)
                assert any("no %s version bounds" in text for text in said) == (verdict == "no-row")
                assert any("minor version" in text for text in said) == (f"{cuda[0]}.{cuda[1]}" != torch_cuda)
            assert real == expected, (nvcc, torch_cuda, name, version)


@pytest.mark.parametrize("setting", GRID["settings"])
@pytest.mark.parametrize("release", GRID["releases"])
def test_when_torch_does_not_look_at_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
    check: Callable[..., tuple[str, list[str]]],
    setting: str | None,
    release: str,
) -> None:
    monkeypatch.setattr("torch.version.__version__", release)
    if setting is not None:
        monkeypatch.setenv("TORCH_DONT_CHECK_COMPILER_ABI", setting)
    looks = check("12.8.93", "12.8", "g++", "99.0")[0] != "pass"
    assert (compiler_check_skipped(release, setting) == "") == looks


def torch_cuda(source: TorchSource, build_cuda: str) -> dict[str, Any]:
    stubs = {
        "torch": SimpleNamespace(version=SimpleNamespace(cuda=build_cuda)),
        "warnings": warnings,
        "Optional": None,
    }
    return source.definitions(CUDA, NAMES, stubs)


@SOURCES_WITH_TABLE
@pytest.mark.parametrize("build_cuda", ["12.6", "13.0", "13.2", "13.4"])
def test_cubin_rule(source: TorchSource, build_cuda: str) -> None:
    theirs = torch_cuda(source, build_cuda)
    knows_sbsa = SINCE_SBSA in theirs
    major, minor = map(int, build_cuda.split("."))
    codes = sorted(
        {arch.number for arch in known_archs() if arch.number >= 50} | set(theirs["DEVICE_REQUIREMENT"])
    )
    devices = range(50, 140)
    different = set()
    for code in codes:
        for device in devices:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                real = theirs["_code_compatible_with_device"](device, code)
            ours = cubin_runs_on(
                Arch.of_number(code),
                Arch.of_number(device),
                build_cuda=(major, minor) if knows_sbsa else None,
            )
            if real != ours:
                different.add((code, device))
    # torch before 2.15 did not yet see that sm_110 code runs on the same chip under its old number,
    # and its open interval for 110 lets in numbers that no device has.
    renamed = {(110, 101)} | {(110, number) for number in range(111, 120)}
    assert different - renamed == set()
    if knows_sbsa:
        assert different == set()


@SOURCES_WITH_TABLE
def test_published_builds(source: TorchSource) -> None:
    published = torch_cuda(source, "13.0")["PYTORCH_RELEASES_CODE_CC"]
    if source.minor < (2, 13):
        pytest.skip("until 2.12 torch kept one set for all hosts, and not in step with its builds")
    compared = 0
    for cuda, by_host in published.items():
        ours = build(source.version.split("+")[0], f"cu{cuda.replace('.', '')}")
        for host, numbers in by_host.items():
            assert {arch.number for arch in ours.code("linux", host).cubins} == numbers, (cuda, host)
            compared += 1
    assert compared >= 6
