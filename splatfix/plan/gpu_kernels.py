"""Drop-ins with GPU code and no compiler: what compiles their kernels, and the option and the plan that use it."""

from __future__ import annotations

from dataclasses import dataclass

from splatfix.core.errors import SplatfixError
from splatfix.core.step import say
from splatfix.plan.option import OptionKind
from splatfix.plan.steps import InstallDependencies


@dataclass(frozen=True)
class GpuKernels:
    """What compiles GPU code of drop-ins for the targets."""

    kind: OptionKind
    """``NVRTC`` or ``WARP``."""
    brings: str
    """What comes with it, and how long making a drop-in takes."""
    caveat: str
    """What nobody has shown of its kernels yet."""
    unsure: tuple[str, ...] = ()
    """What is not known about it here."""
    install: InstallDependencies | None = None
    """What it needs in the environment first."""


def not_here(code: str, text: str) -> SplatfixError:
    """That it does not serve this machine."""
    return SplatfixError(
        code, text, todo=(say("splatfix install --dry-run --why shows what else there is."),)
    )
