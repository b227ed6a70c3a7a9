"""TORCH_CUDA_ARCH_LIST: as torch reads it, as nvcc compiles it, as the GPU runs it; and what an unset one comes to."""

import pytest

from splatfix.checks import Status
from splatfix.core.step import set_variable
from splatfix.facts import Facts
from splatfix.knowledge.cpp_extension import ArchList, expand_arch_list

from .conftest import Changer, loud


def listed(changed: Changer, text: str, **values: object) -> Facts:
    return changed(variables={"TORCH_CUDA_ARCH_LIST": text}, **values)


@pytest.mark.parametrize(
    ("text", "words", "mended"),
    [
        ("8.6；12.0", "full-width", "8.6;12.0"),
        ("8.6,12.0", "separates by", "8.6;12.0"),
        ("12.0;", "empty", "12.0"),
        ("8.6  12.0", "empty", "8.6;12.0"),
        ("sm_120", "not written as", "12.0"),
        ("86", "not written as", "8.6"),
        ("8.6;17.0", "not one that this torch knows", "8.6"),
    ],
)
def test_a_list_that_stops_torch(changed: Changer, text: str, words: str, mended: str) -> None:
    facts = listed(changed, text)
    finding = loud(facts)["arch-list-malformed"]
    assert finding.status is Status.FAIL
    assert words in finding.summary
    assert finding.remedy[0] == set_variable("TORCH_CUDA_ARCH_LIST", f"{mended}")
    assert isinstance(expand_arch_list(mended, "2.9.1"), ArchList), "what is offered must be what torch takes"
