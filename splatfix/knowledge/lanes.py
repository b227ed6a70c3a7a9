"""The container lanes of ``dockerfiles/lanes.toml``."""

from enum import Enum
from typing import Any

from msgspec import Struct

from splatfix.core.codec import from_json
from splatfix.core.errors import SplatfixError
from splatfix.core.resources import bundled
from splatfix.core.toml import parse_toml


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
    python: str
    torch: str
    gpu: GpuNeed
    suite: str
    memory: str
    timeout_s: int
    shown: str
    sources: tuple[str, ...]
    build_image: str = ""
    torch_index: str = ""
    toolkit: ToolkitFrom = ToolkitFrom.NOTHING
    targets: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    repository: str = ""
    requirements: tuple[str, ...] = ()
    downloads: tuple[str, ...] = ()
    build_apt: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


def load_lanes() -> dict[str, Lane]:
    """Return all lanes by name, in the order of the file."""
    document = parse_toml((bundled("dockerfiles") / "lanes.toml").read_text(encoding="utf-8"))
    rows: dict[str, dict[str, Any]] = {}
    for name, own in document["lanes"].items():
        # with the values of the lane that it is like, which comes before it
        other = rows[own.pop("like")] if "like" in own else {}
        rows[name] = {**other, **own, "name": name}
    return {name: from_json(Lane, row) for name, row in rows.items()}


def find_lane(name: str) -> Lane:
    """Return the lane of that name.

    Raises:
        SplatfixError: ``unknown-lane`` (exit code 2) with the known names.
    """
    lanes = load_lanes()
    if name not in lanes:
        raise SplatfixError.of("knowledge.unknown-lane", name=name, lanes=lanes)
    return lanes[name]
