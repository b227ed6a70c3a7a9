"""Certificates of a run that has not come to its end: written while it runs, or because somebody ended it."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from splatfix.certify.model import NOT_REACHED, Certificate, Skipped
from splatfix.certify.progress import title, words
from splatfix.core.proof import Rung, RungName
from splatfix.core.words import counted

EVERY = 10.0
"""Seconds between two reports within a scene, at least."""
SHARE = 50
"""A report that took long to write is not written again before so many times as long: it costs 2 % at most."""


def incomplete(
    base: Certificate, scenes: Sequence[str], under_way: Mapping[str, Any], *, interrupted: bool
) -> Certificate:
    """Make a certificate of what was done so far, which says so: of that of the scenes that are done, and of what ran.

    Scenes that are not done are ``skipped``. A run that was not interrupted goes on, and this report is to be replaced.
    """
    done = [run.scene for run in base.scenes]
    after = f"after {len(done)} of {counted(len(scenes), 'scene')}"
    if where := str(under_way.get("where", "")):
        after += f", in {title(where, under_way)}"
        if progress := words(under_way, left=False):
            after += f" at {progress}"
    if interrupted:
        opening = f"Interrupted {after}."
    else:
        opening = f"Not finished: written {after}. If no splatfix runs any more, it was killed."
    not_reached = tuple(Skipped(name, NOT_REACHED) for name in scenes if name not in done)
    return replace(
        base,
        summary=f"{opening} {base.summary}",
        interrupted=interrupted,
        unfinished=not interrupted,
        under_way=under_way,
        skipped=(*base.skipped, *not_reached),
    )


def so_far(proof: tuple[Rung, ...], done: int, scenes: int) -> tuple[Rung, ...]:
    """The levels of a run that has trained only some of its scenes: what is true of all of them is not verified yet."""
    rungs = []
    for rung in proof:
        of_all = rung.name in (RungName.TRAINS, RungName.REPRODUCES)
        if of_all and not done:
            rung = Rung(rung.name, None, "no scene was trained to its end yet")
        elif of_all and rung.reached:
            rung = Rung(rung.name, None, f"so far {done} of {counted(scenes, 'scene')}, and nothing failed")
        rungs.append(rung)
    return tuple(rungs)


class InterimReports:
    """Writes a report after the kernels, after each scene, and now and then within one: a killed run leaves the latest."""

    def __init__(
        self,
        scenes: Sequence[str],
        conclude: Callable[[], Certificate],
        write: Callable[[Certificate], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``conclude`` makes the certificate of the scenes that are done, as of now."""
        self._scenes, self._conclude, self._write, self._clock = scenes, conclude, write, clock
        self._next = math.inf
        self.under_way: dict[str, Any] = {}
        """What runs, as in :class:`~splatfix.certify.model.Certificate`."""

    def settled(self) -> None:
        """The kernels, or one more scene, are done."""
        self.under_way = {}
        self._report()

    def training(self, where: str, state: Mapping[str, Any]) -> None:
        """A training began, or came further."""
        before = self.under_way.get("where")
        known = self.under_way if before == where else {}
        if where == f"{before}, again" and "run" in self.under_way:
            known = {"run": self.under_way["run"]}
        self.under_way = {**known, **state, "where": where}
        if self._clock() >= self._next:
            self._report()

    def _report(self) -> None:
        began = self._clock()
        self._write(incomplete(self._conclude(), self._scenes, self.under_way, interrupted=False))
        written = self._clock()
        self._next = written + max(EVERY, SHARE * (written - began))
