"""Which wheels and which extension files a Python takes: what ``packaging.tags`` says, asked for another machine than this one.

Sources: PEP 425 and 600 (tags and manylinux), PEP 656 (musllinux). packaging lists the tags, as for pip; only the names of
Linux platforms are made here, because packaging would ask the C library that runs it. A test holds them against its own.
"""

import re
from functools import lru_cache

from msgspec import Struct
from packaging import tags

# The glibc of what was named before PEP 600; the first two are x86's alone.
_LEGACY_MANYLINUX = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}
_X86 = ("x86_64", "i686")
# Where the C library is not known, every manylinux is taken to fit.
_ANY_GLIBC = (2, 99)


class WheelTarget(Struct, frozen=True):
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
    return tag in _supported(target)


@lru_cache(maxsize=64)
def _supported(target: WheelTarget) -> frozenset[str]:
    own = f"cp{target.python[0]}{target.python[1]}"
    abi = own
    if target.free_threaded:
        abi += "t"
    elif target.python < (3, 8):  # built with pymalloc; 3.8 dropped the letter
        abi += "m"
    platforms = _platforms(target)
    native = tags.cpython_tags(target.python, [abi], platforms)
    pure = tags.compatible_tags(target.python, own, platforms)
    # free-threaded builds have no stable ABI (PEP 703), which an older packaging does not know
    taken = [tag for tag in (*native, *pure) if not (target.free_threaded and tag.abi == "abi3")]
    return frozenset(map(str, taken))


def _platforms(target: WheelTarget) -> list[str]:
    """The platform tags that suit a machine."""
    system, _, rest = target.platform.partition("_")
    mac = re.fullmatch(r"macosx_(\d{1,3})_(\d{1,3})_(\w+)", target.platform)
    if mac:
        return list(tags.mac_platforms((int(mac[1]), int(mac[2])), mac[3]))
    if system != "linux":
        return [target.platform]
    if target.musl:
        names = [f"musllinux_{target.musl[0]}_{minor}" for minor in range(target.musl[1] + 1)]
        return [f"{name}_{rest}" for name in (*names, "linux")]
    # manylinux begins with glibc 2.5 on x86 (PEP 513) and with 2.17 on other machines (PEP 599)
    oldest = 5 if rest in _X86 else 17
    glibc, newest = target.glibc or _ANY_GLIBC
    names = [f"manylinux_{glibc}_{minor}" for minor in range(oldest, newest + 1)]
    names += [name for minor, name in _LEGACY_MANYLINUX.items() if oldest <= minor <= newest]
    return [f"{name}_{rest}" for name in (*names, "linux")]


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
