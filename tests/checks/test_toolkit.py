"""A toolkit that does not know the GPU's own number: where an older sibling serves, where only PTX does, where nothing."""

import pytest

from splatfix.checks import Finding, Status
from splatfix.core.step import commands, set_variable
from splatfix.facts import Driver, Fact, Facts, Gpu
from splatfix.knowledge.archs import Arch, cubin_runs_on, known_archs, toolkit_supports

from .conftest import Changer, TorchWith, cuda, of, sass

RTX_4090 = Gpu(0, "NVIDIA GeForce RTX 4090", cc="8.9")
TO_117 = ("sm_50", "sm_60", "sm_61", "sm_70", "sm_75", "sm_80", "sm_86", "sm_87")


def said(facts: Facts, *targets: str) -> Finding:
    (finding,) = of(facts, "toolkit-arch-unsupported", *targets)
    return finding


def classic(
    changed: Changer, torch_with: TorchWith, gpu: Gpu, own: tuple[str, ...], **torch: object
) -> Facts:
    """CUDA 11.7 and a torch of its time."""
    return changed(
        gpus=Fact((gpu,), "NVML"),
        **cuda("11.7.99", *TO_117),
        variables={},
        extensions=Fact((), ""),
        torch=torch_with(**{"version": "1.13.1+cu117", "cuda": "11.7", "code": (sass(*own),), **torch}),
    )


def test_cuda_117_serves_an_rtx_4090_by_the_code_of_86(changed: Changer, torch_with: TorchWith) -> None:
    facts = classic(changed, torch_with, RTX_4090, ("sm_80", "sm_86"))
    finding = said(facts)
    assert finding.status is Status.SKIP and "8.6 is what to build" in finding.summary
    assert finding.remedy == (set_variable("TORCH_CUDA_ARCH_LIST", "8.6"),)


def test_where_torch_would_ask_for_the_number_the_build_stops(
    changed: Changer, torch_with: TorchWith
) -> None:
    """torch 2.0 of CUDA 11.8 has sm_90 itself, so that it does not clamp 8.9, which nvcc 11.7 does not know."""
    own = ("sm_80", "sm_86", "sm_90")
    facts = classic(changed, torch_with, RTX_4090, own, version="2.0.1+cu118", cuda="11.8")
    assert said(facts).status is Status.WARN
    assert said(facts, "sm_89").status is Status.SKIP, (
        "a target is built by splatfix, which chooses the number itself"
    )


@pytest.mark.parametrize(("driver_cuda", "by_ptx"), [("12.8", True), ("11.4", False), (None, True)])
def test_another_major_fails_and_suggests_ptx(
    changed: Changer, torch_with: TorchWith, driver_cuda: str | None, by_ptx: bool
) -> None:
    facts = changed(
        **cuda("12.4.131", *TO_117, "sm_89", "sm_90"),
        driver=Fact(Driver("575.57.08", driver_cuda), "NVML"),
    )
    finding = said(facts)
    first, *others = finding.remedy
    assert finding.status is Status.FAIL
    assert "needs a CUDA toolkit from 12.8" in first.text and first.command is None
    assert [command.env for command in commands(others)] == (
        [(("TORCH_CUDA_ARCH_LIST", "9.0+PTX"),)] if by_ptx else []
    )


def test_every_toolkit_and_gpu_of_the_tables(changed: Changer) -> None:
    """FAIL exactly where this nvcc compiles no machine code that the GPU runs."""
    seen = set()
    for version in ((11, 1), (11, 8), (12, 4), (12, 8), (12, 9), (13, 0)):
        archs = tuple(arch.sm for arch in known_archs() if toolkit_supports(version, arch))
        facts = changed(**cuda(f"{version[0]}.{version[1]}.1", *archs))
        for arch in known_archs():
            serves = any(cubin_runs_on(Arch.parse(name), arch) for name in archs)
            status = said(facts, arch.sm).status
            assert (status is Status.FAIL) == (not serves), (version, arch)
            assert (status is Status.PASS) == (arch.sm in archs)
            seen.add(status)
    assert seen == {Status.PASS, Status.SKIP, Status.FAIL}
