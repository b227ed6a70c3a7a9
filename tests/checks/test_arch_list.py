"""TORCH_CUDA_ARCH_LIST: as torch reads it, as nvcc compiles it, as the GPU runs it; and what an unset one comes to."""

from splatfix.checks import Status
from splatfix.core.step import set_variable
from splatfix.facts import Facts
from splatfix.knowledge.cpp_extension import ArchList, expand_arch_list
from tests.tables import tabled

from .conftest import Changer, loud


def listed(changed: Changer, text: str, **values: object) -> Facts:
    return changed(variables={"TORCH_CUDA_ARCH_LIST": text}, **values)


@tabled
def test_a_list_that_stops_torch(changed: Changer, text: str, words: str, mended: str) -> None:
    facts = listed(changed, text)
    finding = loud(facts)["arch-list-malformed"]
    assert finding.status is Status.FAIL
    assert words in finding.summary
    assert finding.remedy[0] == set_variable("TORCH_CUDA_ARCH_LIST", f"{mended}")
    assert isinstance(expand_arch_list(mended, "2.9.1"), ArchList), "what is offered must be what torch takes"
