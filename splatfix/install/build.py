"""Builds one wheel with what installs in the target environment, in a scratch copy, with explicit variables."""

import os
import re
import shlex
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from splatfix import __version__
from splatfix.context import make_context
from splatfix.core.errors import SplatfixError, require
from splatfix.core.files import write_bytes
from splatfix.core.step import say
from splatfix.explain import BuildFailure, explain_build
from splatfix.facts.checkout import read_source
from splatfix.facts.source.copying import LeftOut
from splatfix.install.ask import ask_setup, contradiction
from splatfix.install.environment import Environment, build_command, child_environment, writable_log
from splatfix.install.link_names import link_names
from splatfix.install.scratch import Scratch, copy_to_build, scratch_folder
from splatfix.install.wheel_cache import WheelCache, identity_of, origin_of, versions_of, wheel_key
from splatfix.install.wheels import add_manifest
from splatfix.model import Facts
from splatfix.model.inquiry import Inquiry
from splatfix.model.steps import BuildWheel

# A rasterizer for four architectures takes minutes; half a day means that something hangs.
_TIMEOUT = 6 * 3600.0

_NINJA = re.compile(r"^\s*\[(\d+)/(\d+)\]")
_BEGINS = re.compile(r"^\s*building '([^']+)' extension")
_COMPILING = re.compile(r"\s-c (?:-\S+ )*(\S+\.(?:cu|cpp|cc|cxx|c))\b")

# A setup.py may start ``pip install`` for its submodules, as beta-splatting's does: they are in the plan themselves, and what is
# not is for the plan to say. "0" turns isolation off: pip reads the variable as the value of build_isolation.
_NO_OTHER_INSTALLS = {"PIP_DRY_RUN": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_DEPS": "1"}
_AFTER_IMPORT = Path(__file__).with_name("after_import.py")


class Built(Struct, frozen=True):
    """A wheel, and whether it was compiled now."""

    path: Path
    cached: bool
    left_out: tuple[LeftOut, ...]


class Builder(Struct):
    """Builds the source of one step."""

    step: BuildWheel
    facts: Facts
    environment: Environment
    wheels: Path
    """The folder that the wheel goes to."""
    log: Path
    tell: Callable[[str], None]
    """Called with what the build is working on."""
    cache: WheelCache | None
    stop: threading.Event
    """Set by another thread, it ends the build."""

    def build(self) -> Built:
        """Build the wheel, with our manifest in it; one whose compiler the system killed for memory with half as many jobs.

        Raises ``build-failed`` with the root cause, ``build-stopped``, ``disk-full``, ``cannot-copy``, ``no-scratch``,
        ``cannot-write``, and what :func:`contradiction` returns.
        """
        step, context = self.step, make_context(self.facts)
        with scratch_folder(source=step.source) as scratch:
            self.tell("copying the source")
            scratch = copy_to_build(step, scratch)
            source = read_source(scratch.source)
            identity = identity_of(step, self.facts, source.reads)
            key = wheel_key(scratch.copy, identity)
            kept = self.cache and self.cache.take(key, self.wheels)
            if kept:
                return Built(kept, True, scratch.left_out)
            variables = self._variables(scratch, source.libraries)
            self.tell("asking setup.py")
            inquiry = ask_setup(step, scratch, context, self.environment, variables, self.stop)
            require(contradiction(step, inquiry, context, self.environment))
            self.tell("running its setup.py")
            jobs = int(step.variables.get("MAX_JOBS", "1"))
            cause = self._run_pip(scratch, variables, inquiry)
            while cause and cause.kind == "killed" and jobs > 1:
                jobs //= 2
                self.tell(f"out of memory: a compiler was killed; retrying with MAX_JOBS={jobs}")
                variables["MAX_JOBS"] = str(jobs)
                cause = self._run_pip(scratch, variables, inquiry)
            if cause:
                raise self._failure(cause)
            made = self._take_wheel(scratch)
        # a variable that it reads by a computed name, and that is set, is not in the key
        reads = (*source.reads, *inquiry.answer.reads)
        if self.cache and identity == identity_of(step, self.facts, reads):
            self.cache.put(key, made, identity, origin_of(Path(step.source)))
        return Built(made, False, scratch.left_out)

    def _failure(self, cause: BuildFailure) -> SplatfixError:
        first, *others = cause.lines or ("it printed nothing",)
        return SplatfixError(
            "disk-full" if cause.kind == "disk-full" else "build-failed",
            f"The build of {self.step.subject} failed: {first}",
            meaning="\n  ".join([*others, f"{cause.meaning} Nothing was installed.".strip()]),
            todo=(*cause.todo, say(f"Full log: {self.log}")),
            details={
                "cause": cause.kind,
                "class": cause.failure_class,
                "lines": [*cause.lines],
                "log": str(self.log),
            },
        )

    def _variables(self, scratch: Scratch, libraries: tuple[str, ...]) -> dict[str, str]:
        """Return the variables of the build, and put what they name into the scratch folder."""
        planned, environment = self.step.variables, self.environment
        variables = {**_NO_OTHER_INSTALLS, **planned, "TMPDIR": str(scratch.temporary)}
        variables |= compiler_cache(self.step, scratch.root)
        cc, home, names = planned.get("CC"), planned.get("CUDA_HOME"), scratch.root / "link-names"
        if cc and home:
            link_names(libraries, cc, Path(home), environment.purelib, names, environment.runner)
        if names.is_dir():
            # CMake has a variable of its own; an empty part would stand for the current folder
            for variable in ("LIBRARY_PATH", "CMAKE_LIBRARY_PATH"):
                variables[variable] = os.pathsep.join(filter(None, (str(names), os.environ.get(variable))))
        changes = ""
        if self.step.cuda_mismatch:
            changes += 'AfterImport("torch.utils.cpp_extension", silence)\n'
        if self.step.setup_call:
            changes += f'AfterImport("setuptools", act_once({self.step.setup_call}))\n'
        if changes:
            folder = scratch.root / "first-on-path"
            folder.mkdir()
            program = f"{_AFTER_IMPORT.read_text(encoding='utf-8')}\n\n{changes}"
            (folder / "sitecustomize.py").write_text(program, encoding="utf-8")
            variables["PYTHONPATH"] = str(folder)
        return variables

    def _run_pip(
        self, scratch: Scratch, variables: Mapping[str, str], inquiry: Inquiry
    ) -> BuildFailure | None:
        step = self.step
        argv = build_command(self.environment, scratch.source, scratch.wheels)

        def follow(line: str) -> None:
            text = described(line)
            if text:
                self.tell(text)

        with writable_log(self.log):
            with self.log.open("a", encoding="utf-8") as file:
                file.writelines(f"# setup.py, asked: {line}\n" for line in inquiry.lines)
                file.write(f"# splatfix {__version__} builds {step.subject} from {step.source}\n")
                file.writelines(f"# {name}={value}\n" for name, value in variables.items())
                file.writelines(f"# not copied: {item.path} ({item.reason})\n" for item in scratch.left_out)
                file.write(f"# {' '.join(argv)}\n")
            done = self.environment.runner.run(
                argv,
                timeout=_TIMEOUT,
                env=child_environment(variables, step.unset, step.path_first),
                on_line=follow,
                log=self.log,
                stop=self.stop,
            )
        if done.ok:
            return None
        if self.stop.is_set():
            raise SplatfixError.of("install.build-stopped", subject=step.subject)
        if done.error:
            return BuildFailure("unknown", (done.error,))
        # the scratch copy is removed before anybody reads its paths
        output = done.stdout.replace(f"{scratch.source}/", "").replace(f"{scratch.copy}/", "")
        return _explained(output, step, scratch)

    def _take_wheel(self, scratch: Scratch) -> Path:
        made = sorted(scratch.wheels.glob("*.whl"))
        if len(made) != 1:
            raise SplatfixError.of(
                "install.not-one-wheel", subject=self.step.subject, number=len(made) or "no", log=self.log
            )
        made_so = {
            "source": self.step.source,
            "targets": [arch.sm for arch in self.step.targets],
            "variables": dict(self.step.variables),
            "built_with": versions_of(self.facts, self.step),
            "edits": [edit.rule for edit in self.step.edits],
        }
        if self.step.cuda_mismatch:
            made_so["cuda_mismatch"] = self.step.cuda_mismatch
        add_manifest(made[0], "built", made_so)
        path = self.wheels / made[0].name
        # whole or not at all: it may go to another disk, and a full one
        write_bytes(path, made[0].read_bytes())
        return path


def _explained(output: str, step: BuildWheel, scratch: Scratch) -> BuildFailure:
    """Return why a build failed, with what the copy has to do with it."""
    cause = explain_build(output)
    # a compiler cache gives compilers paths relative to where they run
    lines = tuple(re.sub(r"(?<!\S)(?:\.\./)+(?=[^\s:(,]+)", "", line) for line in cause.lines)
    notes = [cause.meaning]
    # what was not copied is told where the failure's lines speak of it
    for item in scratch.left_out:
        if any(item.path in line for line in lines):
            notes.append(f"{item.path} was not copied for the build ({item.reason}).")
            break
    named = next((name for edit in step.edits for name in edit.files if lines and name in lines[0]), "")
    if cause.kind == "compiler" and named:
        copies = [Path(folder, named).read_bytes() for folder in (step.source, scratch.source)]
        if len({copy.count(b"\n") for copy in copies}) > 1:
            edits = ", ".join(edit.rule for edit in step.edits if named in edit.files)
            added = f"edits ({edits}), which added lines"
            notes.append(f"Line numbers of {named} are those after splatfix's {added}.")
    return replace(cause, lines=lines, meaning=" ".join(filter(None, notes)))


def compiler_cache(step: BuildWheel, scratch: Path) -> dict[str, str]:
    """Return variables that let ccache or sccache serve the C++ compiler too, across scratch folders; none without a cache.

    Torch takes nvcc from PYTORCH_NVCC as a command line, but takes CXX for one program's name: with a blank in it, it
    refuses the compiler. So a script with the compiler's own name stands in.
    """
    program = step.variables.get("PYTORCH_NVCC", "").partition(" ")[0]
    cxx = step.variables.get("CXX", "")
    if not program or not cxx:
        return {}
    folder = scratch / "compiler-cache"
    folder.mkdir()
    script = folder / Path(cxx).name
    script.write_text(f'#!/bin/sh\nexec {program} {shlex.quote(cxx)} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return {"CXX": str(script), "CCACHE_BASEDIR": str(scratch), "CCACHE_NOHASHDIR": "1"}


def described(line: str) -> str:
    """Return what a line of a build's log says is being worked on, with counts where it has some; "" for most lines.

    ninja names a file when it is done with it (its output is no terminal), distutils before it starts. How long the rest takes
    nothing tells: the large files often come last.
    """
    file = _COMPILING.search(line)
    if file:
        name = re.split(r"[/\\]", file.group(1))[-1]
        count = _NINJA.match(line)
        if count:
            return f"compiled {name} ({count[1]} of {count[2]})"
        return f"compiling {name}"
    begins = _BEGINS.match(line)
    if begins:  # before ninja is done with the first file of many minutes
        return f"compiling the sources of {begins.group(1)}"
    if " -shared " in line:
        return "linking"
    return ""
