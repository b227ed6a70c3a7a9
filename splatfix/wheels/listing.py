"""Which wheels of a package an index lists: simple pages, folders by CUDA and torch, flat lists, local folders.

Indexes differ only in how their folders are called, so that links are followed by what their names say: to the package, and to
the CUDA and torch of the environment.
"""

import os
import re
from collections.abc import Collection, Iterable, Sequence
from html.parser import HTMLParser
from itertools import islice
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from urllib.request import url2pathname

from msgspec import Struct, field
from packaging.utils import canonicalize_name

from splatfix.core.errors import SplatfixError
from splatfix.core.versions import dotted, release
from splatfix.knowledge.wheel_indexes import WheelIndex, built_for, wheel_indexes
from splatfix.model import Torch
from splatfix.wheels.model import Link
from splatfix.wheels.web import Web, WebError, without_login

_MOST_FILES = 100_000
_MOST_PAGES = 12
_DEPTH = 3
_DIGEST = re.compile(r"(?:^|&)((?:sha(?:512|384|256|224|1)|md5)=[0-9a-f]{32,128})(?:&|$)")


def chosen_indexes(
    named: Sequence[str], *, maintained: bool = False, offline: bool = False
) -> tuple[WheelIndex, ...]:
    """The indexes that a person named (by name, URL or folder), else the known ones.

    Args:
        maintained: of the known ones only those of the packages' own maintainers.
        offline: only folders of this machine.

    Raises:
        SplatfixError: ``unknown-index`` (exit code 2).
    """
    indexes = [_named(text) for text in named]
    if not named:
        indexes = [index for index in wheel_indexes() if index.maintained or not maintained]
    return tuple(index for index in indexes if not (offline and is_remote(index)))


def is_remote(index: WheelIndex) -> bool:
    """It is asked over the network."""
    return "://" in index.address


def _named(text: str) -> WheelIndex:
    for index in wheel_indexes():
        if index.name == text:
            return index
    path = Path(os.path.expanduser(text))  # noqa: PTH111 - Path's raises for ~ and the name of nobody
    if "://" not in text and path.is_dir():
        return WheelIndex(str(path.absolute()), str(path.absolute()))
    login, at, end = without_login(text).rpartition("@")
    # any other text with a / before it is the path of a folder that is not there
    if at and ("://" in text or ":" in login or "/" not in login):
        raise SplatfixError.of("wheels.odd-login", end=end)
    if "://" in text:
        return WheelIndex(without_login(text), text)
    known = tuple(index.name for index in wheel_indexes())
    raise SplatfixError.of("wheels.unknown-index", text=text, known=known)


def wheels_in(index: WheelIndex, name: str, torch: Torch, web: Web) -> tuple[Link, ...]:
    """The wheels of a package that an index lists.

    Raises:
        WebError: its page, or every page that it leads to, could not be had.
    """
    if not may_list(index, name):
        return ()
    if not is_remote(index):
        files = sorted(islice(Path(index.address).rglob("*.whl"), _MOST_FILES))
        ours = (path for path in files if _is_of(path.name, name))
        return tuple(Link(path.name, str(path), index.name, path.parent.as_posix()) for path in ours)
    cuda, release_of_torch = f"cu{(torch.cuda or '').replace('.', '')}", dotted(release(torch.version)[:2])
    fields = {"name": canonicalize_name(name), "cuda": cuda, "torch": release_of_torch}
    address = without_login(index.address)
    for blank, value in fields.items():
        address = address.replace(f"{{{blank}}}", value)
    return tuple(_Pages(index, name, torch, web).wheels(address))


def may_list(index: WheelIndex, name: str) -> bool:
    """It is for every package, or for this one too."""
    names = [canonicalize_name(package) for package in index.packages]
    return not names or canonicalize_name(name) in names


def _is_of(wheel: str, name: str) -> bool:
    distribution = wheel.partition("-")[0]
    return wheel.endswith(".whl") and canonicalize_name(distribution) == canonicalize_name(name)


class _Pages(Struct):
    """A walk over the pages of an index."""

    index: WheelIndex
    name: str
    torch: Torch
    web: Web
    visited: set[str] = field(default_factory=set)

    def wheels(self, address: str, depth: int = 0) -> list[Link]:
        """Those that a page lists; where it lists none, those of the folders that it leads to."""
        self.visited.add(address.rstrip("/"))
        address, text = self.web.page(address)
        hrefs = hrefs_in(text)
        wheels: list[Link] = []
        for href, yanked in hrefs:
            wheel, target, digest = linked_file(address, href)
            if _is_of(wheel, self.name):
                wheels.append(Link(wheel, target, self.index.name, address, digest, yanked))
        if wheels or depth == _DEPTH:
            return wheels
        failure: WebError | None = None
        for folder in self._folders(address, (href for href, _ in hrefs)):
            if len(self.visited) >= _MOST_PAGES:
                break
            try:
                wheels += self.wheels(folder, depth + 1)
            except WebError as error:
                failure = failure or error
        if failure and not wheels and not failure.missing:
            raise failure
        return wheels

    def _folders(self, page: str, hrefs: Iterable[str]) -> list[str]:
        """Pages below this one that are called after the package, then those called after this CUDA and torch."""
        below = page.rpartition("/")[0]
        torch, cuda = release(self.torch.version)[:2], release(self.torch.cuda or "")[:1]
        packages, builds = [], []
        for address in dict.fromkeys(urldefrag(_joined(page, href))[0] for href in hrefs):
            segment = address.rstrip("/").removesuffix("/index.html").rpartition("/")[2].removesuffix(".html")
            if not address.startswith(f"{below}/") or address.rstrip("/") in self.visited:
                continue
            stated = built_for(segment)
            if canonicalize_name(segment) == canonicalize_name(self.name):
                packages.append(address)
            elif (stated.torch[:2], stated.cuda[:1]) in (((), cuda), (torch, ()), (torch, cuda)):
                builds.append(address)
        return packages or builds


def linked_file(page: str, href: str) -> tuple[str, str, str]:
    """Return a file's name, its address, and its digest as the link states it (PEP 503); "" each for what is no address."""
    address, fragment = urldefrag(_joined(page, href))
    stated = _DIGEST.search(fragment.lower())
    return unquote(urlsplit(address).path.rpartition("/")[2]), address, stated[1] if stated else ""


def _joined(page: str, href: str) -> str:
    try:
        address = urljoin(page, href)
        urlsplit(address)
        return address
    except ValueError:  # an address such as https://[x/
        return ""


class _Links(HTMLParser):
    """Collects the links of a page, as pip reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(reversed(attrs))  # the first of two counts
        if tag == "a" and (href := said.get("href")):
            self.links.append((href, "data-yanked" in said))


def hrefs_in(text: str) -> list[tuple[str, bool]]:
    """Return (address, yanked) of every link of a page (PEP 503, PEP 592).

    Raises:
        WebError: it is no page, such as one with a character's number of 5,000 digits.
    """
    parser = _Links()
    try:
        parser.feed(text)
        parser.close()
    except (ValueError, AssertionError) as error:
        raise WebError(f"its page cannot be read: {error}") from error
    return parser.links


def save_listed(address: str, page: str, path: Path, named: Collection[str] = ()) -> None:
    """Save the file of a name that a page of an index lists, as it lists it; one of this machine as it is.

    Raises:
        OSError: it cannot be had, or is another than its index says.
    """
    web = Web(named)
    try:
        if address.startswith("file:"):
            return web.save(url2pathname(urlsplit(address).path), path)
        page, text = web.page(without_login(page))
        for href, _ in hrefs_in(text):
            name, address, digest = linked_file(page, href)
            if name == path.name:
                return web.save(address, path, digest)
        raise WebError(f"{page} does not list it")
    except WebError as error:
        raise OSError(str(error)) from error
