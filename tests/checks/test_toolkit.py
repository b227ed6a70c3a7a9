"""A toolkit that does not know the GPU's own number: where an older sibling serves, where only PTX does, where nothing."""

import pytest

from splatfix.checks import Finding, Status
from splatfix.core.step import commands
from splatfix.facts import Driver, Fact, Facts
from splatfix.knowledge.archs import Arch, cubin_runs_on, known_archs, toolkit_supports

from .conftest import Changer, TorchWith, cuda, of

TO_117 = ("sm_50", "sm_60", "sm_61", "sm_70", "sm_75", "sm_80", "sm_86", "sm_87")


def said(facts: Facts, *targets: str) -> Finding:
    (finding,) = of(facts, "toolkit-arch-unsupported", *targets)
    return finding


@pytest.mark.parametrize(("driver_cuda", "by_ptx"), [("12.8", True), ("11.4", False), (None, True)])
def test_another_major_fails_and_suggests_ptx(
    changed: Changer, torch_with: TorchWith, driver_cuda: str | None, by_ptx: bool
) -> None:
    facts = changed(
        **cuda("12.4.131", *TO_117, "sm_89", "sm_90"), driver=Fact(Driver("575.57.08", driver_cuda), "NVML")
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
