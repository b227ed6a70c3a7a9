"""Which wheels of a package an index lists: simple pages, folders by CUDA and torch, flat lists, local folders.

Indexes differ only in how their folders are called, so that links are followed by what their names say: to the package, and to
the CUDA and torch of the environment.
"""

import os
import re
import shutil
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
    """Return the indexes that a person named (by name, URL or folder), else the known ones; of these only those of the packages'
    own maintainers where ``maintained``. ``offline``: only folders of this machine. Raises ``unknown-index``, ``odd-login``.
    """
    indexes = [_named(text) for text in named]
    if not named:
        indexes = [index for index in wheel_indexes() if index.maintained or not maintained]
    return tuple(index for index in indexes if not (offline and "://" in index.address))


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


def wheels_in(index: WheelIndex, name: str, torch: Torch, web: Web) -> list[Link]:
    """Return the wheels of a package that an index lists; ``WebError`` where no page that it leads to could be had."""
    if not may_list(index, name):
        return []
    if "://" not in index.address:
        files = sorted(islice(Path(index.address).rglob("*.whl"), _MOST_FILES))
        ours = (path for path in files if _is_of(path.name, name))
        return [Link(path.name, str(path), index.name, path.parent.as_posix()) for path in ours]
    cuda, release_of_torch = f"cu{(torch.cuda or '').replace('.', '')}", dotted(release(torch.version)[:2])
    fields = {"name": canonicalize_name(name), "cuda": cuda, "torch": release_of_torch}
    address = without_login(index.address)
    for blank, value in fields.items():
        address = address.replace(f"{{{blank}}}", value)
    return _Walk(index, name, torch, web).wheels(address)


def may_list(index: WheelIndex, name: str) -> bool:
    """Tell whether an index is for every package, or for this one too."""
    names = [canonicalize_name(package) for package in index.packages]
    return not names or canonicalize_name(name) in names


def _is_of(wheel: str, name: str) -> bool:
    distribution = wheel.partition("-")[0]
    return wheel.endswith(".whl") and canonicalize_name(distribution) == canonicalize_name(name)


class _Walk(Struct):
    """A walk over the pages of an index."""

    index: WheelIndex
    name: str
    torch: Torch
    web: Web
    visited: set[str] = field(default_factory=set)

    def wheels(self, address: str, depth: int = 0) -> list[Link]:
        """Return those that a page lists; where it lists none, those of the folders that it leads to."""
        self.visited.add(address.rstrip("/"))
        links = links_of(*self.web.page(address), self.index.name)
        wheels = [link for link in links if _is_of(link.wheel, self.name)]
        if wheels or depth == _DEPTH:
            return wheels
        failure: WebError | None = None
        for folder in self._folders(links):
            if len(self.visited) >= _MOST_PAGES:
                break
            try:
                wheels += self.wheels(folder, depth + 1)
            except WebError as error:
                failure = failure or error
        if failure and not wheels and not failure.missing:
            raise failure
        return wheels

    def _folders(self, links: Iterable[Link]) -> list[str]:
        """Return pages below this one that are called after the package, else those called after this CUDA and torch."""
        torch, cuda = release(self.torch.version)[:2], release(self.torch.cuda or "")[:1]
        packages: dict[str, None] = {}
        builds: dict[str, None] = {}
        for link in links:
            address = link.address
            segment = address.rstrip("/").removesuffix("/index.html").rpartition("/")[2].removesuffix(".html")
            below = f"{link.page.rpartition('/')[0]}/"
            if not address.startswith(below) or address.rstrip("/") in self.visited:
                continue
            stated = built_for(segment)
            if canonicalize_name(segment) == canonicalize_name(self.name):
                packages[address] = None
            elif (stated.torch[:2], stated.cuda[:1]) in (((), cuda), (torch, ()), (torch, cuda)):
                builds[address] = None
        return list(packages or builds)


class _Page(HTMLParser):
    """Collects what a page links to."""

    def __init__(self, address: str, index: str) -> None:
        super().__init__()
        self.address, self.index = address, index
        self.links: list[Link] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(reversed(attrs))  # of two of a name the first counts
        if tag != "a" or not said.get("href"):
            return
        try:
            address, fragment = urldefrag(urljoin(self.address, said["href"]))
            name = unquote(urlsplit(address).path.rpartition("/")[2])
        except ValueError:  # an address such as https://[x/
            return
        stated = _DIGEST.search(fragment.lower())
        digest = stated[1] if stated else ""
        self.links.append(Link(name, address, self.index, self.address, digest, "data-yanked" in said))


def links_of(address: str, text: str, index: str = "") -> list[Link]:
    """Return what a page links to, with the digests that it states (PEP 503) and what is withdrawn (PEP 592); or
    raise :class:`WebError` for one that cannot be read."""
    page = _Page(address, index)
    try:
        page.feed(text)
        page.close()
    except (ValueError, AssertionError) as error:  # such as a character's number of 5,000 digits
        raise WebError(f"its page cannot be read: {error}") from error
    return page.links


def save_listed(address: str, page: str, path: Path, named: Collection[str] = ()) -> None:
    """Save the file of a name that a page of an index lists, as it lists it, or ``OSError``; one of this machine as it is."""
    web = Web(named)
    try:
        if address.startswith("file:"):
            shutil.copyfile(url2pathname(urlsplit(address).path), path)
            return None
        for link in links_of(*web.page(without_login(page))):
            if link.wheel == path.name:
                return web.save(link.address, path, link.digest)
        raise WebError(f"{page} does not list it")
    except WebError as error:
        raise OSError(str(error)) from error
