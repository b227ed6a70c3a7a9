"""torch.utils.cpp_extension: which row speaks for which torch, and what each says."""

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
from tests.tables import tabled


@tabled
def test_nearest_row(torch: str, release: str, same_minor: bool) -> None:
    row = behaviour(torch)
    assert (row.release, row.same_minor) == (release, same_minor)


def test_older_than_the_table_is_unknown() -> None:
    assert behaviour("1.12.1") is None
    assert expand_arch_list("8.6", "1.12.1") is None
    assert visible_gpu_arch_list([Arch(8, 6)], ["sm_86"], "1.12.1") is None
    assert compiler_verdict("gcc", (9,), (11, 6), "1.12.1") is None


@tabled
def test_first_release_for_arch(arch: str, first: str | None) -> None:
    assert first_release_for_arch(Arch.parse(arch)) == first


def test_unset_empty_and_native() -> None:
    assert expand_arch_list(None, "2.9.1") == UsesVisibleGpus()
    assert expand_arch_list("", "2.9.1") == UsesVisibleGpus()
    assert expand_arch_list("native", "2.9.1") == UsesVisibleGpus()
    assert isinstance(expand_arch_list("native", "2.8.0"), ArchListError)


@tabled
def test_compilers(version: tuple[int, ...], cuda: tuple[int, ...], torch: str, verdict: str) -> None:
    assert compiler_verdict("gcc", version, cuda, torch) == verdict
