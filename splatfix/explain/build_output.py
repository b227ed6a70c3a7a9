"""Why a build of ours failed, by its output: the message that explains the others, its class, and what to do.

The message is the first of the first kind that the output has. What it means comes from the record of that message where
there is one (``patches/`` and ``knowledge/data/failures/``), else from the class that the engine recognises in all of it.
"""

import contextlib
import re
import signal
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from splatfix.core.step import Step, say
from splatfix.explain.engine import cause_of
from splatfix.knowledge.failures import explain_message, failures, messages
from splatfix.knowledge.messages import Meaning

# Kind of the messages that only the build of an image gives.
_IMAGE = "image"
# Of an engine's messages when it starts a container with GPUs; where it gives several, the earlier kind is the cause.
_GPU_KINDS = ("gpu-driver", "gpu-setup", "gpu-runtime")


class BuildFailure(Struct, frozen=True):
    """Why a build failed."""

    kind: str
    """``disk-full``, ``killed``, ``compiler``, ``cmake``, ``linker``, ``no-program``, ``python``, ``pip``, ``crash`` or
    ``unknown``; of an image also ``image``."""
    lines: tuple[str, ...]
    """The lines of the output that say it, at most a handful."""
    meaning: str = ""
    todo: tuple[Step, ...] = ()
    failure_class: str = ""
    """The class that all of the output shows; "" where none is recognised."""


# gcc: f.cpp:3:10: fatal error: x · nvcc: f.cu(12): error: x · nvcc fatal : x · ptxas f.ptx, line 3; error : x
# g++: error: unrecognized option · as: f.s:3: Error: no such instruction
_COMPILER = re.compile(
    r"^\S.*:\d+(:\d+)?: (fatal )?(error|Error): |^\S.*\(\d+\): (catastrophic |fatal )?error( C?\d+)?:"
    r"|^(nvcc|ptxas|cicc|nvlink|fatbinary)( .*;)? (fatal|error)\s*:|fatal error C\d+:|^error: unsupported|#error"
    r"|^\S*\b(gcc|g\+\+|cc|c\+\+|cc1|cc1plus|clang|clang\+\+)(-[\d.]+)?: (fatal )?error: |^ninja: error: "
)
_CMAKE = re.compile(r"^CMake Error\b")
_LINKER = re.compile(
    r"ld(\.\w+)?: (error: )?cannot find|undefined reference to|ld(\.\w+)?: .*(error|undefined)|LNK\d{4}"
)
_EXCEPTION = re.compile(r"^\s*(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception|NotFound|Interrupt)): ?(.*)$")
# what torch, ninja and pip say when something below them failed
_CONSEQUENCE = re.compile(
    r"Error compiling objects for extension|subprocess\.CalledProcessError|ninja: build stopped|Failed building wheel"
    r"|CalledProcessError|subprocess-exited-with-error|metadata-generation-failed|returned non-zero exit status"
)
# pip's own refusals, and not what it says after a failed build
_PIP = re.compile(r"^ERROR: (?!Failed building|Failed to build|Exception:|Command errored)")
# the exception above it was answered by code that failed in its turn
_HANDLED = "During handling of the above exception, another exception occurred:"
_EXIT_CODE = re.compile(r"^(?:│ |\| )?exit code: (-?\d+)$")
# setuptools executes setup.py as a string
_IN_SETUP = re.compile(r'^\s*File "(?:<string>|(?:[^"]*/)?setup\.py)", line (\d+)')
# what pip, setuptools and torch say of every build, well or not
_PROGRESS = re.compile(
    r"^\s*(Processing |Preparing metadata|Running command |Building wheels? for|Getting requirements|Created temporary"
    r"|running \w+$|(creating|writing|reading|copying|adding|removing) \S|adding license file|W\d{4} .*No CUDA runtime)"
    r"|^\s*$"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# lines of Docker's and Podman's builders: they repeat the Dockerfile, with every message in it
_IMAGE_BUILDER = re.compile(
    r"Step \d+/\d+ : |The command '|--->|Removing intermediate container|\[Warning\]"
    r"|(\[\d+/\d+\] )?STEP \d+/\d+: |building at STEP |--> |: exit status \d+$"
)
_STEP_EXITED = re.compile(r"(returned a non-zero code:|exit status|exit code:) -?\d+$")


def explain_build(output: str) -> BuildFailure:
    """The first thing that went wrong in what pip, setuptools, ninja, nvcc and gcc printed, with its class."""
    # pip sets off what a build prints by two blanks
    lines = [_COLOUR.sub("", line).rstrip().removeprefix("  ") for line in output.splitlines()]
    failure = _first_message(lines) or _end_of(lines)
    cause = cause_of(output)
    if cause is None:
        return failure
    if not failure.meaning and not failure.todo:
        failure = replace(failure, meaning=cause.why, todo=cause.fix)
    return replace(failure, failure_class=cause.name)


def explain_image_build(output: Iterable[str], error: str = "") -> BuildFailure:
    """Why the build of an image failed: what the image itself lacks, else why a build of an extension in it failed.

    Args:
        error: what the engine says of it. Of a step it has the command, whose words are none of its output, and the exit code.
    """
    lines = [line.strip() for line in output]
    lines = [line for line in lines if line and not _IMAGE_BUILDER.match(line)]
    failure = _image_message(lines)
    if failure is not None:
        return failure
    exited = _STEP_EXITED.search(error)
    ending = exited[0] if exited else ""
    # a program that was killed says nothing itself
    cause = cause_of("\n".join(lines)) or cause_of(ending)
    if cause is not None:
        line = cause.lines[0].strip()
        return BuildFailure("unknown", (line,), cause.why, cause.fix, failure_class=cause.name)
    errors = [line for line in lines if line.startswith(("E: ", "ERROR: "))]
    return BuildFailure("unknown", tuple(errors[:1] or lines[-1:] or filter(None, [ending])))


def explain_gpu_refusal(text: str) -> Meaning | None:
    """What a container engine's message means that gives a container no GPU; None where it is about something else."""
    for kind in _GPU_KINDS:
        for message in messages():
            if message.kind == kind and (meaning := message.read(text)):
                return meaning
    return None


def _image_message(lines: Sequence[str]) -> BuildFailure | None:
    """The first message of an image build that no other explains."""
    candidates = []
    for message in messages():
        if message.kind != _IMAGE:
            continue
        index = _first_index(lines, message.pattern.search)
        if index is not None:
            candidates.append((index, message))
    consequences = {name for _, message in candidates for name in failures()[message.key].explains}
    causes = [(index, message) for index, message in candidates if message.key not in consequences]
    if not causes:
        return None
    index, message = min(causes, key=lambda candidate: candidate[0])
    meaning = message.read(lines[index])
    return BuildFailure(_IMAGE, (lines[index],), todo=meaning.steps if meaning else ())


def _first_message(lines: Sequence[str]) -> BuildFailure | None:
    """The first message of the first kind that the output has, wherever in it the others stand."""
    # the cause of the others first: a full disk or a killed compiler makes everything else fail too
    kinds: tuple[tuple[str, Callable[[str], object]], ...] = (
        ("disk-full", _known_message("disk-full")),
        ("killed", _known_message("killed")),
        ("compiler", _COMPILER.search),
        ("cmake", _CMAKE.match),
        ("linker", _LINKER.search),
        ("no-program", _known_message("no-program")),
        ("python", lambda line: _EXCEPTION.match(line) and not _CONSEQUENCE.search(line)),
        ("pip", _PIP.match),
    )
    for kind, matches in kinds:
        index = _first_index(lines, matches)
        if kind == "python":
            index = _first_index(_without_handled(lines), matches)
            raised = _first_raised(lines)
            index = min((at for at in (index, raised) if at is not None), default=None)
        if index is None:
            continue
        failure = _meaning_of(kind, _with_context(kind, lines, index))
        if kind == "python":
            failure = _in_setup(failure, lines[:index])
        return failure
    return None


def _known_message(kind: str) -> Callable[[str], object]:
    """Whether a line holds a message of this kind, of which the data files know every wording."""
    patterns = [message.pattern for message in messages() if message.kind == kind]
    return lambda line: any(pattern.search(line) for pattern in patterns)


def _first_index(lines: Sequence[str], matches: Callable[[str], object]) -> int | None:
    return next((index for index, line in enumerate(lines) if matches(line)), None)


def _without_handled(lines: Sequence[str]) -> list[str]:
    """The lines, those empty that tell an exception in whose handling the next one was raised."""
    kept, handled = list(lines), False
    for index in range(len(kept) - 1, -1, -1):
        line = kept[index]
        if line.strip() == _HANDLED:
            handled = True
        if handled:
            kept[index] = ""
        if line.startswith("Traceback (most recent call last)"):
            handled = False
    return kept


def _first_raised(lines: Sequence[str]) -> int | None:
    """Where the first exception stands that a traceback ends in, whatever it is called."""
    in_traceback = False
    for index, line in enumerate(_without_handled(lines)):
        if line.startswith("Traceback (most recent call last)"):
            in_traceback = True
        elif in_traceback and line and not line[0].isspace() and not line.startswith('File "'):
            in_traceback = False
            if not _CONSEQUENCE.search(line):
                return index
    return None


def _with_context(kind: str, lines: Sequence[str], index: int) -> tuple[str, ...]:
    """The line with those below it that belong to its message."""
    if kind == "pip":
        return (lines[index].strip().removeprefix("ERROR: "),)
    # the caret lines below a compiler's message show the code; CMake's text is indented; an exception's goes on as it is
    most, belongs = {
        "compiler": (4, _is_indented),
        "cmake": (8, _is_indented),
        "python": (6, _is_text_of_exception),
    }.get(kind, (1, _is_indented))
    end = index + 1
    while end < min(index + most, len(lines)) and belongs(lines[end]):
        end += 1
    if most == 1:
        return (lines[index].strip(),)
    return tuple(line for line in lines[index:end] if line.strip())


def _is_indented(line: str) -> bool:
    return not line or line[0].isspace()


def _is_text_of_exception(line: str) -> bool:
    """The next line of an exception's text, and not what pip or the next program says."""
    if line.startswith("error: ") or _CONSEQUENCE.search(line):
        return False
    return bool(re.match(r"^\S(?!.*\[)", line))


def _meaning_of(kind: str, lines: tuple[str, ...]) -> BuildFailure:
    # the code below a compiler's message is only context: what it mentions is not what is wrong
    message = "\n".join(lines) if kind == "python" else lines[0]
    known = explain_message(message, kind)
    if known is None:
        return BuildFailure(kind, lines)
    return BuildFailure(kind, lines, known.meaning, known.steps)


def _in_setup(failure: BuildFailure, above: Sequence[str]) -> BuildFailure:
    """The same, with the line of setup.py from which the exception came, where the traceback names one."""
    line_number = ""
    for line in above:
        if line.startswith("Traceback"):
            line_number = ""
        elif match := _IN_SETUP.match(line):
            line_number = match.group(1)
    if not line_number or not any(line.startswith("Traceback") for line in above):
        return failure
    return replace(failure, meaning=f"{failure.meaning} It came from line {line_number} of setup.py.".strip())


def _end_of(lines: Sequence[str]) -> BuildFailure:
    """No message is known: what the build itself printed last, and how it ended."""
    # pip's own report of the failure says nothing of the reason, but how the build's process ended
    end = _first_index(lines, lambda line: "subprocess-exited-with-error" in line)
    if end is None:
        end = len(lines)
    last = tuple(line for line in lines[:end] if not _PROGRESS.match(line))[-5:]
    codes = [match.group(1) for line in lines[end:] if (match := _EXIT_CODE.match(line.strip()))]
    code = int(codes[0]) if codes else None
    if code is None or (last and code > 0):
        return BuildFailure("unknown", last)
    if code > 0:
        return BuildFailure("unknown", (f"its setup.py ended with exit code {code} and said nothing",))
    name = f"signal {-code}"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-code).name
    line = f"the process that ran its setup.py was ended by {name}"
    if name == "SIGKILL":
        return _meaning_of("killed", (line, *last))
    meaning = "That process crashed: its setup.py, or a library that it imports, such as torch."
    return BuildFailure("crash", (line, *last), meaning, (say("Read the end of the full log."),))
