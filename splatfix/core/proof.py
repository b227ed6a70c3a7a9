"""The ladder of proof as data: what was really shown, rung by rung. A report never claims a rung that was not reached."""

from enum import Enum

from msgspec import Struct


class RungName(str, Enum):
    """The rungs, lowest first."""

    RESOLVED = "resolved"
    """A consistent set of versions exists for this GPU, driver, toolkit, torch and compiler."""
    BUILT = "built"
    """The binary exists and its fat binary carries code that this GPU can run."""
    LOADS = "loads"
    """It imports in the target environment, in a child process."""
    REHEARSED = "rehearsed"
    """Without a GPU: the stack's own trainer ran on the CPU, with drop-ins in place of its CUDA extensions."""
    COMPUTES = "computes"
    """Its kernels ran; forward and gradient agree with the float64 reference."""
    TRAINS = "trains"
    """Every scene trained with healthy gradients, densification, falling loss and held-out quality."""
    REPRODUCES = "reproduces"
    """Speed, memory and quality hold against a stored baseline within tolerance."""


class Rung(Struct, frozen=True):
    """One rung: reached, missed (False), or not shown at all (None), with the evidence or the reason."""

    name: RungName
    reached: bool | None
    shown_by: str
    needed: bool = True
    """False where nothing of what ran has such a part: not reached (None), and nothing is missing."""

    @property
    def words(self) -> str:
        """``verified``, ``failed``, ``not verified``, or ``not needed``."""
        if self.reached is None and not self.needed:
            return "not needed"
        return {None: "not verified", True: "verified", False: "failed"}[self.reached]
