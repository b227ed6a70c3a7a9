"""Which toolkit serves a GPU that is too new for it: by PTX of an older architecture, which the driver translates."""

from __future__ import annotations

from collections.abc import Sequence

from splatfix.core.errors import SplatfixError
from splatfix.core.step import say
from splatfix.facts import Facts, Toolkit, Torch
from splatfix.knowledge import Arch
from splatfix.knowledge.archs import arch_info, known_archs
from splatfix.knowledge.drivers import ptx_isa_of_cuda, ptx_jit_ok
from splatfix.plan.plan import RoadNotTaken
from splatfix.plan.targets import driver_level
from splatfix.plan.toolchain import (
    ToolkitDecision,
    build_arch,
    candidates,
    compiles_for,
    objection_to,
    served_by,
    what_was_seen,
)
from splatfix.plan.versions import release_numbers


def choose_ptx(
    facts: Facts, torch: Torch, targets: Sequence[Arch], cuda_home: str | None = None
) -> ToolkitDecision:
    """A toolkit of torch's major that is here, with PTX of its newest architecture for the targets that it cannot name.

    Machine code runs within one major only, so a sm_90 cubin does not load on sm_120; PTX for compute_90 does, if the
    driver reads the PTX version that this toolkit writes. Source: CUDA's compatibility guides; CUDA error 222.

    Raises:
        SplatfixError: ``no-ptx-road`` with every candidate and what speaks against it; ``arch-unknown-to-torch`` for a
            target with a letter (``sm_100a``), in whose place no PTX of another architecture can stand.
    """
    assert torch.cuda is not None
    for target in targets:
        if target.variant:
            served_by(target, torch)
    wanted = release_numbers(torch.cuda)
    rejected: list[RoadNotTaken] = []
    fitting: list[tuple[tuple[int, int], ToolkitDecision]] = []
    for toolkit in candidates(facts, cuda_home):
        answer = _ptx_with(facts, toolkit, torch, wanted, targets)
        if isinstance(answer, str):
            rejected.append(RoadNotTaken(f"toolkit {toolkit.root}", answer))
        else:
            fitting.append(((len(toolkit.missing), abs(answer.version[1] - wanted[1])), answer))
    if not fitting:
        words = ", ".join(arch.sm for arch in targets)
        raise SplatfixError(
            "no-ptx-road",
            f"No toolkit here makes PTX that serves {words}: {what_was_seen(facts, rejected)}.",
            meaning="PTX must come from a toolkit of torch's CUDA major, and be old enough for the driver.",
            todo=(say("Use a toolkit that knows the GPU: splatfix install --dry-run --why names the ways."),),
        )
    return min(fitting, key=lambda item: item[0])[1]


def _ptx_with(
    facts: Facts, toolkit: Toolkit, torch: Torch, wanted: tuple[int, ...], targets: Sequence[Arch]
) -> ToolkitDecision | str:
    """The decision for one toolkit, or what speaks against it."""
    objection = objection_to(facts, toolkit, wanted, ())
    if objection:
        return objection
    version = release_numbers(toolkit.version or "")
    found = {arch: build_arch(arch, torch, toolkit) for arch in targets}
    named = [own for own in found.values() if own is not None]
    lacking = [arch for arch, own in found.items() if own is None]
    if not lacking:
        why = f"CUDA {toolkit.version} compiles machine code for every target"
        return ToolkitDecision(toolkit, version, tuple(named), why, ())
    base = _ptx_base(toolkit, version, torch, below=min(lacking).plain)
    if base is None:
        return f"CUDA {toolkit.version} knows no older architecture whose PTX {lacking[0].sm} could take"
    isa, unsure = ptx_isa_of_cuda((version[0], version[1])), ""
    for arch in lacking:
        level = driver_level(facts, arch)
        reads = _driver_reads(isa, level)
        if isa and reads is False:
            return f"its PTX {isa[0]}.{isa[1]} is newer than a driver of CUDA {level} translates (error 222)"
        unsure = unsure if reads else f"whether the driver translates PTX of CUDA {toolkit.version}"
    why = f"CUDA {toolkit.version} writes {base.compute} PTX, which every GPU from {base.sm} on can be given"
    return ToolkitDecision(toolkit, version, tuple(named), why, (), base, unsure)


def _ptx_base(toolkit: Toolkit, version: tuple[int, ...], torch: Torch, *, below: Arch) -> Arch | None:
    """The newest desktop architecture below another that both know, whose PTX is to be translated for it."""
    older = (
        arch
        for arch in known_archs()
        if arch < below
        and not _is_tegra(arch)
        and compiles_for(toolkit, version, arch)
        and (not torch.knows_archs or arch.cc in torch.knows_archs)
    )
    return max(older, default=None)


def _driver_reads(isa: tuple[int, int] | None, level: str | None) -> bool | None:
    """Whether a driver of this CUDA level translates PTX of this version; None: not known."""
    numbers = release_numbers(level or "")
    return ptx_jit_ok(isa, (numbers[0], numbers[1])) if isa and len(numbers) > 1 else None


def _is_tegra(arch: Arch) -> bool:
    info = arch_info(arch)
    return info is not None and info.tegra
