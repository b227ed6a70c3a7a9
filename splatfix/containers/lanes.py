"""The container lanes of ``dockerfiles/lanes.toml``."""

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError

from splatfix.core.codec import from_json
from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.resources import bundled
from splatfix.core.step import say
from splatfix.core.toml import parse_toml

_PYTHON = Meta(pattern=r"^\d+\.\d+\Z")
_TORCH = Meta(pattern=r"^torch==[\w.+]+\Z")
_MEMORY = Meta(pattern=r"^\d+[bkmg]?\Z")
_TARGET = Meta(pattern=r"^sm_\d+[af]?\Z")


class GpuNeed(str, Enum):
    """Whether a lane runs on a GPU."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


class ToolkitFrom(str, Enum):
    """What compiles a lane's extensions."""

    NOTHING = ""
    PYPI = "pypi"
    IMAGE = "image"
    NVRTC = "nvrtc"


class Lane(Struct, forbid_unknown_fields=True, frozen=True):
    """A kind of container to certify in. ``lanes.toml`` explains the fields."""

    name: str
    description: str
    base_image: str
    python: Annotated[str, _PYTHON]
    torch: Annotated[str, _TORCH]
    gpu: GpuNeed
    suite: str
    memory: Annotated[str, _MEMORY]
    timeout_s: int
    shown: str
    sources: tuple[str, ...]
    build_image: str = ""
    torch_index: str = ""
    toolkit: ToolkitFrom = ToolkitFrom.NOTHING
    targets: tuple[Annotated[str, _TARGET], ...] = ()
    extensions: tuple[str, ...] = ()
    repository: str = ""
    requirements: tuple[str, ...] = ()
    downloads: tuple[str, ...] = ()
    build_apt: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


def load_lanes(path: Path | None = None) -> dict[str, Lane]:
    """All lanes by name, in the order of the file (default: the bundled one).

    Raises:
        SplatfixError: ``lanes-unreadable``, naming the invalid value.
    """
    path = path or bundled("dockerfiles") / "lanes.toml"
    try:
        document = parse_toml(path.read_text(encoding="utf-8"))
        rows = from_json(dict[str, dict[str, Any]], document.get("lanes", {}))
        lanes = {name: from_json(Lane, {**_inherited(name, rows), "name": name}) for name in rows}
        for lane in lanes.values():
            _check(lane)
    except (OSError, ValueError) as error:  # ValidationError and TOMLDecodeError are ValueErrors
        problem = "has an invalid lane" if isinstance(error, ValidationError) else "cannot be read"
        raise SplatfixError.of(
            "containers.lanes-unreadable", path=path, problem=problem, error=error
        ) from error
    return lanes


def find_lane(name: str, path: Path | None = None) -> Lane:
    """The lane of that name.

    Raises:
        SplatfixError: ``unknown-lane`` (exit code 2) with the known names.
    """
    lanes = load_lanes(path)
    if name in lanes:
        return lanes[name]
    choice = say(f"Choose from: {', '.join(lanes)}")
    raise usage_error("unknown-lane", f"There is no container lane {name!r}.", choice)


def _inherited(name: str, rows: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """A lane's values with those of the lanes that it is like.

    Raises:
        ValidationError: it is like one that there is not, or like itself.
    """
    chain = [name]
    while (other := rows[chain[-1]].get("like")) is not None:
        if other not in rows or other in chain:
            raise ValidationError(f"{chain[-1]} is like {other!r}, which is no other lane")
        chain.append(other)
    merged: dict[str, Any] = {}
    for lane in reversed(chain):
        merged |= rows[lane]
    merged.pop("like", None)
    return merged


def _check(lane: Lane) -> None:
    """Raise ValidationError for values that are valid one by one, and not together."""
    if bool(lane.toolkit.value) != bool(lane.targets) or (lane.extensions and not lane.targets):
        raise ValidationError(f"{lane.name}: toolkit, targets and extensions belong together")
    if lane.timeout_s <= 0:
        raise ValidationError(f"{lane.name}: timeout_s = {lane.timeout_s} is not positive")
