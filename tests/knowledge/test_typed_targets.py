"""What people type for a target, and the short answers to what is none."""

from __future__ import annotations

import pytest

from splatfix.knowledge import Arch, parse_target, parse_targets


@pytest.mark.parametrize(
    ("text", "cc"),
    [
        ("4090", "8.9"),
        ("rtx4090", "8.9"),
        ("3090", "8.6"),
        ("1080", "6.1"),
        ("gtx1080", "6.1"),
        ("h100", "9.0"),
        ("90", "9.0"),
        ("sm_90a", "9.0a"),
        ("2080", "7.5"),
        ("NVIDIA GeForce RTX 3060", "8.6"),
    ],
)
def test_products_with_and_without_their_make(text: str, cc: str) -> None:
    assert parse_target(text) == Arch.parse(cc)


@pytest.mark.parametrize("text", ["sm_120,sm_89", "12.0;8.9", " 5080 , 4090 ", "sm_120;8.9,"])
def test_a_list_as_torch_and_as_people_write_it(text: str) -> None:
    assert parse_targets(text) == (Arch(12, 0), Arch(8, 9))


@pytest.mark.parametrize("text", ["sm_999", "12.9", "RTX 9090", "", "gpu", ",", "9999"])
def test_the_error_is_one_line_of_what_is_written_today(text: str) -> None:
    with pytest.raises(ValueError, match=r"Write sm_75, .*sm_121, an older one, or a product") as caught:
        parse_targets(text)
    assert len(str(caught.value)) < 240 and "sm_61" not in str(caught.value)


@pytest.mark.parametrize("text", ["12.0+PTX", "sm_120+ptx", "5080+PTX"])
def test_ptx_is_an_option(text: str) -> None:
    with pytest.raises(ValueError, match="--target sm_120 --ptx"):
        parse_target(text)


@pytest.mark.parametrize(
    ("text", "named", "other"),
    [
        ("blackwell", ("sm_100 (B100", "sm_120 ("), "sm_90"),
        ("ampere", ("sm_86 (RTX", "sm_88"), "sm_89"),
        ("Hopper", ("sm_90 (H100",), "sm_100"),
        ("ada", ("sm_89",), "sm_90"),
    ],
)
def test_a_generation_is_asked_back(text: str, named: tuple[str, ...], other: str) -> None:
    with pytest.raises(ValueError, match="is a generation and no architecture") as caught:
        parse_target(text)
    assert "()" not in str(caught.value)
    assert all(words in str(caught.value) for words in named) and other not in str(caught.value)


def test_an_option_that_was_taken_for_a_value_is_named() -> None:
    with pytest.raises(ValueError, match="--target was given no GPU: --python is an option"):
        parse_target("--python")
