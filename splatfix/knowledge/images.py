"""Container images to build a stack in and to run it from: their Python and C library."""

from msgspec import Struct

from splatfix.knowledge.rows import decode
from splatfix.knowledge.tables import table


class SystemImage(Struct, frozen=True):
    """A distribution's own image."""

    name: str
    """``ubuntu24.04``"""
    image: str
    python: tuple[int, int]
    glibc: tuple[int, int]


class ToolkitImage(Struct, frozen=True):
    """NVIDIA's image of one CUDA release, with the compiler."""

    image: str
    system: SystemImage


def system_image(name: str) -> SystemImage:
    """The image of a system that the table has."""
    return decode(SystemImage, table("images")["systems"][name], name=name)


def toolkit_image(cuda: tuple[int, int]) -> ToolkitImage | None:
    """The image with the compiler of a CUDA release; None: the table knows none."""
    row = table("images")["toolkits"].get(f"{cuda[0]}.{cuda[1]}")
    if row is None:
        return None
    return ToolkitImage(row["image"], system_image(row["system"]))
