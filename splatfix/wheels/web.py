"""Pages and parts of files from web servers: bounded in size and time, and believed only as far as they agree with themselves.

By the standard library: an index is asked for a page and some ranges, which is no reason for a dependency. Proxies and
certificate authorities are those of the environment, as for Python itself.
"""

from __future__ import annotations

import http.client
import re
import time
from collections import OrderedDict
from contextlib import closing
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from msgspec import Struct

MOST_PAGE = 32 << 20
"""Bytes of a page. The largest lists of wheels have some three MiB."""
MOST_WHOLE = 64 << 20
"""Bytes of a file that is fetched whole, from a server without ranges, only to be looked at."""
MOST_FETCHED = 1 << 30
"""Bytes that are read of one wheel to judge it."""
_BLOCK = 1 << 17
_MOST_BLOCKS = 64
"""In one request; what is read in order is asked for in ever longer parts."""
_KEPT = 256
_CHUNK = 1 << 16
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_LOOPBACK = re.compile(r"localhost|127(\.\d+){3}|::1")
_GONE = (404, 410)


class WebError(Exception):
    """A page or file could not be had; the text is a clause.

    ``missing``: the server answers that there is none, which is an answer.
    """

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason)
        self.missing = missing


def refused_address(address: str) -> str:
    """Why an address is not asked, as a clause; "" for https, and for plain http on this machine."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        return "its address is none"
    if parts.scheme == "https" and host:
        return ""
    if parts.scheme == "http" and _LOOPBACK.fullmatch(host):
        return ""
    return f"its address is not https ({parts.scheme or 'no scheme'})"


class Part(Struct, frozen=True):
    """Bytes of a file, and how many it has in all."""

    data: bytes
    total: int
    is_whole: bool = False


class _Redirects(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        if reason := refused_address(newurl):
            raise WebError(f"it leads elsewhere, and {reason}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class Web:
    """Asks web servers."""

    def __init__(self, *, timeout: float = 20.0, deadline: float = 300.0) -> None:
        """Give up after ``timeout`` seconds of silence, or ``deadline`` seconds of one answer."""
        self.timeout, self.deadline = timeout, deadline
        self._opener: OpenerDirector = build_opener(_Redirects)

    def page(self, address: str) -> tuple[str, str]:
        """(where it was found in the end, its text).

        Raises:
            WebError: with the reason.
        """
        with closing(self._open(address, {"Accept": "text/html"})) as response:
            body = self._body(response, MOST_PAGE)
            return response.url, body.decode("utf-8", "replace")

    def reach(self, address: str) -> None:
        """Ask for a file, and read nothing of it.

        Raises:
            WebError: with the reason why it cannot be had.
        """
        self._open(address, {}).close()

    def part(self, address: str, start: int, length: int) -> Part:
        """Bytes [start, start + length) of a file, or up to its end; all of it where the server sends no ranges.

        Raises:
            WebError: also where that is not what comes, or where the whole is too large only to look at it.
        """
        last = start + length - 1
        with closing(self._open(address, {"Range": f"bytes={start}-{last}"})) as response:
            if response.status != 206:
                if (response.length or 0) > MOST_WHOLE:
                    whole = f"all {response.length >> 20} MiB of it would have to be fetched"
                    raise WebError(f"its server sends no parts, and {whole}")
                data = self._body(response, MOST_WHOLE)
                return Part(data, len(data), True)
            stated = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if stated is None:
                raise WebError("its server does not say which part it sends")
            first, end, total = map(int, stated.groups())
            if first != start or end != min(last, total - 1):
                raise WebError(
                    f"its server sends bytes {first} to {end}, and was asked for {start} to {last}"
                )
            data = self._body(response, length)
            if len(data) != end - first + 1:
                raise WebError(
                    f"its server sends {len(data)} bytes, and says that they are {end - first + 1}"
                )
            return Part(data, total)

    def _open(self, address: str, headers: dict[str, str]) -> Any:
        if reason := refused_address(address):
            raise WebError(reason)
        asked = {"User-Agent": "splatfix", "Accept-Encoding": "identity", **headers}
        try:
            return self._opener.open(Request(address, headers=asked), timeout=self.timeout)
        except HTTPError as error:
            error.close()
            # S3 says 403 of what is not there to whoever may not list its folder, as those who fetch wheels may not
            of_s3 = error.code == 403 and "AmazonS3" in error.headers.get("Server", "")
            raise WebError(f"HTTP status {error.code}", missing=of_s3 or error.code in _GONE) from error
        except URLError as error:
            raise WebError(_words(error.reason)) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise WebError(_words(error)) from error

    def _body(self, response: Any, most: int) -> bytes:
        size, parts, begun = 0, [], time.monotonic()
        try:
            # read1 and not read: that waits until all is there, however slowly it comes
            while data := response.read1(_CHUNK):
                size += len(data)
                if size > most:
                    raise WebError(f"it has more than {most >> 20} MiB")
                if time.monotonic() - begun > self.deadline:
                    raise WebError(f"it is too slow: {size} bytes in {self.deadline:.0f} s")
                parts.append(data)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise WebError(f"{_words(error)} after {size} bytes") from error
        if response.length:
            raise WebError(
                f"the connection was cut off after {size} bytes; {response.length} more were promised"
            )
        return b"".join(parts)


def _words(error: object) -> str:
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
        self._whole: bytes | None = None
        first = web.part(address, 0, _BLOCK)
        self._total = first.total
        self._take(0, first)

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self._total)
        if self._whole is not None:
            return self._whole[start:stop]
        numbers = range(start // _BLOCK, (max(start, stop - 1)) // _BLOCK + 1)
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
            self._take(number, part)
        if self._whole is not None:  # the server stopped sending parts
            return self._whole[number * _BLOCK : (number + 1) * _BLOCK]
        self._blocks.move_to_end(number)
        return self._blocks[number]

    def _take(self, number: int, part: Part) -> None:
        self.fetched += len(part.data)
        if self.fetched > MOST_FETCHED:
            raise WebError(f"more than {MOST_FETCHED >> 20} MiB would have to be read to judge it")
        if part.is_whole:
            self._whole = part.data
            return
        for offset in range(0, len(part.data), _BLOCK):
            self._blocks[number] = part.data[offset : offset + _BLOCK]
            number += 1
        self._next = number
        while len(self._blocks) > _KEPT:
            self._blocks.popitem(last=False)
