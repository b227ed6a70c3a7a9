"""Takes a log apart before a cause is looked for: who reports the failure, in which step of what, and the first real error."""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from splatfix.core.redact import without_credentials
from splatfix.explain.lines import first_named, line_pattern, named_in, steps_by
from splatfix.explain.log import Event, Log
from splatfix.explain.model import Failure, Frame
from splatfix.knowledge.tables import table

# What is reported first is the failure, but for what makes everything else fail, and what something else made fail.
_ORDER = ("cause", "", "weak", "consequence")
_FRONTS = ("pip", "uv", "make", "docker")  # what these only report, something nearer to it reports better
# Lines of an error that are given: the text of CMake's, the message of an exception, else the code below or what goes on.
_SHOWN, _SHOWN_ELSE = {"cmake": 8, "python": 5}, 3
# Folders of sources that are named after no package.
_FOLDERS = ("src", "csrc", "cuda", "source", "include", "lib", "build", "ext", "kernels", "ops", "torch")
# Packages that build others.
_BUILDERS = ("python", "torch", "setuptools", "pip", "_distutils_hack")
_CODE_BELOW = ("cmake", "gcc", "clang", "nvcc", "cl")
# Last lines that are given where nothing reports an error; lines above an error that tell the step, or the source it is in.
_LAST = 3
_NEAR = 12


def take_apart(log: Log) -> Failure:
    """Return what failed and where: by the first report that is no warning, nothing got over, and no consequence of another."""
    aside = log.warnings | log.told
    events = [event for event in log.events if log.lines[event.index].number not in aside]
    failure = _without_error(log)
    if events:
        failure = _reported(
            min(
                events,
                key=lambda item: (
                    _ORDER.index(item.kind),
                    item.kind == "consequence" and item.speaker in _FRONTS,
                    item.index,
                ),
            ),
            log,
        )
    found = {name: first_named(name, log.texts) for name in table("log_lines")["versions"]}
    versions = {name: value for name, value in found.items() if value}
    if "." not in versions.get("python", "."):
        versions["python"] = f"3.{versions['python'][1:]}"
    source = first_named("source", log.texts) or failure.package
    return replace(failure, versions=versions, source=without_credentials(source))


def _reported(event: Event, log: Log) -> Failure:
    """Return the failure that one line reports."""
    frames = tuple(replace(frame, package=package_of(frame.file)) for frame in event.frames)
    iteration = next(
        (
            int(found[-1])
            for text in reversed(log.texts[: event.index + 1])
            if (found := named_in("iteration", text))
        ),
        None,
    )
    step = event.step or _step_of(frames, log, event, iteration)
    package, file = _place(step, event, frames, log)
    return Failure(
        speaker=_speaker(event, log),
        step=step,
        package=package,
        file=file,
        iteration=iteration if step in ("training", "evaluation", "data") else None,
        error=tuple(without_credentials(line) for line in _lines(event, log)),
        line_number=log.lines[event.index].number,
        hidden=event.kind == "consequence",
        frames=frames,
    )


def package_of(file: str) -> str:
    """Return the installed package that a file belongs to, ``python`` for the standard library; "" for anything else."""
    if found := named_in("installed", file):
        return found[0].removesuffix(".py")
    return "python" if named_in("standard", file) else ""


def tail_of(file: str) -> str:
    """Return the end of a path, by which people know a file."""
    return "/".join(re.split(r"[/\\]+", file)[-3:])


def _without_error(log: Log) -> Failure:
    """Return how a log ends that reports no failure: well, in the midst of a build, or with some line."""
    last = [index for index, text in enumerate(log.texts) if text.strip()][-_LAST:]
    if log.success or not last:
        return Failure(step="none" if log.success else "")
    lines = tuple(without_credentials(log.lines[index].text) for index in last)
    step = "compile" if named_in("going-on", log.texts[last[-1]]) else ""
    package = _built(log.texts, last[-1]) if step else ""
    return Failure(step=step, package=package, error=lines, line_number=log.lines[last[0]].number)


def _speaker(event: Event, log: Log) -> str:
    if event.speaker == "gcc" and re.search(r"\bclang(\+\+)?\b", log.everything):
        return "clang"
    if event.speaker == "program" and re.search(r"wgpu|cubecl|naga\b|vulkan", log.everything):
        return "wgpu"
    if event.speaker == "program" and _built(log.texts, event.index):
        return "setuptools"
    return event.speaker


def _step_of(frames: Sequence[Frame], log: Log, event: Event, iteration: int | None) -> str:
    """Return the step in which code failed, by its traceback, else by what was printed above."""
    text = log.texts[event.index]
    by_code = steps_by("code")
    code = [f"{tail_of(frame.file)} {frame.function}" for frame in frames]
    for step in ("compile", "metadata"):
        if any(by_code[step].search(line) for line in code):
            return step
    if line_pattern("importing").search(text):
        return "import"
    if line_pattern("fetching").search(text):
        return "fetch"
    if not frames:
        return _step_of_context(log, event) or ("training" if iteration else "run")
    if {frame.function for frame in frames} == {"<module>"} and len(
        {package_of(frame.file) for frame in frames}
    ) > 1:
        return "import"
    # what torch and Python do below says nothing of the step
    own = [line for line, frame in zip(code, frames, strict=True) if frame.package not in ("python", "torch")]
    return _first_step("code", own) or "run"


def _step_of_context(log: Log, event: Event) -> str:
    """Return the step that the message's words or the lines above stand for: a build that goes on, else the last command."""
    above = log.texts[: event.index][::-1]
    if event.speaker in ("pip", "uv"):  # what they build, failed
        return "metadata" if any(named_in("metadata", text) for text in above[:_NEAR]) else "compile"
    for text in log.texts[event.index : event.index + _LAST]:
        if step := _first_step("words", [text]):
            return step
    above = [text for text in above if " --" not in f" {text.lstrip()}"]
    for text in above:
        if named_in("build-command", text):
            return "compile"
        if command := named_in("command", text):
            if re.match(r"pip3?\b|uv\b|conda\b", command[0]):
                return "compile"
            return _first_step("code", command) or "run"
    return next((step for text in above[:_NEAR] if (step := _first_step("words", [text]))), "")


def _first_step(kind: str, texts: Sequence[str]) -> str:
    """Return the first step that some text stands for; "" for none."""
    return next((step for step, pattern in steps_by(kind).items() if any(map(pattern.search, texts))), "")


def _place(step: str, event: Event, frames: Sequence[Frame], log: Log) -> tuple[str, str]:
    """Return the package and the file that it failed in, as far as they are named."""
    text = log.texts[event.index]
    below = log.texts[event.index : event.index + _SHOWN["cmake"]]
    package = file = path = ""
    if frames:
        own = [frame for frame in frames if not frame.package and frame.file[0] != "<"] or frames
        file = f"{tail_of(own[-1].file)}:{own[-1].line}".removesuffix(":0")
        builders = _BUILDERS if step in ("compile", "metadata") else ("python",)
        packages = [frame.package for frame in frames if frame.package and frame.package not in builders]
        package = packages[-1] if packages else ""
    elif found := named_in("file", text):
        path = found[0]
        file = ":".join((tail_of(path), *found[1:]))
        package = first_named("crate", [path])
        if named_in("elsewhere", path):
            # a header of torch or of the system: the source that includes it is what does not compile
            path = _including(log.texts, event.index)
            file = tail_of(path) or file
    if step == "import":
        package = first_named("imported", [text]) or package or first_named("installed", [text])
    elif step == "resolve":
        package = first_named("requirement", below[:3])
    elif step == "configure":
        package = first_named("cmake-package", ["\n".join(below)])
    elif step in ("compile", "link", "metadata") or event.kind == "consequence":
        package = _built(log.texts, event.index) or package
        if not package and re.match(r"[\w.-]+[/\\]", path):
            package = next((part for part in re.split(r"[/\\]", path)[:-1] if part not in _FOLDERS), "")
    elif not package and not frames:
        # of a program that names no file: as it was called
        command = first_named("command", reversed(log.texts[: event.index])).split()
        package = " ".join(word for word in command[:2] if word[0] not in "-./\\~")
    return package, file


def _including(texts: Sequence[str], at: int) -> str:
    """Return the source that includes the header of a compiler's error, by its words or by the command above; "" for none."""
    for text in reversed(texts[max(0, at - _NEAR) : at + 1]):
        if (found := named_in("including", text)) and not named_in("elsewhere", found[0]):
            return found[0]
    return ""


def _built(texts: Sequence[str], at: int) -> str:
    """Return the package that is built where a line stands: the nearest named above, else the first below."""
    return first_named("built", reversed(texts[: at + 1])) or first_named("built", texts[at + 1 :])


def _lines(event: Event, log: Log) -> tuple[str, ...]:
    """Return the line of the error with those below it that belong to its message."""
    lines, others = [log.lines[event.index].text], {other.index for other in log.events}
    for index in range(
        event.index + 1, min(event.index + _SHOWN.get(event.speaker, _SHOWN_ELSE), len(log.lines))
    ):
        text = log.lines[index].text
        code, goes_on = event.speaker in _CODE_BELOW, lines[-1].rstrip().endswith(":")
        said = (text.strip() or code) and (goes_on or index not in others)
        if not said or (code and text.strip() and not text[0].isspace()):
            break
        if re.search(
            r"^\s*(Traceback|Call Stack|\[end of output\]|note: This error|--)|^\W{0,8}File \"", text
        ):
            break
        lines.append(text)
    return tuple(line.strip() if len(lines) == 1 else line.rstrip() for line in lines if line.strip())
