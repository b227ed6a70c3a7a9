"""What is said of a scene; and how a check of one is written: a code, a title, and a function from the scene to its findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partialmethod

from msgspec import Struct

from splatfix.core.errors import Exit
from splatfix.core.step import Step, run, say
from splatfix.core.words import few
from splatfix.facts.scene.model import Scene
from splatfix.model import Evidence, Finding, Status

FAMILY = "scene"


class SceneCheck(Struct, frozen=True):
    """One check; its code is that of its findings."""

    code: str
    title: str
    function: SceneFunction

    @property
    def reason(self) -> str:
        """Why it matters, from the function's docstring."""
        return " ".join((self.function.__doc__ or "").split())

    def finding(
        self, status: Status, summary: str, *remedy: str | Step, names: Iterable[str] = ()
    ) -> Finding:
        """A finding of this check.

        Args:
            remedy: what to do; a text is a step that only a person can take.
            names: of the files or images that it is about.
        """
        steps = tuple(say(step) if isinstance(step, str) else step for step in remedy)
        listed = list(names)
        evidence: tuple[Evidence, ...] = ()
        if listed:
            evidence = (Evidence("which", few(listed, most=5)),)
        return Finding(status, summary, "", evidence, steps, "", self.code, FAMILY)

    # training fails, or learns something wrong
    fail = partialmethod(finding, Status.FAIL)
    # training goes on, with less than the scene could give
    warn = partialmethod(finding, Status.WARN)
    # to know, and nothing to mend
    note = partialmethod(finding, Status.SKIP)


def fix_command(scene: Scene) -> Step:
    """``splatfix scenes fix`` for a scene."""
    return run("splatfix", "scenes", "fix", scene.folder, "--out", f"{scene.folder}-fixed")


SceneFunction = Callable[[Scene, SceneCheck], Iterable[Finding]]
SCENE_CHECKS: dict[str, SceneCheck] = {}
"""By code, in the order in which they run."""


def check(code: str, title: str) -> Callable[[SceneFunction], SceneFunction]:
    """The decorator of a scene's checks."""

    def register(function: SceneFunction) -> SceneFunction:
        if code in SCENE_CHECKS:
            raise ValueError(f"two checks are called {code}")
        SCENE_CHECKS[code] = SceneCheck(code, title, function)
        return function

    return register


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
