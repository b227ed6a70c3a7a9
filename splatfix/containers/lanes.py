"""The container lanes of ``dockerfiles/lanes.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splatfix.core.codec import CodecError, from_json
from splatfix.core.errors import Exit, SplatfixError, usage_error
from splatfix.core.resources import bundled
from splatfix.core.step import say
from splatfix.core.toml import parse_toml


@dataclass(frozen=True)
class Lane:
    """A kind of container to certify in. ``lanes.toml`` explains the fields."""

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
        """The path of the lane's Dockerfile."""
        return bundled("dockerfiles") / self.dockerfile


def load_lanes(path: Path | None = None) -> dict[str, Lane]:
    """All lanes by name, in the order of the file (default: the bundled one).

    Raises:
        SplatfixError: ``lanes-unreadable``, naming the invalid value.
    """
    path = path or bundled("dockerfiles") / "lanes.toml"
    try:
        document = parse_toml(path.read_text(encoding="utf-8"))
        rows = from_json(dict[str, dict[str, Any]], document.get("lanes", {}))
        lanes = {name: from_json(Lane, {"name": name, **row}) for name, row in rows.items()}
    except (OSError, ValueError) as error:  # CodecError and TOMLDecodeError are ValueErrors
        problem = "has an invalid lane" if isinstance(error, CodecError) else "cannot be read"
        raise SplatfixError(
            "lanes-unreadable",
            f"{path} {problem}: {error}.",
            todo=(say("Reinstall splatfix, or undo the last change of that file."),),
        ) from error
    for lane in lanes.values():
        _check(lane, path)
    return lanes


def find_lane(name: str, path: Path | None = None) -> Lane:
    """The lane of that name.

    Raises:
        SplatfixError: ``unknown-lane`` (exit code 2) with the known names.
    """
    lanes = load_lanes(path)
    if name in lanes:
        return lanes[name]
    raise usage_error(
        "unknown-lane", f"There is no container lane {name!r}.", say(f"Choose from: {', '.join(lanes)}")
    )


def _check(lane: Lane, path: Path) -> None:
    """Raise ``lanes-unreadable`` for values that have the right type and are invalid."""
    complaint = ""
    if not (path.parent / lane.dockerfile).is_file():
        complaint = f"there is no dockerfile {lane.dockerfile!r} beside the file"
    elif [part.isdigit() for part in lane.python.split(".")] != [True, True]:
        complaint = f"python = {lane.python!r} is not a minor version such as 3.11"
    elif [part.isdigit() for part in lane.glibc.split(".")] != [True, True]:
        complaint = f"glibc = {lane.glibc!r} is not a version such as 2.36"
    elif not lane.torch.startswith("torch==") or "+" not in lane.torch:
        complaint = f"torch = {lane.torch!r} is not one build such as torch==2.13.0+cpu"
    elif lane.timeout_s <= 0:
        complaint = f"timeout_s = {lane.timeout_s} is not positive"
    if complaint:
        raise SplatfixError(
            "lanes-unreadable",
            f"The lane {lane.name!r} in {path} is invalid: {complaint}.",
            exit_code=Exit.FAILURE,
        )
