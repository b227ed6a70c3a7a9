"""Finds the wheel of a package for an environment: every index listed, every name judged, the best opened until one is proven."""

import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from packaging.version import InvalidVersion, Version

from splatfix.binaries import BinaryError
from splatfix.binaries.wheel import opened_wheel
from splatfix.context import Context
from splatfix.core.errors import Exit, Rejected, SplatfixError
from splatfix.core.files import write_bytes
from splatfix.core.reading import read_blocks
from splatfix.core.scratch import process_folder
from splatfix.facts.checkout import packages_in, read_package
from splatfix.knowledge.stacks import variant
from splatfix.knowledge.wheel_indexes import WheelIndex
from splatfix.model import Considered, Source, Torch
from splatfix.wheels.contents import prove_found
from splatfix.wheels.listing import may_list, wheels_in
from splatfix.wheels.model import Candidate, Link, Search, Wanted
from splatfix.wheels.names import objection_to_name, parse_name, preference
from splatfix.wheels.web import Web, WebError

_NAME = re.compile(r"([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)(?:==([\w.!+-]+))?")
_MOST_OPENED = 6
"""Wheels of one package that are looked into. More than two or three hardly ever fit by name."""
_LONGEST = 300
"""Signs of what is said of a wheel."""
_DAMAGED = (BinaryError, ValueError, ArithmeticError, LookupError, RecursionError, MemoryError)
"""What a stranger's wheel makes a parser raise: by numbers or nesting without end, for one."""


class Finder(Struct, frozen=True):
    """Looks for the wheel of a package, and hands over what it found."""

    wanted: Wanted
    context: Context
    """Its targets are what the GPU code must serve."""
    torch: Torch
    web: Web

    def find(self, indexes: Sequence[WheelIndex]) -> Search:
        """Judge the wheels that these indexes list. Reads; changes nothing."""
        name = self.wanted.name
        links: list[Link] = []
        unanswered: list[Considered] = []
        for index in indexes:
            try:
                links += wheels_in(index, name, self.torch, self.web)
            except WebError as error:
                # a server that says there is no such page has answered: it has no such wheels
                if not error.missing:
                    unanswered.append(Considered(index.name, str(error)))
        asked = tuple(index.name for index in indexes if may_list(index, name))
        return Search(name, tuple(self.judged(links)), tuple(unanswered), asked)

    def fetch(self, found: Candidate, folder: Path) -> Path:
        """Put the wheel that was found, and proven as it is, into a folder; raises ``cannot-write``."""
        assert found.path is not None
        write_bytes(folder / found.link.wheel, read_blocks(found.path))
        return folder / found.link.wheel

    def judged(self, links: Sequence[Link]) -> list[Candidate]:
        """Return the proven one first, then those that may do, then the others as they were listed."""
        fitting, others = [], []
        for link in dict.fromkeys(links):
            parsed = parse_name(link)
            objection = objection_to_name(link, self.wanted, parsed, self.context, self.torch)
            if parsed and objection is None:
                fitting.append((preference(parsed, self.torch), link))
            else:
                others.append(Candidate(link, objection))
        fitting.sort(key=lambda item: item[0])
        looked_into: list[Candidate] = []
        for _, link in fitting[:_MOST_OPENED]:
            candidate = self.opened(link)
            if candidate.rejected is None:
                return [candidate, *looked_into, *others]
            looked_into.append(candidate)
        not_read = Rejected.of("wheels.not-read", most=_MOST_OPENED)
        looked_into += [Candidate(link, not_read) for _, link in fitting[_MOST_OPENED:]]
        # what may do comes first
        looked_into.sort(key=lambda item: bool(item.rejected and item.rejected.exit_code is Exit.FAILURE))
        return [*looked_into, *others]

    def opened(self, link: Link) -> Candidate:
        """Look into a wheel, which is fetched where an address lists it."""
        path = Path(link.address)
        try:
            if "://" in link.address:
                path = Path(tempfile.mkdtemp(dir=process_folder()), link.wheel)
                self.web.save(link.address, path, link.digest)
            version = link.wheel.split("-")[1]
            with opened_wheel(path) as archive:
                evidence = prove_found(archive, self.wanted, self.context, self.torch, version)
            return Candidate(link, None, evidence, path)
        except SplatfixError as error:
            # a clause, in which some is the stranger's own text
            what = error.what.rstrip(".")[:_LONGEST]
            rejected = Rejected(code=error.code, what=what, exit_code=error.exit_code)
        except (WebError, OSError) as error:
            rejected = Rejected.of("wheels.unreachable", reason=error)
        except _DAMAGED as error:
            rejected = Rejected.of("wheels.damaged", reason=str(error)[:_LONGEST] or type(error).__name__)
        if path != Path(link.address):
            path.unlink(missing_ok=True)
        return Candidate(link, rejected)


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
    """Tell whether a text is written as a package is named, not as a path."""
    return _NAME.fullmatch(text.strip()) is not None


def wanted_by_name(text: str) -> Wanted:
    """Read ``fused-ssim``, ``gsplat==1.5.3``, or the key of a variant such as ``inria-v1``; else ``not-a-package``."""
    row = variant(text)
    if row:
        return Wanted(row.module, variant=row.key, source=row.key)
    named = _NAME.fullmatch(text.strip())
    if named is None:
        raise SplatfixError.of("wheels.not-a-package", text=text)
    return Wanted(named.group(1), named.group(2) or "", source=text)
