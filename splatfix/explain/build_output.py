"""Why a build of ours failed, by its output: the message that explains the others, its class, and what to do.

The message is the first of the first kind that the output has. What it means comes from the record of that message where
there is one (``patches/`` and ``knowledge/data/failures/``), else from the class that the engine recognises in all of it.
"""

import contextlib
import re
import signal
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from splatfix.core.step import Step, say
from splatfix.explain.engine import cause_of, explain_text
from splatfix.explain.model import Certainty, Failure
from splatfix.knowledge.failures import explain_message, failures, messages
from splatfix.knowledge.messages import Message

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


# What each speaker's messages are called in an error's details.
_KINDS = {
    "nvcc": "compiler",
    "cl": "compiler",
    "gcc": "compiler",
    "clang": "compiler",
    "rustc": "compiler",
    "ninja": "compiler",
}
_KINDS |= {"cmake": "cmake", "ld": "linker", "link": "linker", "pip": "pip"}
_KINDS |= {"python": "python", "cuda": "python", "torch": "python"}
# Messages that data files know in every wording, whoever says them.
_OF_ANY = ("disk-full", "killed", "no-program")
_EXIT_CODE = re.compile(r"^(?:│ |\| )?exit code: (-?\d+)$")
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
    explanation = explain_text("\n".join(lines))
    failure = _first_message(explanation.failure, lines)
    if explanation.certainty is not Certainty.NAMED:
        return failure
    cause = explanation.causes[0]
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


def explain_gpu_refusal(text: str) -> Message | None:
    """What a container engine's message means that gives a container no GPU; None where it is about something else."""
    for kind in _GPU_KINDS:
        for message in messages():
            if message.kind == kind and (meaning := message.read(text)):
                return meaning
    return None


def _image_message(lines: Sequence[str]) -> BuildFailure | None:
    """The first message of an image build that no other explains."""
    candidates: list[tuple[int, Message]] = []
    for message in messages():
        if message.kind != _IMAGE:
            continue
        candidates += [(index, message) for index, line in enumerate(lines) if message.pattern.search(line)][
            :1
        ]
    consequences = {name for _, message in candidates for name in failures()[message.key].explains}
    causes = [(index, message) for index, message in candidates if message.key not in consequences]
    if not causes:
        return None
    index, message = min(causes, key=lambda candidate: candidate[0])
    meaning = message.read(lines[index])
    return BuildFailure(_IMAGE, (lines[index],), todo=meaning.steps if meaning else ())


def _first_message(failure: Failure, lines: Sequence[str]) -> BuildFailure:
    """The message that explains the others, else how the build ended."""
    said = "\n".join(failure.error)
    of_any = (item.kind for item in messages() if item.kind in _OF_ANY and item.pattern.search(said))
    kind = next(of_any, _KINDS.get(failure.speaker, ""))
    if not kind or failure.hidden:
        return _end_of(lines)
    error = failure.error
    if kind == "pip":
        error = (error[0].strip().removeprefix("ERROR: "),)
    told = _meaning_of(kind, error)
    # setuptools executes setup.py as a string
    in_setup = [frame.line for frame in failure.frames if frame.file.endswith(("<string>", "setup.py"))]
    if not in_setup:
        return told
    return replace(told, meaning=f"{told.meaning} It came from line {in_setup[-1]} of setup.py.".strip())


def _meaning_of(kind: str, lines: tuple[str, ...]) -> BuildFailure:
    # the code below a compiler's message is only context: what it mentions is not what is wrong
    message = "\n".join(lines) if kind == "python" else lines[0]
    known = explain_message(message, kind)
    if known is None:
        return BuildFailure(kind, lines)
    return BuildFailure(kind, lines, known.meaning, known.steps)


def _end_of(lines: Sequence[str]) -> BuildFailure:
    """No message is known: what the build itself printed last, and how it ended."""
    # pip's own report of the failure says nothing of the reason, but how the build's process ended
    end = next(
        (index for index, line in enumerate(lines) if "subprocess-exited-with-error" in line), len(lines)
    )
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
