"""A log of any size, encoding and origin is read in bounded memory; no pattern takes long on any line."""

import io
import random
import re
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from splatfix.explain import explain, explain_text
from splatfix.explain.model import Certainty
from splatfix.explain.reading import TRIGGERS, clean
from splatfix.knowledge.failures import failures, observations
from splatfix.knowledge.log_patterns import PARSER, REPEATS, required
from tests.explain.conftest import cases
from tests.tables import data

GIVEN = cases("given")
PATTERNS = [(name, wording.pattern) for name, row in failures().items() for wording in row.wordings] + [
    (name, item.pattern) for name, item in observations().items()
]
LINE = 'a.cu(12): error: identifier "FLT_MAX" is undefined'
NOISE = "[{n}/90] nvcc -I/opt/torch/include -c src/file_{n}.cu -o build/file_{n}.o -gencode=arch=compute_80"


def top(data: bytes) -> str:
    found = explain(io.BytesIO(data))
    return found.causes[0].name if found.causes else ""


def big(megabytes: float) -> Iterator[bytes]:
    """Lines of a build, one error in the middle."""
    size, number, half = 0, 0, megabytes * 5e5
    while size < megabytes * 1e6:
        line = NOISE.format(n=number).encode() + b"\n"
        if size < half <= size + len(line):
            line = LINE.encode() + b"\n"
        yield line
        size, number = size + len(line), number + 1


@pytest.mark.parametrize(
    "data",
    [
        LINE.encode("utf-16"),
        f"start\r\n{LINE}\r\nend\r\n".encode("utf-16-le"),
        f"start\r\n{LINE}\r\nend\r\n".encode("utf-16-be"),
        f"Überschrift\r\n{LINE}\r\n".encode("cp1252"),
        f"\x1b[31m{LINE}\x1b[0m\r\n".encode(),
        f"10%\r20%\r{LINE}\r".encode(),
        f"2024-05-01T10:00:00.1234567Z {LINE}\n".encode(),
        f"#12 34.51 {LINE}\n".encode(),
        f"2024-05-01T10:00:00.1234567Z ##[error]{LINE}\r\n".encode(),
        f"section_start:1560896352:build\r\x1b[0K\x1b[31;1m{LINE}\x1b[0m\n".encode(),
        f"trainer-1  | \x1b[1m{LINE}\n".encode(),
        f"Oct 04 13:19:39 box app[394]: {LINE}\n".encode(),
        f"warning: kernels@0.1.0: {LINE}\n".encode(),
        f"[rank0]: {LINE}\n(Worker_TP0 pid=59) {LINE}\n".encode(),
        f"C:\\Users\\Jörg\\simple-knn> nvcc\r\n{LINE}\r\n".encode("cp850"),
        bytes(range(256)) * 40 + b"\n" + LINE.encode() + b"\n\x00\xff\xfe\x80",
        LINE.encode()[:-4],
        b"x" * 9_000_000 + b"\n" + LINE.encode(),
    ],
    ids=lambda data: repr(data[:12]),
)
def test_any_encoding_and_origin(data: bytes) -> None:
    assert top(data) == "missing-cfloat"


@pytest.mark.parametrize(
    ("text", "encoding", "name"), data(__file__)["messages_of_windows_consoles_in_their_own_encoding"]
)
def test_messages_of_windows_consoles_in_their_own_encoding(text: str, encoding: str, name: str) -> None:
    assert top(f"> python setup.py install\r\n{text}\r\n".encode(encoding)) == name


def test_parallel_builds_that_write_into_each_other() -> None:
    other = [NOISE.format(n=n) for n in range(40)]
    lines = [*other[:20], LINE, *other[20:], "FAILED: b.o", "ninja: build stopped: subcommand failed."]
    assert top("\n".join(lines).encode()) == "missing-cfloat"
    assert top(f"[3/9] c++ -c a.cpp {LINE}[4/9] c++ -c b.cpp\n".encode()) == "missing-cfloat"


def test_a_log_cut_after_the_line_that_proves_it_keeps_its_class() -> None:
    """What follows the last line that speaks for a class is not needed; what rules a class out can follow, and is rare."""
    lost = []
    for case in (*GIVEN[::2], *cases("held_out")[::16]):
        whole = explain_text(case["log"])
        if whole.certainty is not Certainty.NAMED:
            continue
        lines = case["log"].split("\n")
        for end in {max(whole.causes[0].line_numbers), (max(whole.causes[0].line_numbers) + len(lines)) // 2}:
            cut = explain(io.BytesIO("\n".join(lines[:end]).encode()))
            if [cause.name for cause in cut.causes[:1]] != [whole.causes[0].name]:
                lost.append((case["id"], end, cut.causes[0].name))
    assert len(lost) <= 1, lost


def test_the_worst_log_is_bounded() -> None:
    """Every line an error of its own kind: of 12 MB the reading takes well under a second, so that 100 MB take a few."""
    data = b"".join(
        b"error failed fatal cannot %d No module undefined %d zzz %s\n" % (n, n, bytes([97 + n % 26]) * 9)
        for n in range(180_000)
    )
    begin = time.process_time()
    found = explain(io.BytesIO(data))
    assert time.process_time() - begin < 3.0 and found.lines_read == 180_000


def test_an_error_in_the_middle_of_a_long_log_is_found_with_its_line_number() -> None:
    data = b"".join(big(6))
    found = explain(io.BytesIO(data))
    assert found.causes[0].name == "missing-cfloat"
    assert found.causes[0].line_numbers == (data[: data.index(LINE.encode())].count(b"\n") + 1,)
    assert (found.lines_read, found.bytes_read) == (data.count(b"\n"), len(data))


def test_memory_does_not_grow_with_the_log() -> None:
    explain(io.BytesIO(b"".join(big(0.1))))  # tables
    peaks = []
    for size in (2, 6):
        data = io.BytesIO(b"".join(big(size)))
        tracemalloc.start()
        explain(data)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0] < 60e6, peaks


def test_patterns_are_linear_by_construction() -> None:
    for name, pattern in PATTERNS:
        assert unbounded_repeats(pattern) <= 3, name
        assert not nested_repeats(pattern) or unbounded_repeats(pattern) == 0, name


def test_no_pattern_asks_for_a_quote_that_is_made_plain() -> None:
    assert [name for name, pattern in PATTERNS if set(pattern.pattern) & set("`´‘’“”")] == []


def test_a_nested_repeat_is_seen() -> None:
    assert nested_repeats(re.compile(r"(a+)+b")) and nested_repeats(re.compile(r"x(?:(?:ab|c*)d){2,}"))
    assert not nested_repeats(re.compile(r"a+b+(c|d)?"))


def test_literals_are_in_whatever_a_pattern_matches() -> None:
    assert required(re.compile("No module named '?torch")) == ("no module named ",)
    assert set(required(re.compile("(error|FATAL): x"))) == {"error", "fatal"} or required(
        re.compile("(error|FATAL): x")
    ) == (": x",)
    assert required(re.compile("[ab]+|c")) == ()
    needles = [(name, pattern, required(pattern)) for name, pattern in PATTERNS]
    for case in GIVEN[::4]:
        for line in {clean(line) for line in case["log"].split("\n")}:
            low = line.lower()
            for name, pattern, literals in needles:
                if literals and not any(text in low for text in literals):
                    assert not pattern.search(line), (name, line)


def test_nearly_every_log_holds_a_trigger() -> None:
    """Otherwise its lines would be passed over in the middle of a long log; a few excerpts end before the error itself."""
    words = [word.decode() for word in TRIGGERS]
    missed = []
    for case in GIVEN:
        lines = [line for cause in explain_text(case["log"]).causes[:1] for line in cause.lines]
        if not any(word in line for word in words for line in (*lines, *case["log"].split("\n"))):
            missed.append((case["id"], lines))
    assert len(missed) <= 4, missed


@pytest.mark.slow
def test_no_line_takes_any_pattern_long() -> None:
    """Long lines made of the pieces of the pattern itself: the worst case of each grows as the line does, not as its square."""
    source = random.Random(7)
    for name, pattern in PATTERNS:
        pieces = re.findall(r"[A-Za-z ]{2,}", pattern.pattern) or ["a"]
        spent = []
        for length in (1024, 4096):
            line = "".join(source.choice([*pieces, "a", " ", "/", "'", "0", ":"]) for _ in range(length))[
                :length
            ]
            begin = time.process_time()
            for _ in range(3):
                pattern.search(line)
            spent.append(time.process_time() - begin)
        assert spent[1] < 0.2 + 40 * spent[0], (name, pattern.pattern, spent)


def nested_repeats(pattern: re.Pattern[str]) -> bool:
    """Whether a repeat without a small bound stands inside another: the shape that takes exponential time."""
    return _nested(PARSER.parse(pattern.pattern, pattern.flags & ~re.UNICODE), False)


def unbounded_repeats(pattern: re.Pattern[str]) -> int:
    """How many repeats without a bound one after the other a pattern has; of alternatives the one with most counts."""
    return _unbounded(PARSER.parse(pattern.pattern, pattern.flags & ~re.UNICODE))


def _parts(name: str, argument: Any) -> list[Any]:
    if name == "SUBPATTERN":
        return [argument[-1]]
    if name == "BRANCH":
        return list(argument[1])
    if name in ("ASSERT", "ASSERT_NOT"):
        return [argument[1]]
    return [argument[2]] if name in REPEATS else []


def _nested(tokens: Any, inside: bool) -> bool:
    for operator, argument in tokens:
        name = str(operator)
        loops = name in REPEATS and argument[1] > 1
        if loops and inside:
            return True
        if any(_nested(part, inside or loops) for part in _parts(name, argument)):
            return True
    return False


def _unbounded(tokens: Any) -> int:
    count = 0
    for operator, argument in tokens:
        inside = [_unbounded(part) for part in _parts(str(operator), argument)]
        count += max(inside, default=0) + (str(operator) in REPEATS and str(argument[1]) == "MAXREPEAT")
    return count
