"""Host compilers: bounds, and what is not known."""

import pytest

from splatfix.knowledge.host_compilers import Compiler, limits


@pytest.mark.parametrize(
    ("cuda", "compiler", "number", "accepted"),
    [
        ((12, 4), "gcc", 13, True),
        ((12, 8), "gcc", 15, False),
        ((12, 8), "clang", 19, True),
        ((12, 8), "clang", 20, False),
        ((13, 0), "msvc", 1916, False),
        ((13, 2), "msvc", 1950, True),
        ((11, 2), "msvc", 1929, None),
    ],
)
def test_accepts(cuda: tuple[int, int], compiler: Compiler, number: int, accepted: bool | None) -> None:
    row = limits(cuda)
    assert row.accepts(compiler, number) is accepted


def test_unknown_toolkits_are_none() -> None:
    assert limits((12, 7)) is None
    assert limits((14, 0)) is None
    assert limits((10, 2)) is None


def test_update_of_11_4() -> None:
    first, later, unsaid = limits((11, 4, 0)), limits((11, 4, 1)), limits((11, 4))
    assert first.gcc_max_major == 10
    assert later.gcc_max_major == 11
    assert unsaid == later
    patch = limits((12, 8, 1))
    assert patch is not None and patch == limits((12, 8))
