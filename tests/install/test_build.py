"""Several extensions of one plan: built side by side, told apart in journal and progress, stopped together."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.core.runner import Completed, Runner
from splatfix.facts import gather
from splatfix.install import EntryStatus, InstallProgress, Journal, WheelCache, execute, revert
from splatfix.install.build import compiler_cache
from splatfix.install.environment import Environment, pip_install
from splatfix.install.wheel_cache import identity_of
from splatfix.install.wheels import MANIFEST, write_wheel
from splatfix.model.steps import BuildWheel, InstallStep
from tests.archs import archs, request_for
from tests.files import contents, put
from tests.plan.machines import machine, make_plan, refused
from tests.processes import assert_gone
from tests.tables import data

from .environments import LEAVES, Files, Interposed, Run, install, run_in, snapshot, write_extension
from .test_cli import fake_torch

ROOT = Path(__file__).parents[2]
BOTH = "import one_probe, two_probe; print(one_probe.answer(), two_probe.answer())"


class Heard(InstallProgress):
    """Progress as a list."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def begin(self, step: InstallStep, number: int, total: int, log: str = "") -> None:
        self.lines.append(f"{number}/{total} {step.kind} {step.subject}")

    def doing(self, step: InstallStep, text: str) -> None:
        self.lines.append(f"{step.subject}: {text}")

    def end(self, step: InstallStep, result: str) -> None:
        self.lines.append(f"done {step.kind} {step.subject}: {result}")


@pytest.mark.slow
def test_two_are_built_at_once_and_installed_in_order(with_pip: Environment, tmp_path: Path) -> None:
    sources = [
        write_extension(tmp_path / name, name=f"{name}_probe", answer=answer)
        for name, answer in (("one", 1), ("two", 2))
    ]
    heard, cache, jobs = Heard(), WheelCache(tmp_path / "wheels"), list[str]()
    meeting = threading.Barrier(2, timeout=60)  # apart from each other they would never end

    def meet(argv: list[str], env: Mapping[str, str], run: Run) -> Completed:
        if "wheel" in argv:
            jobs.append(env["MAX_JOBS"])
            meeting.wait()
        return run()

    before = snapshot(with_pip)
    install(with_pip, *sources, runner=Interposed(meet), progress=heard, cache=cache, jobs=2)

    assert jobs == ["1", "1"], "both builds have their part of the two compilers"
    assert run_in(with_pip, BOTH) == "1 2"
    ends = [number for number, line in enumerate(heard.lines) if line.startswith("done build-wheel")]
    assert heard.lines.index("2/8 build-wheel two_probe") < ends[0]
    said = ["copying the source", "asking setup.py", "running its setup.py"]
    said.append("compiling the sources of one_probe._C")
    of_one = [line for line in heard.lines if line.startswith("one_probe: ")]
    assert of_one[:4] == [f"one_probe: {text}" for text in said]
    assert {"one_probe: compiling probe.c", "two_probe: compiling probe.c"} <= set(heard.lines)
    assert all("compiled in" in heard.lines[number] for number in ends)

    (entry,) = Journal(with_pip.state_folder).entries()
    for step in entry.steps[:2]:
        assert (step.kind, step.done) == ("build-wheel", True)
        assert step.result.startswith(f"{step.subject}-"), "the wheels are noted with the wrong steps"
    revert(with_pip.python)
    assert snapshot(with_pip) == before

    heard.lines.clear()
    install(with_pip, *sources, progress=heard, cache=cache, jobs=2)
    kept = [line for line in heard.lines if line.startswith("done build-wheel")]
    assert len(kept) == 2 and all(line.endswith("from the wheel cache") for line in kept)


def test_one_failed_build_stops_the_other(environment: Environment, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    slow = f"import time\ntime.sleep(300)\nopen({str(mark)!r}, 'w')\n"
    one = write_extension(tmp_path / "one", name="one_probe", extra="int half = ;")
    other = write_extension(tmp_path / "two", name="two_probe", before=slow)
    before = snapshot(environment)
    started = time.monotonic()
    error = refused(install, environment, one, other, jobs=2)
    assert time.monotonic() - started < 240, "it waited for the other build"
    assert error.code == "build-failed" and "one_probe" in error.what
    assert snapshot(environment) == before and not mark.exists()
    (entry,) = Journal(environment.state_folder).entries()
    assert entry.status is EntryStatus.FAILED
    assert {(step.subject, step.done) for step in entry.steps} == {("one_probe", False), ("two_probe", False)}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_ends_every_build(environment: Environment, tmp_path: Path, number: signal.Signals) -> None:
    started = tmp_path / "started"
    started.mkdir()
    # only a real build comes to it: who asks setup.py runs no command
    wait = f"""import os, time
from setuptools.command.build import build
def run(self):
    open({str(started)!r} + '/' + str(os.getpid()), 'w')
    time.sleep(120)
build.run = run
"""
    for name in ("one", "two"):
        write_extension(tmp_path / name, name=f"{name}_probe", before=wait)
    before = snapshot(environment)
    argv = [sys.executable, "-m", "splatfix", "install", tmp_path / "one", tmp_path / "two", "-j", "2"]
    argv += ["--python", environment.python]
    child = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + 90
        while len(list(started.iterdir())) < 2 and time.monotonic() < end:
            time.sleep(0.1)
        builders = [path.name for path in started.iterdir()]
        child.send_signal(number)
        said, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert len(builders) == 2 and child.returncode == 130, said.decode()
    assert_gone(" ".join(builders))
    assert snapshot(environment) == before
    assert Journal(environment.state_folder).entries()[-1].status is EntryStatus.FAILED


ACTION = BuildWheel(
    subject="x", source="/x", targets=archs("sm_120"), variables={"CXX": "/usr/bin/g++", "MAX_JOBS": "2"}
)


def with_cache(program: str, cxx: str) -> BuildWheel:
    return replace(ACTION, variables={**ACTION.variables, "CXX": cxx, "PYTORCH_NVCC": f"{program} /c/nvcc"})


def test_the_compiler_script_passes_all_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: Callable[[Path, str], Path]
) -> None:
    """No cache, nothing added; torch knows a compiler by its name."""
    program = script(tmp_path / "ccache", '#!/bin/sh\nfor word in "$@"; do echo "<$word>"; done\n')
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    assert compiler_cache(ACTION, tmp_path / "none") == {}
    (tmp_path / "scratch").mkdir()
    added = compiler_cache(with_cache("ccache", "/odd place/g++-13"), tmp_path / "scratch")
    assert Path(added["CXX"]).name == "g++-13" and added["CCACHE_BASEDIR"] == str(tmp_path / "scratch")
    done = Runner().run([added["CXX"], "-c", "a b.cpp"], timeout=30.0)
    assert done.stdout.splitlines() == ["</odd place/g++-13>", "<-c>", "<a b.cpp>"]


def test_the_wheel_is_the_same_with_and_without() -> None:
    plain = identity_of(ACTION, machine())
    assert identity_of(with_cache("ccache", "/usr/bin/g++"), machine()) == plain
    fewer = replace(ACTION, variables={**ACTION.variables, "MAX_JOBS": "1"})
    assert identity_of(fewer, machine()) == plain
    assert identity_of(with_cache("ccache", "/usr/bin/g++-13"), machine()) != plain


REFUSES: str = data(__file__)["refuses"]
WORDS = "compiled with CUDA 12.8, torch is built with CUDA 13.0"


def test_torch_refuses_unless_it_is_forced(environment: Environment, tmp_path: Path) -> None:
    """torch's files stay as they are, and its check is silent for that build alone."""
    fake_torch(environment, "2.11.0+cu130", "13.0")
    builder = environment.purelib / "torch" / "utils" / "cpp_extension.py"
    put(builder.parent, {"__init__.py": "", builder.name: builder.read_text() + REFUSES})
    builds = "from torch.utils import cpp_extension\ncpp_extension.build_extensions()\n"
    source = write_extension(tmp_path / "source", before=builds)
    facts = gather(environment.python)
    plan = make_plan(request_for((str(source),), ("sm_120",)), facts)
    error = refused(execute, plan, facts)
    assert "mismatches the version" in error.what + error.meaning
    torch_before = contents(builder.parents[1])
    build, *others = plan.steps
    forced = replace(plan, steps=(replace(build, cuda_mismatch=WORDS), *others))
    log = Path(execute(forced, facts).log) / "build-tiny_probe.log"
    assert "torch's check of the CUDA version is silenced" in log.read_text()
    assert contents(builder.parents[1]) == torch_before
    child = Runner().run([environment.python, "-B", "-c", builds], timeout=60.0)
    assert "mismatches the version" in child.stderr
    assert Journal(environment.state_folder).entries()[-1].request["cuda_mismatch"] == WORDS
    (installed,) = environment.purelib.glob(f"tiny_probe-*.dist-info/{MANIFEST}")
    manifest = json.loads(installed.read_text())
    # diagnose tells by it what it was built for
    assert manifest["cuda_mismatch"] == WORDS and manifest["built_with"]["setuptools"]
    assert manifest["built_with"]["torch"] == "2.11.0+cu130 13.0"


def test_a_build_that_reads_above_its_folder(environment: Environment, tmp_path: Path) -> None:
    """As tiny-cuda-nn's bindings: a version and sources two folders up, something removed and written on the way; and as
    HTGS, by its own folder's name."""
    repository = put(tmp_path / "repo", {"VERSION": "2.5", "datasets/scene.ply": "x", "src/a.h": ""})
    above = "import os\nroot = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))\n"
    above += "assert os.path.basename(root) == 'repo'\n"
    above += "version = open(os.path.join(root, 'VERSION')).read()\nopen(os.path.join(root, 'written'), 'w').close()\n"
    place = repository / "bindings" / "torch"
    source = write_extension(place, name="deep_probe", answer=7, before=above)
    (source / "probe.c").rename(repository / "src" / "probe.c")
    setup = source / "setup.py"
    text = setup.read_text().replace('"probe.c"', '"../../src/probe.c"').replace('"1.0"', "version")
    setup.write_text(text)
    before = sorted(repository.rglob("*"))
    outcome = install(environment, source, afresh=True)
    (build,) = (step for step in outcome.plan.steps if isinstance(step, BuildWheel))
    assert build.repository == str(repository)
    assert run_in(environment, "import deep_probe; print(deep_probe.answer())") == "7"
    assert sorted(repository.rglob("*")) == before, "the checkout was changed"
    (log,) = Path(outcome.log).glob("build-*.log")
    assert "# not copied: datasets (data" in log.read_text()


@pytest.mark.parametrize("extra", ["", "this is no C"])
def test_leftovers_of_a_build_are_moved_out(with_pip: Environment, tmp_path: Path, extra: str) -> None:
    """And what somebody else's pip brings meanwhile stays."""
    other = write_wheel(tmp_path, "other", "1.0", {"other/__init__.py": b""}, "")
    source = write_extension(tmp_path / "source", before=LEAVES, extra=extra)
    installed: list[Files] = []

    def meanwhile(argv: list[str], env: Mapping[str, str], run: Run) -> Completed:
        if "--no-build-isolation" in argv:
            pip_install(with_pip, tmp_path / "pip.log", other)
            installed.append(snapshot(with_pip))
        return run()

    if extra:
        error = refused(install, with_pip, source, runner=Interposed(meanwhile), afresh=True)
        told = error.meaning
    else:
        told = " ".join(install(with_pip, source, runner=Interposed(meanwhile), afresh=True).notes)
        revert(with_pip.python)
    assert snapshot(with_pip) == installed[0]
    assert "other 1.0 was installed" in told and f"put {with_pip.purelib / 'left'} into" in told
    (kept,) = with_pip.state_folder.rglob("left/x.py")
    assert str(kept).startswith(told.rpartition("moved to ")[2].rstrip(".").split(" ")[0])
