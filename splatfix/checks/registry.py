"""What a check is: its attributes, which others decide by, and what registers one.

Which modules hold checks, :mod:`splatfix.checks.catalogue` says.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import partialmethod
from typing import Any

from msgspec import Struct

from splatfix.core.proof import RungName
from splatfix.core.step import Step, say
from splatfix.knowledge.failures import foreseen_by
from splatfix.model import Evidence, Finding, Status


class Family(Struct, frozen=True):
    """Checks that look at one thing, and what their failures mean to the rest of the program."""

    name: str
    needs_gpu: bool = False
    """About GPUs, or building code for them: of no consequence to what runs on the CPU alone."""
    building: bool = False
    """About building: of no consequence until something is compiled."""
    of_packages: bool = False
    """A failure can be about one installed package."""
    cured_by_torch: bool = False
    """Another build of torch may cure a failure, such as one for the CUDA that the driver supports."""


FAMILIES = {
    family.name: family
    for family in (
        Family("gpu", needs_gpu=True, cured_by_torch=True),
        Family("driver", needs_gpu=True, cured_by_torch=True),
        Family("container"),
        Family("environment", of_packages=True),
        Family("torch", cured_by_torch=True),
        Family("toolkit", needs_gpu=True, building=True),
        Family("compiler", needs_gpu=True, building=True),
        Family("build", needs_gpu=True, building=True),
        Family("extension", of_packages=True),
        Family("checkout", of_packages=True),
    )
}
"""By name, in the order in which a report shows them."""


class Blocks(IntEnum):
    """What a failure keeps every program from, whichever option is taken; the numbers are the order of repair.

    Each needs those before it: a driver's libraries are of no use to a container that was not given the GPU.
    """

    PASSTHROUGH = 1
    """The container was given no GPU."""
    KERNEL_DRIVER = 2
    """NVIDIA's kernel driver does not drive the card."""
    DRIVER_LIBRARIES = 3
    """libcuda and NVML are not installed."""
    SAME_VERSION = 4
    """The driver's libraries and its kernel module differ, as after an upgrade without a reboot."""
    LIBCUDA = 5
    """Another libcuda than the driver's is loaded."""
    CARD = 6
    """The card itself does not answer."""
    START = 7
    """cuInit fails."""
    VISIBILITY = 8
    """Variables hide every GPU."""
    COMPUTE_MODE = 9
    """The GPU takes no further program."""


class Check(Struct, frozen=True):
    """One check: its code (also the code of its findings), its function, and what its findings mean to others."""

    code: str
    family: str
    """A name of :data:`FAMILIES`, or ``scene``."""
    title: str
    function: CheckFunction
    blocks: Blocks | None = None
    """What a failure keeps from running on the GPU; None: it does not stop everything."""
    bears_on: RungName | None = None
    """The rung of proof that a failure refuses and a pass supports."""
    gpu_code: bool = False
    """It judges code for a GPU, whatever its family looks at."""
    cured_by_rebuild: bool = True
    """Compiling anew can cure a failure; False where no compiler can."""
    done_by_install: bool = False
    """What it advises ``splatfix install`` does by itself, whatever the sources."""
    of_environment: bool = False
    """It judges what is installed: a problem until something else is, whatever a build would mend."""

    @property
    def needs_gpu(self) -> bool:
        """Of no consequence to what runs on the CPU alone."""
        return self.gpu_code or FAMILIES[self.family].needs_gpu

    def finding(
        self,
        status: Status,
        summary: str,
        *,
        subject: str = "",
        evidence: Evidence | Iterable[Evidence] = (),
        remedy: str | Step | Iterable[str | Step] = (),
        link: str = "",
    ) -> Finding:
        """Build a finding of this check. Text in ``remedy`` is a step that only a person can take."""
        facts = (evidence,) if isinstance(evidence, Evidence) else tuple(evidence)
        parts = (remedy,) if isinstance(remedy, (str, Step)) else remedy
        steps = tuple(say(part) if isinstance(part, str) else part for part in parts)
        return Finding(status, summary, subject, facts, steps, link, self.code, self.family)

    # what was looked at is as it should be
    ok = partialmethod(finding, Status.PASS)
    # it may fail, or works less well than it could
    warn = partialmethod(finding, Status.WARN)
    # it does not work, or will not
    fail = partialmethod(finding, Status.FAIL)
    # a fact is missing, so nothing can be said
    unknown = partialmethod(finding, Status.UNKNOWN)
    # it does not matter here
    skip = partialmethod(finding, Status.SKIP)

    @property
    def page(self) -> str:
        """What it looks at and why it matters, from the function's docstring; then the failure classes it predicts, each
        with reports that show it."""
        # whoever shows it breaks the lines
        parts = [" ".join(part.split()) for part in (inspect.getdoc(self.function) or "").split("\n\n")]
        classes = []
        for row in foreseen_by(self.code):
            # ninja_missing (nerfstudio-project/gsplat#1, ...)
            reports = f" ({', '.join(row.examples[:2])})" if row.examples else ""
            classes.append(row.name + reports)
        if classes:
            parts.append(f"Predicts: {', '.join(classes)}")
        return "\n\n".join(parts)

    @property
    def predicts(self) -> tuple[str, ...]:
        """Names of the failure classes (:mod:`splatfix.knowledge.failures`) that it tells before they happen."""
        return tuple(row.name for row in foreseen_by(self.code))


CheckFunction = Callable[[Any, Check], Iterable[Finding]]
"""From what it looks at (the context, or a scene) and its own check to its findings."""


REGISTERED: dict[str, Check] = {}
"""By code; filled when the modules of the catalogue are imported."""


def checks_of(
    family: str, registered: dict[str, Check] = REGISTERED
) -> Callable[..., Callable[[CheckFunction], CheckFunction]]:
    """Return the decorator of a family's checks, ``@check(code, title, blocks=...)``; :class:`Check` explains the attributes.

    The function gets the context and its own :class:`Check`, which makes its findings. Its docstring is its page. A file
    holds the checks of one family.

    Args:
        registered: where the family's checks go by their codes.
    """

    def check(code: str, title: str, **attributes: Any) -> Callable[[CheckFunction], CheckFunction]:
        def register(function: CheckFunction) -> CheckFunction:
            if code in registered:
                raise ValueError(f"two checks are called {code}")
            registered[code] = Check(code, family, title, function, **attributes)
            return function

        return register

    return check
