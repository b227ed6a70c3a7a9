"""Reads ``dockerfiles/lanes.toml``: which lanes there are and what each one is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splatfix.containers._toml import parse_toml
from splatfix.core.codec import CodecError, from_json
from splatfix.core.errors import Exit, SplatfixError, usage_error
from splatfix.core.resources import bundled
from splatfix.core.step import say


@dataclass(frozen=True)
class Lane:
    """One container that a certification can run in. The fields are explained at the head of ``lanes.toml``."""

    name: str
    description: str
    base_image: str
    dockerfile: str
    python: str
    glibc: str
    torch: str
    torch_index: str
    gpu: bool
    suite: str
    timeout_s: int
    requirements: tuple[str, ...] = ()
    apt: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    build_args: Mapping[str, str] = field(default_factory=dict)

    @property
    def dockerfile_path(self) -> Path:
        """Where the lane's Dockerfile lies on this machine."""
        return bundled("dockerfiles") / self.dockerfile


def load_lanes(path: Path | None = None) -> dict[str, Lane]:
    """Every lane by name, in the order of the file (default: the one that travels with splatfix).

    Raises:
        SplatfixError: ``lanes-unreadable`` naming the place in the file that does not fit.
    """
    path = path or bundled("dockerfiles") / "lanes.toml"
    try:
        document = parse_toml(path.read_text(encoding="utf-8"))
        rows = from_json(dict[str, dict[str, Any]], document.get("lanes", {}))
        lanes = {name: from_json(Lane, {"name": name, **row}) for name, row in rows.items()}
    except (OSError, ValueError) as error:  # CodecError and TOMLDecodeError are ValueErrors
        place = "a row in it does not fit" if isinstance(error, CodecError) else "it cannot be read"
        raise SplatfixError(
            "lanes-unreadable",
            f"The list of lanes {path} is of no use: {place}: {error}.",
            meaning="No container lane can be built from it.",
            todo=(say("Reinstall splatfix, or undo the last change of that file."),),
        ) from error
    for lane in lanes.values():
        _check(lane, path)
    return lanes


def find_lane(name: str, path: Path | None = None) -> Lane:
    """The lane of that name.

    Raises:
        SplatfixError: ``unknown-lane`` (exit code 2) with the names there are.
    """
    lanes = load_lanes(path)
    if name in lanes:
        return lanes[name]
    known = ", ".join(lanes) or "none at all"
    raise usage_error(
        "unknown-lane", f"There is no container lane {name!r}.", say(f"Choose one of: {known}.")
    )


def _check(lane: Lane, path: Path) -> None:
    """What types alone cannot say."""
    complaint = ""
    if not (path.parent / lane.dockerfile).is_file():
        complaint = f"its dockerfile {lane.dockerfile!r} is not beside it"
    elif [part.isdigit() for part in lane.python.split(".")] != [True, True]:
        complaint = f"python = {lane.python!r} is no minor version such as 3.11"
    elif [part.isdigit() for part in lane.glibc.split(".")] != [True, True]:
        complaint = f"glibc = {lane.glibc!r} is no version such as 2.36"
    elif not lane.torch.startswith("torch==") or "+" not in lane.torch:
        complaint = f"torch = {lane.torch!r} does not name one build, such as torch==2.13.0+cpu"
    elif lane.timeout_s <= 0:
        complaint = f"timeout_s = {lane.timeout_s} is no time"
    if complaint:
        raise SplatfixError(
            "lanes-unreadable",
            f"The lane {lane.name!r} in {path} does not fit: {complaint}.",
            exit_code=Exit.FAILURE,
        )
