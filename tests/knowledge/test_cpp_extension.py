"""torch.utils.cpp_extension: which row speaks for which torch, and what each says."""

import pytest

from splatfix.knowledge.archs import Arch
from splatfix.knowledge.cpp_extension import (
    ArchListError,
    UsesVisibleGpus,
    behaviour,
    compiler_verdict,
    expand_arch_list,
    first_release_for_arch,
    visible_gpu_arch_list,
)


@pytest.mark.parametrize(
    ("torch", "release", "same_minor"),
    [
        ("2.13.0+cpu", "2.13.0", True),
        ("2.9.0+cu128", "2.9.1", True),
        ("2.15.0.dev20261001", "2.15.0", True),
        ("3.0", "2.15.0", False),
        ("1.13.0", "1.13.1", True),
    ],
)
def test_nearest_row(torch: str, release: str, same_minor: bool) -> None:
    row = behaviour(torch)
    assert (row.release, row.same_minor) == (release, same_minor)


def test_older_than_the_table_is_unknown() -> None:
    assert behaviour("1.12.1") is None
    assert expand_arch_list("8.6", "1.12.1") is None
    assert visible_gpu_arch_list([Arch(8, 6)], ["sm_86"], "1.12.1") is None
    assert compiler_verdict("gcc", (9,), (11, 6), "1.12.1") is None


@pytest.mark.parametrize(
    ("arch", "first"),
    [
        ("8.9", "2.0.1"),
        ("9.0a", "2.2.2"),
        ("10.0", "2.6.0"),
        ("12.0", "2.7.1"),
        ("12.1", "2.8.0"),
        ("11.0", "2.9.1"),
        ("10.7", "2.14.1"),
        ("12.0f", None),
        ("8.8", None),
    ],
)
def test_first_release_for_arch(arch: str, first: str | None) -> None:
    assert first_release_for_arch(Arch.parse(arch)) == first


def test_unset_empty_and_native() -> None:
    assert expand_arch_list(None, "2.9.1") == UsesVisibleGpus()
    assert expand_arch_list("", "2.9.1") == UsesVisibleGpus()
    assert expand_arch_list("native", "2.9.1") == UsesVisibleGpus()
    assert isinstance(expand_arch_list("native", "2.8.0"), ArchListError)


@pytest.mark.parametrize(
    ("version", "cuda", "torch", "verdict"),
    [
        ((14, 2), (12, 8), "2.11.0", "too-new"),  # though nvcc 12.8 takes it
        ((14, 2), (12, 8), "2.12.1", "ok"),
        ((14, 2), (12, 8), "2.9.1", "no-row"),
        ((13, 1), (12, 3), "2.13.0", "ok"),  # though nvcc 12.3 does not take it
        ((5, 4), (12, 3), "2.13.0", "too-old"),
        ((15, 1), (13, 2), "2.15.0", "no-row"),
        ((11, 2), (11, 4, 48), "2.9.1", "too-new"),
        ((11, 2), (11, 4, 100), "2.9.1", "ok"),
    ],
)
def test_compilers(version: tuple[int, ...], cuda: tuple[int, ...], torch: str, verdict: str) -> None:
    assert compiler_verdict("gcc", version, cuda, torch) == verdict
