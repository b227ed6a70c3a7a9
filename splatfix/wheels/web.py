"""Pages and wheels over HTTP, of servers that nobody vouches for: bounded in time and bytes from the first connection on."""

import base64
import hashlib
import http.client
import ipaddress
import re
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Set
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener, getproxies

from msgspec import Struct

from splatfix.core.reading import read_blocks
from splatfix.core.threads import start

MOST_PAGE = 32 << 20
"""Bytes of a page. The largest lists of wheels have some three MiB."""
MOST_WHOLE = 64 << 20
"""Bytes of a file that is fetched whole, from a server without ranges, only to be looked at."""
MOST_FETCHED = 1 << 30
"""Bytes that are read of one wheel to judge it."""
_MOST_FILE = 1 << 40
"""Bytes that a file may be said to have. The largest wheels have some three GiB."""
_DOWNLOAD_TIMEOUT = 3600.0
_BLOCK = 1 << 17
_MOST_BLOCKS = 64
"""In one request; what is read in order is asked for in ever longer parts."""
_KEPT = MOST_WHOLE // _BLOCK
_LONGEST_REASON = 300
"""Signs of what is said of a page or wheel: some of it is the stranger's own text."""
_CHUNK = 1 << 16
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII)
_LOOPBACK = re.compile(r"localhost|127(\.\d+){3}|::1")
_GONE = (404, 410)


class WebError(Exception):
    """A page or file could not be had; the text is a clause.

    ``missing``: the server answers that there is none, which is an answer.
    """

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason[:_LONGEST_REASON])
        self.missing = missing


def refused_address(address: str) -> str:
    """Why an address is not asked, as a clause; "" for https, and for plain http on this machine."""
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


class Part(Struct, frozen=True):
    """Bytes of a file, and how many it has in all."""

    start: int
    data: bytes
    total: int


class _Redirects(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        if reason := refused_address(newurl):
            raise WebError(f"it leads elsewhere, and {reason}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Exchange(HTTPHandler, HTTPSHandler):
    """Makes the connections of one request and its redirects, and ends all of them when their time is over."""

    def __init__(self, local: Set[tuple[str, int]], silence: float, seconds: float) -> None:
        """Connect to this machine only where that is one of the ``local`` (host, port)."""
        super().__init__()
        self._local, self._silence = local, silence
        self._connections: list[socket.socket] = []
        self.over = False
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        start(self._timer)

    def http_open(self, req: Request) -> Any:
        return self.do_open(partial(self._connection, http.client.HTTPConnection), req)

    def https_open(self, req: Request) -> Any:
        return self.do_open(partial(self._connection, http.client.HTTPSConnection), req)

    def _connection(self, kind: Any, host: str, **options: Any) -> Any:
        connection = kind(host, **options)
        connection._create_connection = self._connect
        return connection

    def _connect(self, address: tuple[str, int], *_: object) -> socket.socket:
        failure = OSError("its host has no address")
        for *_kind, place in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            number = ipaddress.ip_address(str(place[0]).partition("%")[0])
            number = getattr(number, "ipv4_mapped", None) or number
            # link-local: what only this machine's own network link reaches, such as a cloud's keys
            is_here = number.is_loopback or number.is_unspecified or number.is_link_local
            if is_here and address not in self._local:
                raise WebError("it leads to this machine, which nobody named")
            try:
                connection = socket.create_connection((str(place[0]), int(place[1])), self._silence)
            except OSError as error:
                failure = error
            else:
                # a second handle of it: TLS takes the first for itself
                self._connections.append(connection.dup())
                if self.over:
                    self._end()
                return connection
        raise failure

    def _end(self) -> None:
        """End a transfer wherever it stands: whoever reads sees the end of the file, however often something came."""
        self.over = True
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._timer.cancel()
        for connection in self._connections:
            connection.close()


class Web:
    """Asks web servers, for one search."""

    def __init__(
        self,
        named: Iterable[str] = (),
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
        self._local = {_origin(address)[1:] for address in (*named, *getproxies().values())}
        self._logins: dict[tuple[str, str, int], str] = {}
        for address in named:
            login, at, _ = urlsplit(address).netloc.rpartition("@")
            if at:
                user, _, password = login.partition(":")
                pair = f"{unquote(user)}:{unquote(password)}".encode()
                self._logins[_origin(address)] = f"Basic {base64.b64encode(pair).decode()}"

    def page(self, address: str) -> tuple[str, str]:
        """(where it was found in the end, its text).

        Raises:
            WebError: with the reason.
        """
        with self._opened(address, {"Accept": "text/html"}) as response:
            body = b"".join(self._blocks(response, MOST_PAGE))
            return response.url, body.decode("utf-8", "replace")

    def reach(self, address: str) -> None:
        """Ask for a file, and read nothing of it.

        Raises:
            WebError: with the reason why it cannot be had.
        """
        with self._opened(address, {}):
            pass

    def part(self, address: str, start: int, length: int) -> Part:
        """Bytes [start, start + length) of a file, or up to its end; all of it where the server sends no ranges.

        Raises:
            WebError: also where that is not what comes, or where the whole is too large only to look at it.
        """
        last = start + length - 1
        with self._opened(address, {"Range": f"bytes={start}-{last}"}) as response:
            if response.status != 206:
                if (response.length or 0) > MOST_WHOLE:
                    whole = f"more than {MOST_WHOLE >> 20} MiB of it would have to be fetched"
                    raise WebError(f"its server sends no parts, and {whole}")
                data = b"".join(self._blocks(response, MOST_WHOLE))
                return Part(0, data, len(data))
            stated = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if stated is None:
                raise WebError("its server does not say which part it sends")
            first, end, total = map(int, stated.groups())
            if total > _MOST_FILE:
                raise WebError(f"its server says that it has {total >> 30} GiB")
            if first != start or end != min(last, total - 1):
                raise WebError(
                    f"its server sends bytes {first} to {end}, and was asked for {start} to {last}"
                )
            data = b"".join(self._blocks(response, length))
            if len(data) != end - first + 1:
                raise WebError(
                    f"its server sends {len(data)} bytes, and says that they are {end - first + 1}"
                )
            return Part(start, data, total)

    def save(self, address: str, path: Path, digest: str = "", most: int = MOST_FETCHED) -> None:
        """Fetch a whole file of ``most`` bytes, or copy one of this machine, and compare it with a digest (``sha256=9f86...``).

        Raises:
            WebError: with the reason; nothing is then left of it.
        """
        algorithm, _, expected = digest.partition("=")
        made = hashlib.new(algorithm or "sha256", usedforsecurity=False)
        try:
            with path.open("wb") as file:
                for block in self._whole(address, most) if "://" in address else read_blocks(address):
                    made.update(block)
                    file.write(block)
            if expected and made.hexdigest() != expected:
                raise WebError(f"its {algorithm} is {made.hexdigest()}, and its index says {expected}")
        except (WebError, OSError) as error:
            path.unlink(missing_ok=True)
            raise error if isinstance(error, WebError) else WebError(_words(error)) from error

    def _whole(self, address: str, most: int) -> Iterator[bytes]:
        with self._opened(address, {}, _DOWNLOAD_TIMEOUT) as response:
            yield from self._blocks(response, most)

    @contextmanager
    def _opened(self, address: str, headers: dict[str, str], seconds: float = 0.0) -> Iterator[Any]:
        """Ask for something, and read its answer in a ``with`` block."""
        if reason := refused_address(address):
            raise WebError(reason)
        left = self._until - time.monotonic()
        if left <= 0 and not seconds:
            raise WebError(f"it was not asked: the search took longer than {self.search:.0f} s")
        seconds = seconds or min(left, self.deadline)
        exchange = _Exchange(self._local, self.timeout, seconds)
        asked = {"User-Agent": "splatfix", "Accept-Encoding": "identity", **headers}
        request = Request(address, headers=asked)
        if login := self._logins.get(_origin(address)):
            request.add_unredirected_header("Authorization", login)
        failure: Exception | None = None
        try:
            with closing(build_opener(_Redirects, exchange).open(request, timeout=self.timeout)) as response:
                yield response
        except (WebError, OSError, http.client.HTTPException, ValueError) as error:
            failure = error
        finally:
            exchange.close()
        if exchange.over:
            raise WebError(f"it is too slow: not at its end after {seconds:.0f} s") from failure
        if isinstance(failure, HTTPError):
            failure.close()
            # S3 says 403 of what is not there to whoever may not list its folder, as those who fetch wheels may not
            of_s3 = failure.code == 403 and "AmazonS3" in failure.headers.get("Server", "")
            reason = f"HTTP status {failure.code}"
            if failure.code == 401:
                reason += ": it asks for a login, which is sent only to the address that was named with it"
            raise WebError(reason, missing=of_s3 or failure.code in _GONE) from failure
        if isinstance(failure, WebError):
            raise failure
        if failure:
            raise WebError(_words(failure)) from failure

    def _blocks(self, response: Any, most: int) -> Iterator[bytes]:
        size = 0
        try:
            # read1 and not read: that waits until all is there, however slowly it comes
            while data := response.read1(_CHUNK):
                size += len(data)
                if size > most:
                    raise WebError(f"it has more than {most / 2**20:.3g} MiB")
                yield data
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise WebError(f"{_words(error)} after {size} bytes") from error
        if response.length:
            raise WebError(
                f"the connection was cut off after {size} bytes; {response.length} more were promised"
            )


def _origin(address: str) -> tuple[str, str, int]:
    """Split an address into scheme, host and port, by which a login is kept; no host where it is none."""
    try:
        parts = urlsplit(address)
        return parts.scheme, parts.hostname or "", parts.port or {"https": 443}.get(parts.scheme, 80)
    except ValueError:
        return "", "", 0


def _words(error: object) -> str:
    if isinstance(error, URLError):
        error = error.reason
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(getattr(error, "strerror", "") or error or type(error).__name__)


class RemoteFile:
    """A file on a web server, of which the parts that are looked at are fetched: a buffer for `splatfix.binaries`."""

    def __init__(self, web: Web, address: str) -> None:
        """Ask for its first bytes, which tell its length.

        Raises:
            WebError: here and wherever a part is looked at.
        """
        self._web, self._address = web, address
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._next, self._ahead = 0, 1
        self.fetched = 0
        first = web.part(address, 0, _BLOCK)
        self._total = first.total
        self._take(first)

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self._total)
        if start >= stop:
            return b""
        numbers = range(start // _BLOCK, (stop - 1) // _BLOCK + 1)
        data = b"".join(self._block(number, numbers[-1]) for number in numbers)
        begin = start - numbers[0] * _BLOCK
        return data[begin : begin + stop - start]

    def find(self, needle: bytes, start: int, end: int) -> int:
        """Offset of the first ``needle`` inside [start, end), or -1."""
        while start < end:
            window = self[start : min(end, start + _BLOCK + len(needle) - 1)]
            at = window.find(needle)
            if at >= 0:
                return start + at
            start += _BLOCK
        return -1

    def _block(self, number: int, last: int) -> bytes:
        """A block; those up to ``last``, and more where blocks are read in order, come in the same request."""
        if number not in self._blocks:
            self._ahead = self._ahead * 2 if number == self._next else 1
            count = min(max(last - number + 1, self._ahead), _MOST_BLOCKS)
            part = self._web.part(self._address, number * _BLOCK, count * _BLOCK)
            if part.total != self._total:
                raise WebError(f"its length changes from {self._total} to {part.total} bytes")
            self._take(part)
        self._blocks.move_to_end(number)
        return self._blocks[number]

    def _take(self, part: Part) -> None:
        self.fetched += len(part.data)
        if self.fetched > MOST_FETCHED:
            raise WebError(f"more than {MOST_FETCHED >> 20} MiB would have to be read to judge it")
        number = part.start // _BLOCK
        for offset in range(0, len(part.data), _BLOCK):
            self._blocks[number] = part.data[offset : offset + _BLOCK]
            number += 1
        self._next = number
        while len(self._blocks) > _KEPT:
            self._blocks.popitem(last=False)
