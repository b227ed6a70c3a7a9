"""What leaves the CUDA code of a source out, named before it is built."""

import pytest
from msgspec.structs import replace

from splatfix.checks import Status
from splatfix.core.step import set_variable, unset_variable
from splatfix.facts import ArchVariable, CheckoutSource, CudaSwitches, Driver, Fact, Facts, Gpu

from .conftest import Changer, of
from .test_checkout import source, with_checkout

NO_GPU = {"gpus": Fact[tuple[Gpu, ...]]((), "NVML"), "driver": Fact[Driver](None, "NVML", "none")}
FORCE = CudaSwitches(by_gpu=True, on={"FORCE_CUDA": "1"}, off=("FORCE_ONLY_CPU",))


def with_switches(switches: CudaSwitches, item: CheckoutSource | None = None) -> CheckoutSource:
    item = item or source("torch_scatter")
    return replace(item, source=replace(item.source, switches=switches))


def test_no_gpu_in_sight(changed: Changer, rtx_5080: Facts) -> None:
    sources = (with_switches(FORCE),)
    (found,) = of(with_checkout(changed(**NO_GPU), sources=sources), "cuda-code-left-out")
    assert found.status is Status.WARN and found.remedy[0] == set_variable("FORCE_CUDA", "1")
    for facts in (rtx_5080, changed(**NO_GPU, variables={"FORCE_CUDA": "1"})):
        assert not of(with_checkout(facts, sources=sources), "cuda-code-left-out")
    alone = (with_switches(CudaSwitches(by_gpu=True)),)
    (found,) = of(with_checkout(changed(**NO_GPU), sources=alone), "cuda-code-left-out")
    assert found.remedy[0].line().startswith("splatfix install")
    never = (with_switches(CudaSwitches(on={"FORCE_CUDA": "1"})),)
    assert not of(with_checkout(changed(**NO_GPU), sources=never), "cuda-code-left-out")


@pytest.mark.parametrize(("value", "count"), [("1", 1), ("0", 0), ("", 0)])
def test_a_variable_that_leaves_it_out(changed: Changer, value: str, count: int) -> None:
    facts = with_checkout(changed(variables={"FORCE_ONLY_CPU": value}), sources=(with_switches(FORCE),))
    found = of(facts, "cuda-code-left-out")
    assert [item.remedy[0] for item in found] == [unset_variable("FORCE_ONLY_CPU")] * count


TCNN = replace(source("tinycudann", ("-gencode=arch=compute_",)), path="bindings/torch")
TCNN = replace(
    TCNN,
    source=replace(
        TCNN.source,
        reads=("TCNN_CUDA_ARCHITECTURES",),
        sets={"TORCH_CUDA_ARCH_LIST": ""},
        arch_variables=(ArchVariable("TCNN_CUDA_ARCHITECTURES", separator=",", plain=True),),
        switches=CudaSwitches(asks_gpu=True),
    ),
)


def test_the_variable_that_counts_is_named(changed: Changer, rtx_5080: Facts) -> None:
    """As tiny-cuda-nn: torch's list is blanked; diagnose and the plan name the same variable in the same form."""
    blind = with_checkout(changed(**NO_GPU), sources=(TCNN,))
    wanted = set_variable("TCNN_CUDA_ARCHITECTURES", "86,120")
    (ignored,) = of(blind, "arch-list-ignored", "sm_86", "sm_120")
    assert ignored.status is Status.WARN and ignored.remedy[0] == wanted
    assert not of(blind, "no-gpu-at-build", "sm_86", "sm_120"), "said once"
    (unknown,) = of(blind, "no-gpu-at-build")
    assert unknown.status is Status.WARN and "TCNN_CUDA_ARCHITECTURES" in unknown.remedy[0].line()
    (seen,) = of(with_checkout(rtx_5080, sources=(TCNN,)), "arch-list-ignored")
    assert seen.status is Status.PASS
    set_already = changed(**NO_GPU, variables={"TCNN_CUDA_ARCHITECTURES": "120"})
    assert not of(with_checkout(set_already, sources=(TCNN,)), "no-gpu-at-build")
    wrong = with_checkout(changed(variables={"TCNN_CUDA_ARCHITECTURES": "8.6;90a"}), sources=(TCNN,))
    (malformed,) = of(wrong, "arch-list-malformed")
    assert malformed.remedy[0] == set_variable("TCNN_CUDA_ARCHITECTURES", "86,90")
