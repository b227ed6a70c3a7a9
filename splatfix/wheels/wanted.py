"""What a wheel must be, by the source whose build it takes the place of, or by a name."""

import re
from contextlib import suppress
from pathlib import Path

from packaging.version import InvalidVersion, Version

from splatfix.core.errors import SplatfixError
from splatfix.facts import packages_in, read_package
from splatfix.knowledge.stacks import variant
from splatfix.model import Source
from splatfix.wheels.model import Wanted

_NAME = re.compile(r"([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)(?:==([\w.!+-]+))?")


def wanted_by_source(source: Source) -> Wanted:
    """A wheel in the place of a build of this source: its name, its version, and called as it is."""
    version = source.version or ""
    try:
        version = Version(version).public
    except InvalidVersion:
        version = ""
    packages = []
    for module in source.packages or packages_in(Path(source.folder)):
        face = None
        with suppress(ValueError):  # what is wrong with it is for the build to say
            if module.isidentifier():
                face = read_package(Path(source.folder), module)
        # a package without a compiled part and without settings has no face that could differ
        if face and (face.native or face.settings):
            packages.append(face)
    return Wanted(source.label, version, tuple(packages), source=source.folder)


def is_name(text: str) -> bool:
    """It is written as a package is named, not as a path."""
    return _NAME.fullmatch(text.strip()) is not None


def wanted_by_name(text: str) -> Wanted:
    """``fused-ssim``, ``gsplat==1.5.3``, or the key of a variant such as ``inria-v1``.

    Raises:
        SplatfixError: ``not-a-package`` (exit code 2).
    """
    row = variant(text)
    if row:
        return Wanted(row.module, variants=(row.key,), source=row.key)
    named = _NAME.fullmatch(text.strip())
    if named is None:
        raise SplatfixError.of("wheels.not-a-package", text=text)
    return Wanted(named.group(1), named.group(2) or "", source=text)
