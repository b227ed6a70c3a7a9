"""Indexes of prebuilt wheels (``data/wheel_indexes.toml``), and what the names of their wheels say of torch, CUDA and ABI."""

from __future__ import annotations

import re

from msgspec import Struct

from splatfix.knowledge.rows import rows


class WheelIndex(Struct, frozen=True):
    """A page, or pages, that list wheels."""

    name: str
    address: str
    """Of a page or folder; ``{name}``, ``{cuda}`` and ``{torch}`` stand for the package, ``cu128`` and ``2.8``."""
    maintained: bool = False
    """Published by those who write the packages."""
    packages: tuple[str, ...] = ()
    """All that it has; () where that is not known."""
    source: str = ""


def wheel_indexes() -> tuple[WheelIndex, ...]:
    """Every known index, those of the packages' own maintainers first."""
    known = rows(WheelIndex, "wheel_indexes", "indexes", "name").values()
    return tuple(sorted(known, key=lambda index: not index.maintained))


class BuiltFor(Struct, frozen=True):
    """What a wheel was compiled against, as far as its name or its folder says."""

    torch: tuple[int, ...] = ()
    """``(2, 8)`` or with the patch; () where nothing is said."""
    cuda: tuple[int, ...] = ()
    """``(12, 8)``, or ``(12,)``."""
    cxx11_abi: bool | None = None
    """Which std::string; None where nothing is said."""
    instead: str = ""
    """``cpu``, ``rocm``, ``xpu``: built for that in the place of CUDA."""


# torch2.8, torch.2.11, torch-2.5.0, pt2.5.1; pt24 and pt210 of gsplat and PyG; pyt251 of pytorch3d, whose last digit is the patch
_TORCH = re.compile(r"(?:torch|pyt|pt)[._-]?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,9}))?(?!\d)")
_PT = re.compile(r"(?<![a-z])(?:[0-9a-f]{6,9})?pt(\d)(\d{1,2})(?=cu|cpu|rocm|[^0-9.]|$)")
_PYT = re.compile(r"pyt(\d)(\d{1,2})(\d)(?!\d)")
# cu.12.8 and cu12.8.0; then cu128, cu92, and cu12 where only the major is named
_CUDA = re.compile(r"cu(?:da)?[._-]?(\d{1,4})\.(\d{1,4})")
_CU = re.compile(r"cu(?:da)?(9|1\d)(\d)?(?!\d)")
_ABI = re.compile(r"abi(true|false|1|0)")
_INSTEAD = re.compile(r"cpu|rocm|xpu|musa")


def built_for(text: str) -> BuiltFor:
    """What a version's local part (``cu128torch2.10``, ``cu.12.8.torch.2.11``, ``pt24cu124``), or a folder, says."""
    text = text.lower()
    torch: tuple[int, ...] = ()
    if match := _TORCH.search(text) or _PYT.search(text) or _PT.search(text):
        torch = tuple(int(number) for number in match.groups() if number)
    cuda: tuple[int, ...] = ()
    # torch's own numbers must not be read as those of a CUDA before them (cu12torch2.5)
    if match := _CUDA.search(text) or _CU.search(text):
        cuda = tuple(int(number) for number in match.groups() if number)
    cxx11_abi = None
    if match := _ABI.search(text):
        cxx11_abi = match.group(1) in ("true", "1")
    instead = ""
    if not cuda and (match := _INSTEAD.search(text)):
        instead = match.group()
    return BuiltFor(torch, cuda, cxx11_abi, instead)
