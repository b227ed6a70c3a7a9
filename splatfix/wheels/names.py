"""What a wheel's file name, and the folder that lists it, say against it: version, tags, torch, CUDA, ABI; nothing is fetched."""

import re
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
from splatfix.model import Torch
from splatfix.wheels.model import Link, Wanted
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
    """Return the parts; None for what is no wheel's name, also for one of more combined tags than any has."""
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


def wheel_target(context: Context) -> WheelTarget:
    """Return what pip would look at, with the C library that is here."""
    interpreter, libc = context.interpreter, context.machine.libc.value or ""
    assert interpreter is not None
    major, minor, *_ = release(interpreter.version)
    return WheelTarget(
        (major, minor),
        re.sub(r"[-.]", "_", interpreter.platform_tag),
        glibc=context.glibc,
        musl=major_minor(libc) if libc.startswith("musl") else None,
        free_threaded=re.match(r"(cpython-|cp)\d+t", interpreter.abi_tag) is not None,
    )


def objection_to_name(
    link: Link, wanted: Wanted, parsed: ParsedName | None, context: Context, torch: Torch
) -> Rejected | None:
    """Return the first thing that speaks against a wheel by its name; None for none."""
    if parsed is None:
        return Rejected.of("wheels.bad-name")
    if link.yanked:
        return Rejected.of("wheels.yanked")
    if "://" in link.address and (reason := refused_address(link.address)):
        return Rejected.of("wheels.bad-address", reason=reason)
    public = parsed.version.public
    if wanted.version and Version(public) != Version(wanted.version):
        return Rejected.of("wheels.wrong-version", public=public, wanted=wanted.version)
    target, tags = wheel_target(context), parsed.tags
    if not any(tag_fits(str(tag), target) for tag in tags):
        if any(tag_fits(f"{tag.interpreter}-{tag.abi}-{target.platform}", target) for tag in tags):
            here = f"{target.platform}, {context.machine.libc.value or 'C library unknown'}"
            platforms = sorted({tag.platform for tag in tags})
            return Rejected.of("wheels.wrong-platform", platforms=platforms, platform=here)
        pythons = sorted({f"{tag.interpreter}-{tag.abi}" for tag in tags})
        here = dotted(target.python) + " (free-threaded)" * target.free_threaded
        return Rejected.of("wheels.wrong-python", pythons=pythons, python=here)
    return _wrong_build(parsed.built, torch)


def _wrong_build(built: BuiltFor, torch: Torch) -> Rejected | None:
    """Torch must be of the same release, CUDA of the same major: torch promises no C++ ABI between releases, CUDA one within a
    major ("CUDA Compatibility", minor version compatibility)."""
    if built.instead:
        return Rejected.of("wheels.built-for-no-cuda", instead=built.instead)
    if built.torch and built.torch[:2] != release(torch.version)[:2]:
        return Rejected.of("wheels.built-for-another-torch", built=dotted(built.torch), torch=torch.version)
    if built.cuda and built.cuda[:1] != release(torch.cuda or "")[:1]:
        return Rejected.of(
            "wheels.built-for-another-cuda", built=dotted(built.cuda), cuda=torch.cuda or "none"
        )
    ours = cxx11_abi(torch.version)
    if built.cxx11_abi is not None and ours is not None and built.cxx11_abi != ours:
        names = {True: "the new", False: "the old"}
        return Rejected.of("wheels.wrong-abi", built=names[built.cxx11_abi], ours=names[ours])
    return None


def preference(parsed: ParsedName, torch: Torch) -> tuple[object, ...]:
    """For a sort: the newest version first, then what was built for this very CUDA and torch."""
    version = parsed.version
    public = tuple(-number for number in version.release)
    same_cuda = parsed.built.cuda[:2] == release(torch.cuda or "")[:2]
    same_torch = parsed.built.torch == release(torch.version)[: len(parsed.built.torch)]
    return version.is_prerelease, public, not same_cuda, not same_torch, not parsed.built.torch
