"""The table of sabotages, ``sabotages.toml``, as data."""

import dataclasses
from pathlib import Path

from splatfix.core.codec import from_json
from splatfix.core.toml import parse_toml

KERNELS = ("arithmetic", "ssim", "knn", "rasterizer")


@dataclasses.dataclass(frozen=True)
class Sabotage:
    """A row; what each column means is said in the file."""

    name: str
    refused_by: str
    cause: str
    code: str = ""
    put: str = "pth"
    dropin: str = ""
    file: str = ""
    lines: str = ""
    iterations: int = 40


TABLE = from_json(
    tuple[Sabotage, ...],
    parse_toml(Path(__file__).with_name("sabotages.toml").read_text(encoding="utf-8"))["sabotage"],
)
