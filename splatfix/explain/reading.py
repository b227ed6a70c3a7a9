"""Reads a log of any size as bytes and keeps the lines that can matter: its beginning, its end, and what stands around errors.

A few literals tell which; only those are decoded and cleaned. Memory is bounded by the number of lines kept, whatever the size
of the log.
"""

import codecs
import re
from collections import deque
from collections.abc import Iterator
from typing import IO

from splatfix.explain.model import Line

TRIGGERS = (
    *(b"rror", b"RROR", b"atal", b"FATAL", b"ailed", b"illed", b"xception", b"Aborted", b"LNK", b"nan"),
    *(
        b"No such",
        b"No module",
        b"ot found",
        b"NOT find",
        b"annot ",
        b"ould not",
        b"oes not",
        b"ot compatible",
    ),
    *(b"nsupported", b"unrecogni", b"undefined ", b"illegal", b"out of memory", b"Segmentation"),
    *(b"already exists", b"PyTorch", b"driver", b"panicked", b"Traceback", b'File "'),
)
"""A line that says why something failed holds one of these; a test holds the signatures to them."""
_CHUNK = 1 << 20
# Characters of a line that are kept: its first and last halves of that.
_LONGEST = 4096
# Characters that are kept in all where long lines are many: a line of more than the second number is cut to its share.
_TEXT, _WHOLE = 1_000_000, 600
# Lines from the beginning that are kept whatever they say: the command, versions, settings.
_HEAD = 400
_TAIL = 400
_BEFORE, _AFTER = 14, 6
# Lines that are kept in all, besides the last ones.
_MOST = 6000
# Times that lines that differ in their numbers only are kept.
_ALIKE = 3

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]{0,24}[A-Za-z]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[()][0-9A-B]|[=>78])")
_PREFIX = re.compile(
    r"^(?:\ufeff|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\s"  # GitHub, Azure, Kubernetes
    r"|#\d{1,4} (?:\d{1,6}\.\d{1,3}\s|ERROR: |CACHED )|\d{1,5}\.\d{1,3}\s{2,}"  # BuildKit, and its excerpt at the end
    r"|##(?:\[\w{1,10}\]|vso\[[^\]]{1,80}\])|section_(?:start|end):\d{1,12}:\w{1,60}\s?"  # GitHub, Azure, GitLab
    r"|\[?\d{4}-\d\d-\d\dT[\d:.]{8,15}Z?\]\s|\[\s{0,4}\d{1,6}s\]\s|(?:stdout|stderr) F\s"  # Jenkins, OBS, Kubernetes
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,64} [\w.@-]{1,60}(?:\[\d{1,8}\])?: "  # journald
    r"|\([\w ]{0,40}pid=\d{1,8}\) |\[(?:default)?rank\d{1,4}\]:? ?|\[\d{1,4},\d{1,4}\]<std(?:out|err)>:"  # Ray, torchrun, MPI
    r"|[a-z][\w.-]{1,40}\s{0,30}\| |> (?=\S)"  # docker compose, quoted mail
    r"|warning: (?:\S{1,80}@[\d.]{1,20}: )?(?=\S{1,300}: (?:fatal )?error)"  # Cargo, of what a build script printed
    r"|[│|]\s|\[\d\d:\d\d:\d\d\]\s|\d\d:\d\d:\d\d\s)"
)
_QUOTES = str.maketrans(
    {"‘": "'", "’": "'", "`": "'", "´": "'", "“": '"', "”": '"', "（": "(", "）": ")", "：": ":"}
)
# Encodings of Windows consoles that are no UTF-8, with words that messages in them hold.
_FOREIGN = {
    "gb18030": "不是 无法 找不到 没有 错误 未 指定",
    "cp932": "ません エラー ファイル 指定された",
    "cp949": "습니다 오류 파일 지정된",
    "cp1251": "не файл ошибка является",
    "cp866": "не файл ошибка является",
}
# Signs of counts, times, addresses and hashes: lines that differ in them only are alike.
_VARYING = b"0123456789abcdef"


def read_log(stream: IO[bytes]) -> tuple[list[Line], int, int]:
    """The lines of a log that can matter, the number of all lines, and of all bytes.

    Args:
        stream: the log; UTF-8, UTF-16 or a single-byte encoding, with any line ends. Bytes that are no text become signs
            that no pattern matches.
    """
    keeper = _Keeper()
    for block in _blocks(stream):
        keeper.take(block)
    return keeper.lines(), keeper.count, keeper.size


def clean(line: str, most: int = _LONGEST) -> str:
    """A line without colours, prefixes of CI systems and what is too long of it."""
    if len(line) > most:
        line = f"{line[: most // 2]} ... {line[-most // 2 :]}"
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    # a container's log inside a CI system's has a prefix of each
    while prefix := _PREFIX.match(line):
        line = line[prefix.end() :]
    return line.replace("\x00", "").rstrip()


def plain(line: str) -> str:
    """A line as the patterns expect it: with plain quotes."""
    if line.isascii() and "`" not in line:
        return line
    return line.translate(_QUOTES)


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """The log as UTF-8 (or as it is), in blocks that end with a line, every line end a newline."""
    first = stream.read(_CHUNK)
    decoder = _utf16(first)
    held = b""
    chunk = first
    while chunk:
        data = chunk
        if decoder is not None:
            data = decoder.decode(chunk).encode("utf-8", "replace")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        data = held + data
        cut = data.rfind(b"\n") + 1
        if cut == 0 and len(data) > 4 * _CHUNK:  # a line without an end: what it says stands at its ends
            held = data[:_LONGEST] + data[-_CHUNK:]
        else:
            held = data[cut:]
        if cut:
            yield data[:cut]
        chunk = stream.read(_CHUNK)
    if held:
        yield held + b"\n"


def _utf16(first: bytes) -> codecs.IncrementalDecoder | None:
    """A decoder where the log is UTF-16 (what PowerShell writes), with or without a byte order mark."""
    sample = first[:4096]
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return codecs.getincrementaldecoder("utf-16")("replace")
    half = max(len(sample) // 2, 1)
    if len(sample) >= 16 and sample[1::2].count(0) > 0.7 * half:
        return codecs.getincrementaldecoder("utf-16-le")("replace")
    if len(sample) >= 16 and sample[::2].count(0) > 0.7 * half:
        return codecs.getincrementaldecoder("utf-16-be")("replace")
    return None


class _Keeper:
    """Keeps the lines of a log that can matter."""

    def __init__(self) -> None:
        self.count = self.size = 0
        self._kept: dict[int, bytes] = {}
        self._late: deque[tuple[int, bytes]] = deque(maxlen=_MOST // 3)
        self._before: deque[tuple[int, bytes]] = deque(maxlen=_BEFORE)
        self._last: deque[tuple[int, bytes]] = deque(maxlen=_TAIL)
        self._seen: dict[bytes, int] = {}
        self._after = 0

    def take(self, block: bytes) -> None:
        """Look at a block of whole lines."""
        self.size += len(block)
        words = [word for word in TRIGGERS if word in block]  # most blocks of a build have none
        for line in block.split(b"\n")[:-1]:
            self.count += 1
            if any(word in line for word in words) and self._is_new(line):
                self._after = _AFTER + 1
            if self._after or self.count <= _HEAD:
                self._after = max(0, self._after - 1)
                for number, kept in (*self._before, (self.count, line)):
                    if len(self._kept) > _MOST:
                        self._late.append((number, kept))
                    else:
                        self._kept[number] = kept
                self._before.clear()
            else:
                self._before.append((self.count, line))
            self._last.append((self.count, line))

    def _is_new(self, line: bytes) -> bool:
        """Whether it is not like many before."""
        kind = line[:200].translate(None, _VARYING)
        times = self._seen.get(kind, 0)
        if len(self._seen) > _MOST:
            self._seen.clear()  # bounded memory counts for more than a line kept twice
        self._seen[kind] = times + 1
        return times < _ALIKE

    def lines(self) -> list[Line]:
        """What was kept, decoded and cleaned, in the order of the log."""
        for number, line in (*self._late, *self._last):
            self._kept.setdefault(number, line)
        size = sum(min(len(line), _LONGEST) for line in self._kept.values())
        share = _LONGEST
        if size > _TEXT:
            share = _TEXT // len(self._kept)
        lines = []
        for number in sorted(self._kept):
            text = _decoded(self._kept[number])
            most = share if len(text) > _WHOLE else _WHOLE
            lines.append(Line(number, clean(text, most)))
        return lines


def _decoded(line: bytes) -> str:
    if len(line) > 4 * _LONGEST:
        line = line[: 2 * _LONGEST] + b" ... " + line[-2 * _LONGEST :]
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        # any bytes are text in a code page of one byte: what the text says decides which one it was
        for encoding, telling in _FOREIGN.items():
            text = line.decode(encoding, "replace")
            if any(word in text for word in telling.split()):
                return text
        return line.decode("cp1252", "replace")
