"""Looks in a log for what speaks for each failure: its wordings."""

import re
from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct

from splatfix.explain.judges import Surroundings, judge, toolkit_in
from splatfix.explain.model import Line
from splatfix.explain.reading import plain
from splatfix.knowledge.failures import Failure, Wording, failures, observations
from splatfix.knowledge.log_patterns import LogPattern

# Lines at the end among which the last one with a text is looked for: carets and blank lines follow it.
_CUT_WITHIN = 8
# Python's, compilers', pip's, NumPy's and glog's warnings, and what is tried again: what went on after them did not fail for
# them.
_WARNING = re.compile(
    r"\b[Rr]etry(ing)?\b|\b[Tt]rying (the )?next\b|\b\w{0,40}Warning: |\bwarning( #[\w-]{1,9}| C\d{4})? ?: "
    r"|^\s{0,12}(\[?(WARNING|DEPRECATION)\b|\[notice\] |W\d{4} \d)|warnings\.warn\("
    r"|^A module that was compiled using NumPy 1\.x|^NumPy [\d.]+ as it may crash|downgrade to 'numpy<2'"
)
_ERROR = re.compile(
    r"\b(fatal )?error( [A-Z]{1,3}\d{4})? ?: |^\s{0,12}[\w.]{1,80}(Error|Exception)\b|^\s{0,12}ERROR\b"
    r"|\bFAILED\b|\bfatal\s{0,4}: |^Failed to build "
)
# What a program says that goes on without what it lacks, or that warns of a later release, and one that came to its end.
_OTHERWISE = re.compile(
    r"\b[Ff]alling back\b|\busing (the )?(slow|fallback)|(: W |^W\d{4,8} )\S.{0,60}\.cc:\d{1,5}\] Could not "
    r"|\b\w{0,40}(Deprecation|Future)Warning: "
)
_CONFIGURED = re.compile(r"^\W{0,8}-- (Configuring done|Generating done|Build files have been written)")
_SUCCESS = re.compile(
    r"^Successfully (built|downloaded|installed) |^Finished processing dependencies for|To activate this environment, use"
)

# A sentence of the one who reports it, and what shows that it repeats a message or code.
_TOLD = re.compile(r"\b(I|I'm|I've|[Mm]y|[Ww]e|[Oo]ur|me)\b")
_MESSAGE = re.compile(
    r"[Ee]rror\b|ERROR|Exception|fatal|[\"']|No module|cannot|undefined|failed|not found|:\s|\w_\w|\w\.\w|\w\("
)
# A message that is spoken of and was not given: in an explanation, a wish, a list to tick off, a table's cell, a help text;
# a command as it was typed.
_SPOKEN_OF = re.compile(
    r"\b([Ii]f|[Ww]hen|[Ii]n case) (you|it|this) (see|get|got|shows|fails|says)|\b(do|does|did) ?(not|n't) (get|have|see)\b"
    r"|\b[Uu]nlike\b|\bI('ve)? (have |already )?(fixed|solved|installed|read)\b"
    r"|\b[Ff]eature request\b|\b[Cc]ould you (please )?add\b"
    r"|\bwent away\b|^\s{0,12}[-*] \[[ xX]\] |[^\s|%] \|$"
    r"|^\s{1,8}--?\w[\w-]{0,40}( [A-Z_]{1,40})?\s{2,}\S|^\s{1,8}-\w [A-Z_]{1,40}\s"
    r"|^(\S{0,80}[$#>%] ?)?(sudo )?(apt|apt-get|pip3?|conda|mamba|docker|git|where|which|export|RUN) "
    r"(?!.{0,300}(error|fail|exit|did not|not found))"
)

_COMPILER_ERROR = re.compile(
    r"^\s*\S.{0,400}(:\d+(:\d+)?:|\(\d+\) ?:) (catastrophic |fatal )?(error|Error|错误)\b"
    r"|^\s*(nvcc|ptxas|cicc|nvlink)\b.{0,200} (fatal|error) ?:|\berror (C|LNK)\d{4}|undefined reference to|cannot find -l"
)
# Lines beside a compiler's error that belong to it: where it is from, and the code.
_ABOVE, _BELOW = 1, 2
_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = re.compile(r"During handling of the above exception|The above exception was the direct cause")
_EXCEPTION = re.compile(r"^\W{0,12}(?:[A-Za-z_]\w*\.){0,8}[A-Z]\w{0,80}(Error|Exception)\b")
# What cannot be imported was not built, and what a program below says of itself stands above.
_CONSEQUENCE = re.compile(
    r"\b(Import|ModuleNotFound|System|CalledProcess)Error\b|Error (compiling|building)|Command .{0,200}(failed|returned)"
)


class Sign(Struct, frozen=True):
    """A line of a log that speaks for a failure."""

    wording: Wording
    weight: float
    """After its numbers were tested."""
    line: Line
    aside: bool = False
    """It is only warned of, and the log has an error."""


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
    def warnings(self) -> frozenset[int]:
        """Numbers of the lines that only warn, where another one is an error, and of those that were outlived."""
        numbers = frozenset(line.number for line in self.lines if _WARNING.search(line.text))
        others = (line for line in self.lines if line.number not in numbers)
        if not numbers or not any(_ERROR.search(line.text) for line in others):
            return self.outlived
        return numbers | self.outlived

    @cached_property
    def outlived(self) -> frozenset[int]:
        """Numbers of the lines above a program's word that it came to its end, if no error follows (CMake's: whatever follows),
        and of those where it went on."""
        end = configured = 0
        for line in self.lines:
            if _SUCCESS.search(line.text):
                end = line.number
            elif _CONFIGURED.search(line.text):
                configured = line.number
            elif _ERROR.search(line.text):
                end = 0
        end = max(end, configured)
        lines = (line for line in self.lines if line.number < end or _OTHERWISE.search(line.text))
        return frozenset(line.number for line in lines)

    @cached_property
    def success(self) -> str:
        """A program's word that it came to its end, where nothing but warnings follows; else ""."""
        last = next((text for text in reversed(self.texts) if text and not _WARNING.search(text)), "")
        return last if _SUCCESS.search(last) else ""

    @cached_property
    def told(self) -> frozenset[int]:
        """Numbers of the lines in which somebody tells of it in words of their own, or of a message: no program said them."""
        return frozenset(
            line.number
            for line, text in zip(self.lines, self.texts, strict=True)
            if _SPOKEN_OF.search(text) or (_TOLD.search(text) and not _MESSAGE.search(text))
        )

    @cached_property
    def stops(self) -> frozenset[int]:
        """Numbers of the lines that say what stopped the command, where the log shows that; else none.

        They are a compiler's errors, else the last traceback with what comes after it.
        """
        errors = [line.number for line in self.lines if _COMPILER_ERROR.search(line.text)]
        if errors:
            return frozenset(at for number in errors for at in range(number - _ABOVE, number + _BELOW + 1))
        begin, ended, raised, chained = 0, 0, "", False
        for line in self.lines:
            if _TRACEBACK in line.text:
                begin = begin if chained and begin else line.number
                chained = False
            elif _CHAINED.search(line.text):
                chained = True
            elif begin and _EXCEPTION.search(line.text):
                # a later traceback that was cut before its exception says nothing
                ended, raised = begin, line.text
        if not raised or _CONSEQUENCE.search(raised):
            return frozenset()
        return frozenset(line.number for line in self.lines if line.number >= ended)

    @cached_property
    def last_texts(self) -> tuple[str, ...]:
        """The last line with a text, with the one before it where it only names the next frame of a traceback."""
        texts = [text for text in self.texts[-_CUT_WITHIN:] if text.strip(" ^~")]
        if texts and texts[-1].lstrip().startswith('File "'):
            return tuple(texts[-2:])
        return tuple(texts[-1:])

    def is_about(self, failure: Failure) -> bool:
        """Whether it makes an observation without which the failure is not named."""
        return not failure.about or not self.observations.isdisjoint(failure.about)

    def has(self, pattern: LogPattern) -> bool:
        """Whether some line matches."""
        if not pattern.possible_in(self.everything):
            return False
        return any(pattern.search(text, low) for text, low in zip(self.texts, self.lower, strict=True))


def find_signs(log: Log, toolkit: tuple[int, int] | None) -> dict[str, list[Sign]]:
    """What speaks for each failure, by its name; failures that nothing speaks for are left out.

    Args:
        toolkit: version of the nvcc that builds use, where facts tell it.
    """
    around = Surroundings(
        toolkit or toolkit_in(log.texts), "rasterizer-call" in log.observations, log.last_texts
    )
    signs: dict[str, list[Sign]] = {}
    for name, failure in failures().items():
        for wording in failure.wordings:
            sign = _sign(wording, log, around)
            if sign is not None:
                signs.setdefault(name, []).append(sign)
    return signs


def _sign(wording: Wording, log: Log, around: Surroundings) -> Sign | None:
    """The line that bears a wording out best; None where there is none, or something rules it out."""
    if not log.observations.issuperset(wording.all) or not log.observations.isdisjoint(wording.none):
        return None
    if not wording.possible_in(log.everything):
        return None
    best: Sign | None = None
    best_rank = (0.0, False, False)
    for line, text, low in zip(log.lines, log.texts, log.lower, strict=True):
        match = wording.search(text, low)
        if match is None:
            continue
        aside, stops = line.number in log.warnings, line.number in log.stops
        if not wording.test and not aside and (stops or not log.stops):
            return Sign(wording, wording.weight, line)
        weight = wording.weight
        if wording.test:
            weight *= judge(wording.test, text, match, around)
        rank = (weight, not aside, stops)
        if weight and rank > best_rank:
            best, best_rank = Sign(wording, weight, line, aside), rank
    return best
