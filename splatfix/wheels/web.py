"""Pages and wheels over HTTP, of servers that nobody vouches for: bounded in time and bytes."""

import hashlib
import http.client
import re
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import (
    HTTPBasicAuthHandler,
    HTTPPasswordMgrWithPriorAuth,
    HTTPRedirectHandler,
    Request,
    build_opener,
)

MOST_PAGE = 32 << 20
"""Bytes of a page. The largest lists of wheels have some three MiB."""
MOST_FETCHED = 4 << 30
"""Bytes of a wheel. The largest have some three GiB."""
_DOWNLOAD_TIMEOUT = 3600.0
_LONGEST_REASON = 300
"""Signs of what is said of a page or wheel: some of it is the stranger's own text."""
_CHUNK = 1 << 16
_LOOPBACK = re.compile(r"localhost|127(\.\d+){1,3}|::1")
_GONE = (404, 410)


class WebError(Exception):
    """A page or file could not be had; the text is a clause.

    ``missing``: the server answers that there is none, which is an answer.
    """

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason[:_LONGEST_REASON])
        self.missing = missing


def refused_address(address: str) -> str:
    """Return why an address is not asked, as a clause; "" for https, and for plain http on this machine."""
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "its address is none"
    if "@" in parts.netloc:
        return "its address holds a login"
    if parts.scheme == "https" and host:
        return ""
    if parts.scheme == "http" and _LOOPBACK.fullmatch(host):
        return ""
    return f"its address is not https ({parts.scheme or 'no scheme'})"


def without_login(address: str) -> str:
    """Return an address without its user name and password, which :class:`Web` sends as a header."""
    scheme, separator, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}" if separator else address


class Web:
    """Asks web servers, for one search; what cannot be had is a :class:`WebError`."""

    def __init__(
        self,
        named: Collection[str] = (),
        *,
        timeout: float = 20.0,
        deadline: float = 60.0,
        search: float = 300.0,
    ) -> None:
        """Give up after ``timeout`` seconds of silence, ``deadline`` seconds of one answer, ``search`` seconds of all.

        Args:
            named: addresses that a person named. Only they may be of this machine, and a login in one is sent to its host
                alone, and not on where that redirects.
        """
        self.timeout, self.deadline, self.search = timeout, deadline, search
        self._until = time.monotonic() + search
        self._named = set(map(_origin, named))
        passwords = HTTPPasswordMgrWithPriorAuth()
        for address in named:
            login, at, host = urlsplit(address).netloc.rpartition("@")
            if at:
                user, _, password = map(unquote, login.partition(":"))
                passwords.add_password(None, host, user, password, is_authenticated=True)
        self._opener = build_opener(_Redirects(self.refuse), HTTPBasicAuthHandler(passwords))

    def page(self, address: str) -> tuple[str, str]:
        """Return where a page was found in the end, and its text."""
        with self._opened(address, "text/html") as response:
            return response.url, b"".join(self._blocks(response, MOST_PAGE)).decode("utf-8", "replace")

    def reach(self, address: str) -> None:
        """Ask for a file, and read nothing of it."""
        with self._opened(address):
            pass

    def save(self, address: str, path: Path, digest: str = "") -> None:
        """Fetch a whole file, and compare it with a digest (``sha256=9f86...``); where that fails nothing is left of it."""
        algorithm, _, expected = digest.partition("=")
        made = hashlib.new(algorithm or "sha256", usedforsecurity=False)
        started = time.monotonic()
        try:
            with self._opened(address, of_search=False) as response, path.open("wb") as file:
                for block in self._blocks(response, MOST_FETCHED, _DOWNLOAD_TIMEOUT):
                    made.update(block)
                    file.write(block)
            if expected and made.hexdigest() != expected:
                raise WebError(f"its {algorithm} is {made.hexdigest()}, and its index says {expected}")
        except WebError:
            path.unlink(missing_ok=True)
            raise
        finally:
            self._until += time.monotonic() - started  # that was no looking around

    @contextmanager
    def _opened(self, address: str, accept: str = "*/*", *, of_search: bool = True) -> Iterator[Any]:
        """Ask for something, and read its answer in a ``with`` block."""
        self.refuse(address)
        if of_search and time.monotonic() >= self._until:
            raise WebError(f"it was not asked: the search took longer than {self.search:.0f} s")
        headers = {"User-Agent": "splatfix", "Accept-Encoding": "identity", "Accept": accept}
        try:
            with self._opener.open(Request(address, headers=headers), timeout=self.timeout) as response:
                yield response
        except HTTPError as error:
            error.close()
            # S3 says 403 of what is not there to whoever may not list its folder, as those who fetch wheels may not
            of_s3 = error.code == 403 and "AmazonS3" in error.headers.get("Server", "")
            reason = f"HTTP status {error.code}"
            if error.code == 401:
                reason += ": it asks for a login, which is sent only to the address that was named with it"
            raise WebError(reason, missing=of_s3 or error.code in _GONE) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            cause = error.reason if isinstance(error, URLError) else error
            words = getattr(cause, "strerror", "") or str(cause) or type(cause).__name__
            raise WebError("no answer in time" if isinstance(cause, TimeoutError) else words) from error

    def refuse(self, address: str) -> None:
        """Refuse an address that is not asked, such as one of this machine that nobody named."""
        reason = refused_address(address)
        if not reason and _LOOPBACK.fullmatch(_origin(address)[1]) and _origin(address) not in self._named:
            reason = "it leads to this machine, which nobody named"
        if reason:
            raise WebError(reason)

    def _blocks(self, response: Any, most: int, seconds: float = 0.0) -> Iterator[bytes]:
        """Read an answer of ``most`` bytes to its end, in ``seconds``, or as long as one answer of a search may take."""
        size, now = 0, time.monotonic()
        end = now + seconds if seconds else min(now + self.deadline, self._until)
        # read1 and not read: that waits until all is there, however slowly it comes
        while data := response.read1(_CHUNK):
            size += len(data)
            if size > most:
                raise WebError(f"it has more than {most / 2**20:.3g} MiB")
            if time.monotonic() > end:
                raise WebError(f"it is too slow: not at its end after {end - now:.0f} s")
            yield data
        if response.length:
            raise WebError(
                f"the connection was cut off after {size} bytes; {response.length} more were promised"
            )


class _Redirects(HTTPRedirectHandler):
    """Follows a redirect to what would be asked too."""

    def __init__(self, refuse: Callable[[str], None]) -> None:
        self.refuse = refuse

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        try:
            self.refuse(newurl)
        except WebError as error:
            raise WebError(f"it leads elsewhere, and {error}") from error
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _origin(address: str) -> tuple[str, str, int]:
    """Split an address into scheme, host and port, by which a login is kept; no host where it is none."""
    try:
        parts = urlsplit(address)
        return parts.scheme, parts.hostname or "", parts.port or {"https": 443}.get(parts.scheme, 80)
    except ValueError:
        return "", "", 0
