"""Which options of ``certify`` cannot be combined, in one table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.step import say


@dataclass(frozen=True)
class Conflict:
    """Options that cannot stand beside one that chooses what is certified, and where."""

    beside: str
    """An option, or a level; ``here`` stands for a certification outside of containers."""
    options: tuple[str, ...]
    code: str
    reason: str
    """The message, with ``{options}`` for those that were typed."""
    todo: str

    def refusal(self, typed: Collection[str]) -> SplatfixError | None:
        """The error (exit code 2) where one of the options was typed."""
        unfit = ", ".join(name for name in self.options if name in typed)
        if not unfit:
            return None
        return usage_error(self.code, self.reason.format(options=unfit), say(self.todo.format(options=unfit)))


def _with_level(level: int, options: tuple[str, ...], reason: str, todo: str) -> Conflict:
    beside = f"--level {level}"
    message = f"{{options}} cannot be combined with {beside}: run level {level} {reason}."
    return Conflict(beside, options, "not-with-level", message, todo)


_SCENES = ("--suite", "--scene", "--iterations", "--resolution")
_TRAINING = ("--renderer", "--seed", "--baseline")
_OWN_SCENES = "has its own scenes, length and size"
_LEAVE_OUT_OR_CHOOSE = "Leave out {options}, or leave out --level to choose scenes and length yourself."
_PUBLIC = "Use --level 4, which trains the thirteen public scenes of --data, or leave out --data."

CONFLICTS = (
    Conflict(
        "--data",
        ("--suite",),
        "suite-and-data",
        "--suite and --data both choose the scenes.",
        "Use one of them.",
    ),
    Conflict(
        "--repo",
        ("--suite", "--data", "--seed", "--baseline", "--renderer", "--appendix"),
        "not-with-repo",
        "{options} cannot be combined with --repo: the checkout's trainer has options of its own.",
        "Leave that out, or give its train.py words after -- with splatfix rehearse.",
    ),
    Conflict(
        "--repo here",
        ("--sign", "--level"),
        "not-with-repo",
        "{options} cannot be combined with --repo: the checkout's trainer has options of its own.",
        "Leave that out, or give its train.py words after -- with splatfix rehearse.",
    ),
    Conflict(
        "--data",
        ("--scene",),
        "scene-and-data",
        "--scene and --data both choose the scenes.",
        "Use one of them.",
    ),
    *(
        _with_level(level, (*_SCENES, "--data", *_TRAINING), "trains nothing", "Leave out {options}.")
        for level in (1, 2)
    ),
    _with_level(3, _SCENES, _OWN_SCENES, _LEAVE_OUT_OR_CHOOSE),
    _with_level(3, ("--data",), _OWN_SCENES, _PUBLIC),
    _with_level(4, _SCENES, _OWN_SCENES, _LEAVE_OUT_OR_CHOOSE),
    Conflict(
        "--container",
        (
            *(
                "--level",
                "--data",
                "--iterations",
                "--resolution",
                "--python",
                "--scene",
                "--renderer",
                "--device",
            ),
            *("--seed", "--baseline", "--appendix", "--format", "--exit-codes"),
        ),
        "not-in-a-container",
        "{options} cannot be combined with --container: a lane trains its suite as it is.",
        "Leave that out, or certify an environment of this machine with --python.",
    ),
    Conflict(
        "here",
        ("--docker-host", "--base-image", "--ca-certificates", "--jobs", "--extension", "--keep"),
        "only-in-a-container",
        "{options} needs --container.",
        "Add --container LANE, or leave that out.",
    ),
)
"""In the order in which they are looked for: the first that is met ends the command."""


def refuse_conflicts(values: Mapping[str, object]) -> None:
    """Check what was typed, before anything is done.

    Args:
        values: of every option; falsy where it was left out or has its default.

    Raises:
        SplatfixError: exit code 2, with the code of the conflict.
    """
    typed = {name for name, value in values.items() if value}
    modes = set(typed)
    if "--level" in typed:
        modes.add(f"--level {values['--level']}")
    if "--container" not in typed:
        # options of containers were never looked at beside --repo
        modes.add("--repo here" if "--repo" in typed else "here")
    for conflict in CONFLICTS:
        if conflict.beside in modes:
            refusal = conflict.refusal(typed)
            if refusal is not None:
                raise refusal
