"""The lines of a log: what each is, and which of them report no failure: warnings, what was got over, what somebody tells."""

import re
from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from splatfix.explain.lines import line_pattern, speeches
from splatfix.explain.model import Frame, Line
from splatfix.explain.reading import plain
from splatfix.knowledge.failures import observations
from splatfix.knowledge.log_patterns import LogPattern

# Lines at the end among which the last one with a text is looked for: carets and blank lines follow it.
_CUT_WITHIN = 8
# Lines beside a compiler's error that belong to it: where it is from, and the code.
_ABOVE, _BELOW = 1, 2
_TRACEBACK = "Traceback (most recent call last)"
_HANDLED = "During handling of the above exception, another exception occurred"
_CHAINED = re.compile(r"During handling of the above exception|The above exception was the direct cause")
_FRAME = re.compile(r'^\W{0,12}File "([^"]{1,400})", line (\d{1,6})(?:, in (\S.{0,80}))?')
# of rich (clean takes the box away) and of IPython
_SHORT_FRAME = re.compile(r"^\s{0,12}(?:File )?(\S{1,300}\.py)(?::(\d{1,6}))?,? in (<?\w{1,80}>?)(?:$|[\s(])")
# Below Python: what an exception says shows which of them it is from.
_RUNTIMES = ("cuda", "torch", "optix")
# A compiler or linker, whose errors come before all that follows them.
_COMPILERS = frozenset(("nvcc", "cl", "gcc", "clang", "rustc", "ld", "link"))


class Event(Struct, frozen=True):
    """A line in which a program reports that something failed."""

    index: int
    speaker: str
    step: str = ""
    kind: str = ""
    """As :class:`splatfix.explain.lines.Speech` has it."""
    frames: tuple[Frame, ...] = ()
    """Of an exception, the outermost first."""
    begin: int = -1
    """Where its traceback begins."""


class Log(Struct, frozen=True, dict=True):
    """The lines of a log as patterns are looked for in them."""

    lines: Sequence[Line]

    @cached_property
    def texts(self) -> list[str]:
        """The lines with plain quotes."""
        return [plain(line.text) for line in self.lines]

    @cached_property
    def lower(self) -> list[str]:
        """The same in lower case."""
        return [text.lower() for text in self.texts]

    @cached_property
    def everything(self) -> str:
        """All of it in lower case."""
        return "\n".join(self.lower)

    @cached_property
    def observations(self) -> frozenset[str]:
        """Names of the observations that it makes."""
        return frozenset(name for name, pattern in observations().items() if self.has(pattern))

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Every report of a failure, in the order of the log: a line by its first known speaker, an exception with its frames."""
        known = [item for item in speeches() if item.possible_in(self.everything)]
        events: list[Event] = []
        frames: list[Frame] = []
        begin, inside, indent = -1, False, 0
        for index, text in enumerate(self.texts):
            if _TRACEBACK in text:
                frames, begin, inside, indent = [], index, True, len(text) - len(text.lstrip())
            elif match := _FRAME.match(text) or _SHORT_FRAME.match(text):
                begin = begin if frames or inside else index
                frames.append(Frame(match[1], int(match[2] or 0), (match[3] or "").strip()))
            elif line_pattern("exception").match(text) or (
                inside and frames and self._ends_traceback(text, indent)
            ):
                kind = "consequence" if line_pattern("of-others").search(text) else ""
                speaker = next((by for by in _RUNTIMES if line_pattern(f"by-{by}").search(text)), "python")
                events.append(Event(index, speaker, "", kind, tuple(frames), begin))
                frames, begin, inside = [], -1, False
            elif _HANDLED in text and events and events[-1].frames:
                # it was answered by code that failed in its turn
                events[-1] = replace(events[-1], kind="weak")
            elif said := next((item for item in known if item.search(text, self.lower[index])), None):
                events.append(Event(index, said.by, said.step, said.kind))
        if frames:
            # its exception was cut off
            events.append(Event(len(self.lines) - 1, "python", "", "consequence", tuple(frames)))
        return tuple(events)

    @staticmethod
    def _ends_traceback(text: str, indent: int) -> bool:
        """Whether it is the line of an exception of any name, below the frames."""
        return len(text) - len(text.lstrip()) <= indent and bool(line_pattern("raised").search(text))

    @cached_property
    def speakers(self) -> dict[int, str]:
        """Who says a line, by its number, where that is known: not of what any program could have said."""
        named = (event for event in self.events if event.speaker != "program")
        return {self.lines[event.index].number: event.speaker for event in named}

    @cached_property
    def warnings(self) -> frozenset[int]:
        """Numbers of the lines that only warn, where another one is an error, and of those that were outlived."""
        numbers = frozenset(line.number for line in self.lines if line_pattern("warning").search(line.text))
        others = (line for line in self.lines if line.number not in numbers)
        if not numbers or not any(line_pattern("error").search(line.text) for line in others):
            return self.outlived
        return numbers | self.outlived

    @cached_property
    def outlived(self) -> frozenset[int]:
        """Numbers of the lines above a program's word that it came to its end, if no error follows (CMake's: whatever follows),
        and of those where it went on."""
        end = configured = 0
        for line in self.lines:
            if line_pattern("success").search(line.text):
                end = line.number
            elif line_pattern("configured").search(line.text):
                configured = line.number
            elif line_pattern("error").search(line.text):
                end = 0
        end = max(end, configured)
        lines = (
            line for line in self.lines if line.number < end or line_pattern("otherwise").search(line.text)
        )
        return frozenset(line.number for line in lines)

    @cached_property
    def success(self) -> str:
        """A program's word that it came to its end, where nothing but warnings follows; else ""."""
        last = next(
            (text for text in reversed(self.texts) if text and not line_pattern("warning").search(text)), ""
        )
        return last if line_pattern("success").search(last) else ""

    @cached_property
    def told(self) -> frozenset[int]:
        """Numbers of the lines in which somebody tells of it in words of their own, or of a message: no program said them."""
        return frozenset(
            line.number
            for line, text in zip(self.lines, self.texts, strict=True)
            if line_pattern("spoken-of").search(text)
            or (line_pattern("told").search(text) and not line_pattern("message").search(text))
        )

    @cached_property
    def stops(self) -> frozenset[int]:
        """Numbers of the lines that say what stopped the command, where the log shows that; else none.

        They are a compiler's errors, else the last traceback with what comes after it.
        """
        compilers = [self.lines[event.index].number for event in self.events if event.speaker in _COMPILERS]
        if compilers:
            return frozenset(at for number in compilers for at in range(number - _ABOVE, number + _BELOW + 1))
        # a later traceback that was cut before its exception says nothing
        raised = [event for event in self.events if event.begin >= 0]
        if not raised or line_pattern("consequence").search(self.texts[raised[-1].index]):
            return frozenset()
        begin = raised[-1].begin
        for before, event in zip(reversed(raised[:-1]), reversed(raised[1:]), strict=True):
            if event.begin == begin and any(map(_CHAINED.search, self.texts[before.index : begin])):
                begin = before.begin
        return frozenset(line.number for line in self.lines[begin:])

    @cached_property
    def last_texts(self) -> tuple[str, ...]:
        """The last line with a text, with the one before it where it only names the next frame of a traceback."""
        texts = [text for text in self.texts[-_CUT_WITHIN:] if text.strip(" ^~")]
        if texts and texts[-1].lstrip().startswith('File "'):
            return tuple(texts[-2:])
        return tuple(texts[-1:])

    def has(self, pattern: LogPattern) -> bool:
        """Whether some line matches."""
        if not pattern.possible_in(self.everything):
            return False
        return any(pattern.search(text, low) for text, low in zip(self.texts, self.lower, strict=True))
