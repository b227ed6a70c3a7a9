"""Drop-ins with our own CUDA kernels, which the NVRTC that torch brought compiles: no toolkit, no host compiler, no ninja."""

from packaging.utils import canonicalize_name

from splatfix.context import Context
from splatfix.context.commands import pip
from splatfix.core.errors import SplatfixError, require
from splatfix.core.step import say
from splatfix.core.versions import release
from splatfix.knowledge import Arch
from splatfix.knowledge.archs import arch_info
from splatfix.plan.assessment import Assessment, names_of_archs, torch_obstacles
from splatfix.plan.requirements import usable_targets, usable_torch

_FIRST_NVRTC = (11, 2)
"""The first that tells what it compiles for (nvrtcGetSupportedArchs); see splatfix/kernels/nvrtc.py."""
CAVEAT = "On one GPU so far, an H200, they agree with float64; for others they were emulated on a CPU"


def unsure_of_nvrtc(context: Context) -> list[str]:
    """Return what is not known here about compiling our CUDA kernels for the targets by the NVRTC that torch brought.

    Raises:
        SplatfixError: ``nvrtc-too-old``, ``nvrtc-missing``, ``target-too-old``, ``torch-does-not-serve``; what is wrong
            with torch or the targets.
    """
    require(usable_targets(context))
    torch = require(usable_torch(context, cuda=True))
    cuda = release(torch.cuda)[:2]
    if cuda < _FIRST_NVRTC:
        text = f"torch {torch.version} brings the NVRTC of CUDA {torch.cuda}; 11.2 is the oldest that serves."
        raise _not_here("nvrtc-too-old", text)
    names = {canonicalize_name(item.name) for item in context.distributions}
    # torch from a conda channel or built by hand has its CUDA libraries elsewhere
    from_wheels = any(name.startswith("nvidia-cublas") for name in names)
    if from_wheels and not any(name.startswith("nvidia-cuda-nvrtc") for name in names):
        wheel = "nvidia-cuda-nvrtc"
        if cuda[0] < 13:
            wheel += f"-cu{cuda[0]}"
        todo = (pip(context.facts, "install", wheel, text="Install it"),)
        raise SplatfixError.of("plan.nvrtc-missing", torch=torch.version, todo=todo)
    dropped: list[Arch] = []
    newer: list[Arch] = []
    for arch in context.archs:
        info = arch_info(arch)
        if info and info.last_toolkit and cuda > info.last_toolkit:
            dropped.append(arch)
        if info and info.first_toolkit and cuda < info.first_toolkit:
            newer.append(arch)
    if dropped:
        text = f"The NVRTC of CUDA {torch.cuda} does not compile for {names_of_archs(dropped)} any more."
        raise _not_here("target-too-old", text)
    against, unsure = torch_obstacles(Assessment(context))
    if against:
        raise _not_here("torch-does-not-serve", f"Here {'; '.join(against)}.")
    if not from_wheels:
        unsure.append(f"whether torch {torch.version} carries an NVRTC")
    for arch in newer:
        unsure.append(
            f"whether the driver compiles the PTX of CUDA {torch.cuda} for {arch.sm}, which that NVRTC does not know"
        )
    return unsure


def _not_here(code: str, text: str) -> SplatfixError:
    """Build the error for a machine that NVRTC does not serve."""
    hint = say("splatfix install --dry-run --why shows what else there is.")
    return SplatfixError(code, text, todo=(hint,))
