"""What a check is: its attributes, which others decide by, and what registers one.

Which modules hold checks, :mod:`splatfix.checks.catalogue` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from functools import cache, cached_property, partialmethod
from pathlib import Path
from typing import Any

from msgspec import Struct, convert

from splatfix.core.proof import RungName
from splatfix.core.step import Step, step_of
from splatfix.core.toml import parse_toml
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


class Words(Struct, frozen=True):
    """What a check says in one case; ``{gpu.name}`` in them is a blank."""

    summary: str
    remedy: tuple[str | Mapping[str, Any], ...] = ()
    """Each as :func:`splatfix.core.step.step_of` takes it, or one blank alone for steps that the check makes: ``{install}``."""
    in_container: tuple[str | Mapping[str, Any], ...] = ()
    """The remedy instead, where the blank ``container`` is filled: what is wrong is mended on its host."""
    link: str = ""


class Wording(Struct, frozen=True):
    """All words of a check, as ``words/FAMILY.toml`` has them."""

    title: str
    """What is so where it passes."""
    page: str
    """What it looks at and why it matters; paragraphs are apart by an empty line."""
    cases: Mapping[str, Words] = {}
    """By the case that the check names, or else by the status of the finding."""


@cache
def words_in(name: str) -> Mapping[str, Any]:
    """Return a table of ``words/``."""
    path = Path(__file__).parent / "words" / f"{name}.toml"
    return parse_toml(path.read_text(encoding="utf-8"))


def _wording(family: str, code: str) -> Wording:
    row = words_in(family)[code]
    cases = {}
    for case in row.keys() - {"title", "page"}:
        words = row[case]
        if isinstance(words, str):
            words = {"summary": words}
        cases[case] = convert(words, Words)
    return Wording(row["title"], row["page"], cases)


class Check(Struct, frozen=True, dict=True):
    """One check: its code (also the code of its findings), its function, and what its findings mean to others."""

    code: str
    family: str
    """A name of :data:`FAMILIES`, or ``scene``."""
    function: CheckFunction
    given: Wording | None = None
    """Its words, where no table of ``words/`` has them."""
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

    @cached_property
    def wording(self) -> Wording:
        """Its words, read when the first of its family says something."""
        return self.given or _wording(self.family, self.code)

    @property
    def title(self) -> str:
        """What is so where it passes."""
        return self.wording.title

    @property
    def needs_gpu(self) -> bool:
        """Of no consequence to what runs on the CPU alone."""
        return self.gpu_code or FAMILIES[self.family].needs_gpu

    def finding(
        self,
        status: Status,
        case: str = "",
        /,
        *,
        subject: str = "",
        evidence: Evidence | Iterable[Evidence] = (),
        remedy: Step | Iterable[Step] | None = None,
        **blanks: object,
    ) -> Finding:
        """Build a finding in the check's words for a case, or for the status where no case is named.

        Args:
            remedy: what only the check knows, in place of what the words say.
            blanks: what stands in the words for ``{name}``; also a step, or several, for a line of the remedy.
        """
        words = self.wording.cases[case or status.value]
        if remedy is None:
            remedy = _remedy(words, blanks)
        steps = (remedy,) if isinstance(remedy, Step) else tuple(remedy)
        facts = (evidence,) if isinstance(evidence, Evidence) else tuple(evidence)
        summary = words.summary.format_map(blanks)
        return Finding(status, summary, subject, facts, steps, words.link, self.code, self.family)

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
        """What it looks at and why it matters; then the failure classes it predicts, each with reports that show it."""
        # whoever shows it breaks the lines
        parts = [" ".join(part.split()) for part in self.wording.page.split("\n\n")]
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


def _remedy(words: Words, blanks: Mapping[str, object]) -> Iterator[Step]:
    lines = words.remedy
    if words.in_container and blanks.get("container"):
        lines = words.in_container
    for line in lines:
        made = blanks.get(str(line)[1:-1])
        if isinstance(made, Step):
            yield made
        elif isinstance(made, (tuple, list)):
            yield from made
        else:
            yield step_of(line, named=blanks)


CheckFunction = Callable[[Any, Check], Iterable[Finding]]
"""From what it looks at (the context, or a scene) and its own check to its findings."""


REGISTERED: dict[str, Check] = {}
"""By code; filled when the modules of the catalogue are imported."""


def checks_of(
    family: str, registered: dict[str, Check] = REGISTERED
) -> Callable[..., Callable[[CheckFunction], CheckFunction]]:
    """Return the decorator of a family's checks, ``@check(code, blocks=...)``; :class:`Check` explains the attributes.

    The function gets the context and its own :class:`Check`, which makes its findings. A file holds the checks of one family.

    Args:
        registered: where the family's checks go by their codes.
    """

    def check(
        code: str, wording: Wording | None = None, **attributes: Any
    ) -> Callable[[CheckFunction], CheckFunction]:
        def register(function: CheckFunction) -> CheckFunction:
            if code in registered:
                raise ValueError(f"two checks are called {code}")
            registered[code] = Check(code, family, function, wording, **attributes)
            return function

        return register

    return check
