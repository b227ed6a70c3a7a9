"""Checks of a scene, how they are registered, and the document of what they find."""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from splatfix.checks.registry import Check, checks_of
from splatfix.core.errors import Exit
from splatfix.core.step import Step, run
from splatfix.core.words import few
from splatfix.facts.scene.model import Scene
from splatfix.model import Evidence, Finding, Status

SCENE_CHECKS: dict[str, Check] = {}
"""By code, in the order in which they run. A failure: training fails, or learns something wrong; a warning: it goes on, with
less than the scene could give; one that is skipped: to know, and nothing to mend."""

check = checks_of("scene", SCENE_CHECKS)


def listed(
    report: Callable[..., Finding], names: Sequence[str], case: str = "", **blanks: object
) -> Iterator[Finding]:
    """Yield a finding about files or images where there are any: how many, and the first of them as evidence."""
    if names:
        evidence = Evidence("which", few(names, most=5))
        yield report(case, evidence=evidence, count=len(names), **blanks)


def fix_command(scene: Scene) -> Step:
    """Build ``splatfix scenes fix`` for a scene."""
    return run("splatfix", "scenes", "fix", scene.folder, "--out", f"{scene.folder}-fixed")


class Refusal(Struct, frozen=True):
    """Why a trainer does not take a scene."""

    fault: str
    """As the table names it, such as ``camera-model``."""
    says: str
    """What its loader prints; "" where that is not known."""
    option: str = ""
    """Of that trainer, with which it takes the scene as it is."""
    way_out: str = ""
    """A change of the scene, where there is no such option."""


class StackVerdict(Struct, frozen=True):
    """Whether the loader of one trainer, or of several that share it, takes a scene; by its source, not by a run."""

    reader: str
    stacks: tuple[str, ...]
    source: str
    refusals: tuple[Refusal, ...]
    """Of more than one its loader names the first."""

    @property
    def takes_it(self) -> bool:
        """Nothing is known that its loader refuses, at least with options of its own."""
        return all(refusal.option for refusal in self.refusals)


class CheckedScene(Struct, frozen=True):
    """A scene that was checked."""

    scene: Scene
    findings: tuple[Finding, ...]
    stacks: tuple[StackVerdict, ...]
    host_bytes: int | None
    """Of host memory that Inria's trainer takes while it loads the scene, by :mod:`splatfix.budget`."""

    @property
    def verdict(self) -> Exit:
        """1 where something failed, else 0."""
        if any(finding.status is Status.FAIL for finding in self.findings):
            return Exit.FAILURE
        return Exit.OK
