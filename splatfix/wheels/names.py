"""What a wheel's file name, and the folder that lists it, say against it: version, tags, torch, CUDA, ABI; nothing is fetched."""

import re
from collections.abc import Iterable
from math import prod

from msgspec import Struct
from packaging.tags import Tag
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from splatfix.context import Context
from splatfix.core.errors import Rejected
from splatfix.core.versions import dotted, major_minor, release
from splatfix.knowledge.torch_releases import cxx11_abi
from splatfix.knowledge.wheel_indexes import BuiltFor, built_for
from splatfix.knowledge.wheel_tags import WheelTarget, tag_fits
from splatfix.model import Interpreter, Torch
from splatfix.wheels.model import Link, Wanted, unfit
from splatfix.wheels.web import refused_address

_NAME = re.compile(r"[\w.+!-]{1,255}", re.ASCII)
_MOST_TAGS = 64


class ParsedName(Struct, frozen=True):
    """A wheel's file name in its parts."""

    version: Version
    tags: frozenset[Tag]
    built: BuiltFor
    """By the version's local part, else by the folder."""


def parse_name(link: Link) -> ParsedName | None:
    """The parts; None for what is no wheel's name, also for one of more combined tags than any has."""
    combined = prod(part.count(".") + 1 for part in link.wheel[:-4].split("-")[-3:])
    if combined > _MOST_TAGS or not _NAME.fullmatch(link.wheel):
        return None
    try:
        _, version, _, tags = parse_wheel_filename(link.wheel)
    except ValueError:
        return None
    built = built_for(version.local or "")
    if built == BuiltFor():
        built = built_for(link.page)
    return ParsedName(version, tags, built)


def wheel_target(context: Context, interpreter: Interpreter) -> WheelTarget:
    """What pip would look at, with the C library that is here."""
    libc, musl = context.machine.libc.value or "", None
    if libc.startswith("musl"):
        musl = major_minor(libc)
    version = release(interpreter.version)
    return WheelTarget(
        (version[0], version[1]),
        re.sub(r"[-.]", "_", interpreter.platform_tag),
        glibc=context.glibc,
        musl=musl,
        free_threaded=re.match(r"(cpython-|cp)\d+t", interpreter.abi_tag) is not None,
    )


def objection_to_name(
    link: Link, wanted: Wanted, parsed: ParsedName | None, target: WheelTarget, torch: Torch
) -> Rejected | None:
    """The first thing that speaks against a wheel by its name; None for none."""
    if parsed is None:
        return unfit("bad-name", "it is not called as a wheel is (PEP 427)")
    if link.yanked:
        return unfit("yanked", "its index withdrew it (PEP 592)")
    if "://" in link.address and (reason := refused_address(link.address)):
        return unfit("bad-address", reason)
    public = parsed.version.public
    if wanted.version and Version(public) != Version(wanted.version):
        return unfit("wrong-version", f"it is version {public}, and {wanted.version} is asked for")
    return _wrong_tags(parsed.tags, target) or _wrong_build(parsed.built, torch)


def _wrong_tags(tags: Iterable[Tag], target: WheelTarget) -> Rejected | None:
    tags = tuple(tags)
    if any(tag_fits(str(tag), target) for tag in tags):
        return None
    here = f"Python {dotted(target.python)}"
    if target.free_threaded:
        here += " (free-threaded)"
    for tag in tags:
        if tag_fits(f"{tag.interpreter}-{tag.abi}-{target.platform}", target):
            platforms = ", ".join(sorted({tag.platform for tag in tags}))
            platform = target.platform
            if target.glibc:
                platform += f" with glibc {dotted(target.glibc)}"
            elif target.musl:
                platform += f" with musl {dotted(target.musl)}"
            return unfit("wrong-platform", f"it is for {platforms}, and here is {platform}")
    pythons = ", ".join(sorted({f"{tag.interpreter}-{tag.abi}" for tag in tags}))
    return unfit("wrong-python", f"it is for {pythons}, and here is {here}")


def _wrong_build(built: BuiltFor, torch: Torch) -> Rejected | None:
    """Torch must be of the same release, CUDA of the same major: torch promises no C++ ABI between releases, CUDA one within a
    major ("CUDA Compatibility", minor version compatibility)."""
    if built.instead:
        return unfit("wrong-cuda", f"it is built for {built.instead}, not for CUDA")
    if built.torch and built.torch[:2] != release(torch.version)[:2]:
        return unfit(
            "wrong-torch", f"it is built for torch {dotted(built.torch)}, and here is {torch.version}"
        )
    cuda = release(torch.cuda or "")
    if built.cuda and built.cuda[:1] != cuda[:1]:
        return unfit(
            "wrong-cuda", f"it is built for CUDA {dotted(built.cuda)}, and torch here for {torch.cuda}"
        )
    ours = cxx11_abi(torch.version)
    if built.cxx11_abi is not None and ours is not None and built.cxx11_abi != ours:
        names = {True: "the new C++ ABI", False: "the old C++ ABI"}
        return unfit(
            "wrong-abi", f"it is built with {names[built.cxx11_abi]}, and torch here with {names[ours]}"
        )
    return None


def preference(parsed: ParsedName, torch: Torch) -> tuple[object, ...]:
    """For a sort: the newest version first, then what was built for this very CUDA and torch."""
    version = parsed.version
    public = tuple(-number for number in version.release)
    same_cuda = parsed.built.cuda[:2] == release(torch.cuda or "")[:2]
    same_torch = parsed.built.torch == release(torch.version)[: len(parsed.built.torch)]
    return version.is_prerelease, public, not same_cuda, not same_torch, not parsed.built.torch
