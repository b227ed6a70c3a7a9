"""Builds one wheel with the target environment's own pip, in a scratch copy, with an explicit environment."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from splatfix import __version__
from splatfix.core.errors import SplatfixError
from splatfix.core.files import write_bytes
from splatfix.core.runner import Runner
from splatfix.core.step import say
from splatfix.facts import read_source
from splatfix.install.build_lines import BuildLines
from splatfix.install.compiler_cache import compiler_cache
from splatfix.install.edit import apply_edits
from splatfix.install.identity import identity_of
from splatfix.install.kept_log import kept_log
from splatfix.install.mismatch import silenced_check
from splatfix.install.origin import origin_of
from splatfix.install.root_cause import RootCause, find_root_cause
from splatfix.install.scratch import Scratch, copy_source, scratch_folder
from splatfix.install.target import Target, child_environment
from splatfix.install.wheel_cache import WheelCache, wheel_key
from splatfix.install.wheel_file import add_manifest
from splatfix.plan.plan import BuildWheel

# A rasterizer for four architectures takes minutes; half a day means that something hangs.
BUILD_TIMEOUT = 6 * 3600.0


@dataclass(frozen=True)
class Built:
    """A wheel, and whether it was compiled now or before."""

    path: Path
    kept: bool
    """Taken from the wheel cache."""


def build_wheel(
    action: BuildWheel,
    target: Target,
    runner: Runner,
    wheels: Path,
    log: Path,
    doing: Callable[[str], None],
    cache: WheelCache | None = None,
    built_with: Mapping[str, str] | None = None,
    timeout: float = BUILD_TIMEOUT,
    stop: threading.Event | None = None,
) -> Built:
    """Build the action's source and leave its wheel, with our manifest in it, in ``wheels``.

    A compiler that the system killed for memory is tried once more with half as many side by side. ``log`` receives
    everything the build prints.

    Args:
        cache: where a wheel of the same source and tools may lie already, and where this one is kept.
        built_with: versions of everything that goes into the build, for the cache's key.
        stop: set by another thread, it ends the build.

    Raises:
        SplatfixError: ``build-failed`` with the root cause, ``build-stopped``, ``disk-full``, ``cannot-copy``, ``no-scratch``,
            ``cannot-write``.
    """
    while True:
        with scratch_folder(source=action.source) as scratch:
            doing("copying the source")
            copy_source(Path(action.source), scratch.source)
            apply_edits(scratch.source, action.edits)
            identity = identity_of(action, built_with or {}, read_source(scratch.source).reads)
            key = wheel_key(scratch.source, identity) if cache else ""
            if cache and (kept := cache.take(key, wheels)):
                return Built(kept, True)
            doing("running its setup.py")
            cause = _run_pip(action, target, runner, scratch, log, doing, timeout, stop)
            if cause is None:
                made = _take_wheel(action, scratch, wheels, log, built_with or {})
                if cache:
                    cache.put(key, made, identity, origin_of(Path(action.source)))
                return Built(made, False)
        jobs = int(action.variables.get("MAX_JOBS", "1"))
        if cause.kind != "killed" or jobs == 1:
            raise _failed(action, cause, log)
        doing(f"a compiler was killed for memory; again with {jobs // 2} job(s)")
        action = replace(action, variables={**action.variables, "MAX_JOBS": str(jobs // 2)})


def _run_pip(
    action: BuildWheel,
    target: Target,
    runner: Runner,
    scratch: Scratch,
    log: Path,
    doing: Callable[[str], None],
    timeout: float,
    stop: threading.Event | None,
) -> RootCause | None:
    variables = {**action.variables, "TMPDIR": str(scratch.temporary), **compiler_cache(action, scratch.root)}
    if action.cuda_mismatch:
        variables["PYTHONPATH"] = str(silenced_check(scratch.root / "silenced"))
    environment = child_environment(variables, action.unset, action.path_first)
    argv = [target.python, "-m", "pip", "--no-input", "--disable-pip-version-check", "wheel", "--verbose"]
    argv += [
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "--no-clean",
        "--wheel-dir",
        str(scratch.wheels),
        ".",
    ]
    lines = BuildLines()
    with kept_log(log):
        with log.open("a", encoding="utf-8") as file:
            settings = "".join(f"# {name}={value}\n" for name, value in variables.items())
            file.write(
                f"# splatfix {__version__} builds {action.subject} from {action.source}\n{settings}# {' '.join(argv)}\n"
            )
        done = runner.run(
            argv,
            timeout=timeout,
            cwd=scratch.source,
            env=environment,
            on_line=lambda line: doing(text) if (text := lines.says(line)) else None,
            log=log,
            stop=stop,
        )
    if done.ok:
        return None
    if stop is not None and stop.is_set():
        raise SplatfixError("build-stopped", f"The build of {action.subject} was stopped.")
    if done.error:
        return RootCause("unknown", (done.error,))
    return _of_the_source(find_root_cause(done.stdout.replace(f"{scratch.source}/", "")), action, scratch)


def _of_the_source(cause: RootCause, action: BuildWheel, scratch: Scratch) -> RootCause:
    """The cause in words of the person's source: the scratch copy is gone when they read it."""

    def as_there(match: re.Match[str]) -> str:
        return match.group(1) if (scratch.source / match.group(1)).is_file() else match.group()

    # a compiler cache tells compilers paths relative to where they run
    lines = tuple(re.sub(r"(?<!\S)(?:\.\./)+([^\s:(,]+)", as_there, line) for line in cause.lines)
    named = next((name for edit in action.edits for name in edit.files if lines and name in lines[0]), None)
    if cause.kind != "compiler" or named is None or not _moved(named, action, scratch):
        return replace(cause, lines=lines)
    edits = ", ".join(edit.rule for edit in action.edits if named in edit.files)
    note = f"Lines of {named} are counted as after its edits ({edits}), which added some."
    return replace(cause, lines=lines, meaning=f"{cause.meaning} {note}".strip())


def _moved(name: str, action: BuildWheel, scratch: Scratch) -> bool:
    """The edits made the file longer or shorter, so that a line's number is another in the person's copy."""
    counts = [
        folder.joinpath(name).read_bytes().count(b"\n") for folder in (Path(action.source), scratch.source)
    ]
    return counts[0] != counts[1]


def _take_wheel(
    action: BuildWheel, scratch: Scratch, wheels: Path, log: Path, built_with: Mapping[str, str]
) -> Path:
    made = sorted(scratch.wheels.glob("*.whl"))
    if len(made) != 1:
        raise SplatfixError(
            "build-failed",
            f"The build of {action.subject} ended well but left {len(made)} wheels instead of one.",
            meaning="Nothing was installed.",
            todo=(say(f"Read the full log: {log}"),),
        )
    add_manifest(
        made[0],
        {
            "schema_version": 1,
            "kind": "built",
            "splatfix": __version__,
            "source": action.source,
            "targets": list(action.targets),
            "variables": dict(action.variables),
            "built_with": dict(built_with),
            "edits": [edit.rule for edit in action.edits],
            **({"cuda_mismatch": action.cuda_mismatch} if action.cuda_mismatch else {}),
        },
    )
    path = wheels / made[0].name
    write_bytes(path, made[0].read_bytes())  # whole or not at all: it may go to another disk, and a full one
    return path


def _failed(action: BuildWheel, cause: RootCause, log: Path) -> SplatfixError:
    return SplatfixError(
        "disk-full" if cause.kind == "disk-full" else "build-failed",
        f"The build of {action.subject} failed: {cause.lines[0] if cause.lines else 'it said nothing'}",
        meaning="\n  ".join([*cause.lines[1:], f"{cause.meaning} Nothing was installed.".strip()]),
        todo=(*cause.todo, say(f"Full log: {log}")),
        details={"cause": cause.kind, "lines": list(cause.lines), "log": str(log)},
    )
