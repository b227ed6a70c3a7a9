"""Architectures: spelling, rows, and whose code runs on whom."""

import itertools
import re

import pytest

from splatfix.knowledge import parse_target, parse_targets
from splatfix.knowledge.archs import Arch, arch_info, cubin_runs_on, family_of, known_archs, ptx_runs_on
from tests.tables import data

KNOWN, TABLE = known_archs(), data(__file__)
NO_GPU = r"Use sm_75, .*sm_\d+, an older one, or a product"


@pytest.mark.parametrize("arch", KNOWN, ids=str)
@pytest.mark.parametrize("letter", ["", "a", "f"])
def test_every_spelling_reads_back(arch: Arch, letter: str) -> None:
    full = Arch(arch.major, arch.minor, letter)
    for text in (full.sm, full.compute, full.cc, f"{full.number}{letter}", f"sm{full.number}{letter}"):
        assert Arch.parse(text) == full


@pytest.mark.parametrize("text", TABLE["no_archs"])
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a GPU architecture"):
        Arch.parse(text)


@pytest.mark.parametrize(("cc", "texts"), TABLE["targets"].items(), ids=list(TABLE["targets"]))
def test_what_people_type_and_drivers_say(cc: str, texts: tuple[str, ...]) -> None:
    assert {text: parse_target(text) for text in texts if parse_target(text) != Arch.parse(cc)} == {}


@pytest.mark.parametrize(
    ("text", "words"), [*((text, NO_GPU) for text in TABLE["no_gpus"]), *TABLE["no_targets"]]
)
def test_what_is_no_target_is_an_error_of_one_line(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        parse_target(text)
    assert len(str(caught.value)) < 240 and "\n" not in str(caught.value)
    assert "sm_61" not in str(caught.value)


@pytest.mark.parametrize(("text", "meant"), TABLE["may_mean_several"])
def test_what_may_mean_several_is_listed(text: str, meant: str) -> None:
    with pytest.raises(ValueError, match="may mean") as error:
        parse_target(text)
    assert " ".join(re.findall(r"sm_\d+", str(error.value))) == meant


def test_letters_never_widen() -> None:
    for arch, device in itertools.product(KNOWN, KNOWN):
        if arch.number in (101, 110) or arch_info(arch).tegra:  # type: ignore[union-attr]
            continue
        exact = cubin_runs_on(Arch(arch.major, arch.minor, "a"), device)
        family = cubin_runs_on(Arch(arch.major, arch.minor, "f"), device)
        assert exact == (arch == device)
        assert family == (device.number in family_of(arch))


def test_plain_ptx_runs_upwards_across_majors() -> None:
    for ptx, device in itertools.product(KNOWN, KNOWN):
        assert ptx_runs_on(ptx, device) == (device >= ptx)


@pytest.mark.parametrize("text", ["sm_120,sm_89", "12.0;8.9", " 5080 , 4090 ", "sm_120;8.9,"])
def test_a_list_as_torch_and_as_people_write_it(text: str) -> None:
    assert parse_targets(text) == (Arch(12, 0), Arch(8, 9))
