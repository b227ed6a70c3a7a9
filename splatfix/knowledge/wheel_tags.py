"""Which wheels and which extension files a Python takes: pip's rules for tags, as plain functions of facts.

Sources: PEP 425 and 600 (tags and manylinux), PEP 656 (musllinux), and packaging.tags, which pip itself asks; a test holds
these rules against it over a grid. They are written out here because packaging asks the running interpreter and C library,
and splatfix judges others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LEGACY_MANYLINUX = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_ONLY_ON_X86 = ("manylinux1", "manylinux2010")
_X86 = ("x86_64", "i686")


@dataclass(frozen=True)
class WheelTarget:
    """A CPython on a platform, as far as pip looks at it."""

    python: tuple[int, int]
    platform: str
    """``linux_x86_64``, ``win_amd64``, ``macosx_14_0_arm64``."""
    glibc: tuple[int, int] | None = None
    """None: not known, any manylinux is taken to fit."""
    musl: tuple[int, int] | None = None
    """Version of musl, where that is the C library; then no manylinux fits."""
    free_threaded: bool = False


def tag_fits(tag: str, target: WheelTarget) -> bool:
    """Whether pip takes a wheel of one tag triple, such as ``cp311-cp311-manylinux_2_28_x86_64``; False for no triple."""
    parts = tag.split("-")
    if len(parts) != 3:
        return False
    python, abi, platform = parts
    if platform == "any":
        return abi == "none" and _pure_python_fits(python, target.python)
    return _code_fits(python, abi, target) and platform_fits(platform, target)


def platform_fits(platform: str, target: WheelTarget) -> bool:
    """Whether a platform tag suits a machine."""
    if platform == target.platform:
        return True
    machine = target.platform.partition("_")[2]
    if target.platform.startswith("macosx_"):
        return _mac_fits(platform, target.platform)
    if not target.platform.startswith("linux_"):
        return False
    match = re.fullmatch(r"(manylinux|musllinux)_(\d+)_(\d+)_(\w+)", platform)
    if match is not None:
        library, major, minor, arch = match.groups()
        needed = int(major), int(minor)
        if arch != machine:
            return False
        if library == "musllinux":
            return target.musl is not None and needed[0] == target.musl[0] and needed <= target.musl
        return _glibc_fits(needed, machine, target)
    name, _, arch = platform.partition("_")
    if name not in _LEGACY_MANYLINUX or arch != machine or (name in _ONLY_ON_X86 and machine not in _X86):
        return False
    return _glibc_fits(_LEGACY_MANYLINUX[name], machine, target)


def extension_file_fits(file_name: str, abi_tag: str) -> bool:
    """Whether an interpreter imports a compiled file of this name.

    Args:
        file_name: such as ``_C.cpython-311-x86_64-linux-gnu.so``; the part before the first dot is the module's name.
        abi_tag: the interpreter's own part of such names: ``cpython-311-x86_64-linux-gnu``, ``cp311-win_amd64``.

    Source: ``importlib.machinery.EXTENSION_SUFFIXES``, which a test asks. abi3 has a suffix of its own on POSIX only, and
    a free-threaded build does not take it (PEP 703).
    """
    _, _, rest = file_name.partition(".")
    windows = abi_tag.startswith("cp") and not abi_tag.startswith("cpython")
    ending = "pyd" if windows else "so"
    if rest in (ending, f"{abi_tag}.{ending}"):
        return True
    return rest == "abi3.so" and not windows and re.match(r"cpython-\d+\w*t", abi_tag) is None


def python_of_file(file_name: str) -> tuple[int, int] | None:
    """The Python that a compiled file's name names: ``_C.cpython-310-....so`` -> (3, 10); None where it names none."""
    match = re.search(r"\.(?:cpython-|cp)(\d)(\d+)[\w-]*\.(?:so|pyd)$", file_name)
    if match is None:
        return None
    return int(match.group(1)), int(match.group(2))


def _pure_python_fits(python: str, target: tuple[int, int]) -> bool:
    major, minor = target
    if python in (f"py{major}", f"cp{major}{minor}"):
        return True
    match = re.fullmatch(rf"py{major}(\d+)", python)
    return match is not None and int(match.group(1)) <= minor


def _code_fits(python: str, abi: str, target: WheelTarget) -> bool:
    major, minor = target.python
    own = f"cp{major}{minor}"
    if abi == "none":
        return _pure_python_fits(python, target.python)
    if abi == "abi3":
        match = re.fullmatch(rf"cp{major}(\d+)", python)
        # the stable ABI begins with 3.2 (PEP 384); free-threaded builds have none yet (PEP 703)
        return match is not None and 2 <= int(match.group(1)) <= minor and not target.free_threaded
    suffix = ""
    if target.free_threaded:
        suffix = "t"
    elif target.python < (3, 8):  # built with pymalloc; 3.8 dropped the letter
        suffix = "m"
    return python == own and abi == own + suffix


def _glibc_fits(needed: tuple[int, int], machine: str, target: WheelTarget) -> bool:
    # manylinux begins with glibc 2.5 on x86 (PEP 513) and with 2.17 on other machines (PEP 599)
    oldest = (2, 5) if machine in _X86 else (2, 17)
    if target.musl is not None or needed < oldest:
        return False
    return target.glibc is None or (needed[0] == target.glibc[0] and needed <= target.glibc)


def _mac_fits(platform: str, own: str) -> bool:
    """From macOS 11 on by the major alone; older ones by major and minor, for arm64 as universal2 only."""
    needed, present = _mac_version(platform), _mac_version(own)
    if needed is None or present is None:
        return False
    (major, minor, arch), (own_major, own_minor, machine) = needed, present
    if (major, minor) > (own_major, own_minor):
        return False
    if major > 10 and minor != 0 and major != own_major:
        return False
    if arch == "universal2":
        return True
    return arch == machine and (machine != "arm64" or major >= 11)


def _mac_version(platform: str) -> tuple[int, int, str] | None:
    match = re.fullmatch(r"macosx_(\d+)_(\d+)_(\w+)", platform)
    if match is None:
        return None
    return int(match.group(1)), int(match.group(2)), match.group(3)
