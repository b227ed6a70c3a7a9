"""Shows that two commits of splatfix say the same: ``python -m tools.same dump DIR``, then ``python -m tools.same diff A B``.

Kept until the redesign ends. Inputs (simulated machines, facts, checkouts, logs, certificates) were frozen once from the tests'
own builders, so a dump depends on the command line, on the few seams below, and on nothing else that a rename could touch.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import fnmatch
import gc
import io
import itertools
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
INPUTS = next((up / "same" / "inputs" for up in ROOT.parents if (up / "same").is_dir()), ROOT)
TARGETS = ("auto", "sm_120", "sm_75")
BACKENDS = ("native", "pure", "nvrtc", "warp", "auto")


_simulated: list[Any] = []
"""The simulated machine that is looked at; empty: this one."""


# The seams: all that is named here besides the command line. Who renames one of these mends it here.


def _as_machine(folder: str) -> contextlib.ExitStack:
    """Commands that look at this machine see a simulated one; any ``--python`` is that machine's own interpreter."""
    from splatfix.facts.environment import interpreter
    from splatfix.facts.system.live import LiveSystem
    from splatfix.facts.system.playback import PlaybackSystem, RawMachine

    raw = RawMachine.read(Path(folder))
    stack = contextlib.ExitStack()
    # It stays: a type whose own __new__ was taken away again refuses every argument.
    LiveSystem.__new__ = lambda kind, *words, **options: (  # type: ignore[method-assign,assignment]
        PlaybackSystem(_simulated[-1]) if _simulated else object.__new__(kind)
    )
    _simulated.append(raw)
    stack.callback(_simulated.pop)
    stack.enter_context(
        mock.patch.object(interpreter, "_interpreter_at", lambda given: str(raw.machine["python"]))
    )
    return stack


def _as_recorded(results: dict[str, Any]) -> contextlib.ExitStack:
    """Children that train or measure kernels answer from a recording; ``results`` has a result for a scene, "" for all others."""
    from splatfix.core.runner import Completed, ProcessRunner

    real = ProcessRunner.run

    def run(self: ProcessRunner, argv: Sequence[str | Path], **options: Any) -> Completed:
        words = tuple(map(str, argv))
        if words[1:2] == ("-c",) and "find_spec" in words[2]:
            return Completed(words, 0, "splatfix", "", 0.0)
        if len(words) > 3 and Path(words[1]).name == "kernel_probe.py":
            check = {"name": words[2], "implementation": words[3], "outcome": "met", "value_error": 1e-8}
            check |= {"value_allowed": 1e-6, "kind": "ours"}
            return Completed(words, 0, json.dumps(check), "", 0.0)
        if "smoke_trainer" not in words:
            return real(self, argv, **options)
        result = results.get(words[words.index("smoke_trainer") + 1], results[""])
        if isinstance(result, str):
            return Completed(words, 1, result, "", 0.0)
        out = Path(words[words.index("--out") + 1])
        out.mkdir(exist_ok=True)
        (out / "metrics.jsonl").write_text('{"loss": 0.5}\n' * 40, encoding="utf-8")
        (out / "trainer.log").write_text("recorded", encoding="utf-8")
        (out / "result.json").write_text(json.dumps(result), encoding="utf-8")
        return Completed(words, 0, "", "", 0.0)

    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch.object(ProcessRunner, "run", run))
    return stack


def _main() -> None:
    from splatfix.cli import main

    main()


def _forget_consoles() -> None:
    from splatfix.report import console

    console.out.cache_clear()
    console.err.cache_clear()


@dataclass(frozen=True)
class Case:
    """One command line in an empty folder; ``keeps`` are files that it writes there and that are dumped too."""

    name: str
    argv: tuple[str, ...]
    machine: str = ""
    recorded: str = ""
    given: str = ""
    keeps: tuple[str, ...] = ()


def run(case: Case) -> str:
    """The masked output of a case: exit code, standard output, standard error, files."""
    outer = Path.cwd()
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    folder = Path(tempfile.mkdtemp(prefix="same-"))
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    given = io.TextIOWrapper(io.BytesIO(case.given.encode()), encoding="utf-8")
    variables = {**os.environ, "HOME": str(folder / "home"), "XDG_CACHE_HOME": str(folder / "cache")}
    variables |= {"SOURCE_DATE_EPOCH": "0", "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH"):
        variables.pop(name, None)
    code: object = 0
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.dict(os.environ, variables, clear=True))
            stack.enter_context(mock.patch.multiple(sys, argv=["splatfix", *case.argv], stdin=given))
            stack.enter_context(contextlib.redirect_stdout(out))
            stack.enter_context(contextlib.redirect_stderr(err))
            stack.enter_context(mock.patch.object(threading, "excepthook", threading.excepthook))
            if case.machine:
                stack.enter_context(_as_machine(case.machine))
            if case.recorded:
                stack.enter_context(_as_recorded(RESULTS[case.recorded]))
            (folder / "here").mkdir()
            os.chdir(folder / "here")
            _forget_consoles()
            try:
                _main()
            except SystemExit as end:
                code = end.code
            except BaseException as error:  # noqa: BLE001 - a defect is an outcome too
                code = f"{type(error).__name__}: {error}"
        parts = [f"$ splatfix {' '.join(case.argv)}", f"exit {code}"]
        for title, stream in (("out", out), ("err", err)):
            text = stream.buffer.getvalue().decode("utf-8", "replace")
            parts.append(f"--- {title}\n{_readable(text)}")
        for name in case.keeps:
            file = folder / "here" / name
            text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else "(not written)"
            parts.append(f"--- {name}\n{_readable(text)}")
        return masked("\n".join(parts), folder)
    finally:
        os.chdir(outer)
        for number, handler in signals.items():
            signal.signal(number, handler)
        gc.enable()
        _forget_consoles()
        shutil.rmtree(folder, ignore_errors=True)


def _readable(text: str) -> str:
    """A document in sorted lines, so that a difference is a line; any other text as it is."""
    try:
        return json.dumps(json.loads(text), indent=1, sort_keys=True, ensure_ascii=False)
    except ValueError:
        return text


# What differs between two runs of one commit, or between two clones.
_MASKS: tuple[tuple[str, str], ...] = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?(\.\d+)?(\+\d\d:\d\d|Z)?", "TIME"),
    (r"\b20\d\d-\d\d-\d\d(?= |\b)(?=[^\n]{0,12}(UTC|local))", "DATE"),
    (r"\b[0-9a-f]{64}\b", "SHA256"),
    (r"\b[0-9a-f]{40}\b", "SHA1"),
    (r'("(?:seconds|wall_seconds|duration|elapsed|gathered|began|ended)": )[\d.]+', r"\1SECONDS"),
    (r"\b\d+(\.\d+)? (s|seconds|ms)\b", "SECONDS"),
    (r"time=\"[\d.]+\"", 'time="SECONDS"'),
    (r"/tmp/[\w./-]+", "TEMP"),  # nosec B108
    (r"\b\d+(\.\d+)? (it/s|iterations/s)", "RATE"),
    (r"SECONDS \| [\d.]+ \|", "SECONDS | RATE |"),
    (r"\d+ / (\d+|–) MiB", "BYTES"),
    (r'("(?:train|rss|evaluate|peak\w*)": )\d{7,}', r"\1BYTES"),
    (r"\(commit \w{7,}\)", "(commit COMMIT)"),
    (r'("total": )[\d.]+', r"\1SECONDS"),
    (r"(iterations_per_second\W+)[\d.]+", r"\1RATE"),
    (r'\n *"[\w./-]+\.(py|cu|cuh)": "SHA256",?', ""),
    (r"\b\d+(\.\d+)? (GiB|MiB|GB|MB)\b", "BYTES"),
    (r"(timestamp_seconds\{[^}]*\}) [\d.]+", r"\1 SECONDS"),
    # one page, written in other lines and with quotes spelled otherwise
    (r">\s+<|><", ">\n<"),
    (r"&(#x27|#39);", "'"),
    (r"&(#34|quot);", '"'),
    (r"sha256-[\w+/]{43}=", "SHA256"),
    (r'("(?:memory_\w+|disk_\w+|load\w*|cores|free|available|uptime|pid)": )\d+(\.\d+)?', r"\1NUMBER"),
)


def masked(text: str, folder: Path) -> str:
    """Text without times, digests, and the paths of this machine."""
    paths = {str(folder): "FOLDER", str(INPUTS): "INPUTS", sys.prefix: "ROOT/.venv", str(ROOT): "ROOT"}
    paths[str(Path.home())] = "HOME"
    for path, name in paths.items():
        text = text.replace(os.path.realpath(path), name).replace(path, name)
    return _masked(text)


def _masked(text: str) -> str:
    for pattern, name in _MASKS:
        text = re.sub(pattern, name, text)
    return text


# The cases


def _explains() -> Iterator[Case]:
    facts = sorted(str(path) for path in (INPUTS / "machines").iterdir())
    for file in sorted((INPUTS / "logs").glob("*.jsonl")):
        yield Case(f"explain/{file.stem}.jsonl", ("explain", "--jsonl", str(file)))
        if file.stem in ("cases", "made_here"):
            for place in (facts[0], facts[10]):
                words = ("explain", "--jsonl", str(file), "--facts", place)
                yield Case(f"explain/{file.stem}.{Path(place).name}.jsonl", words)
    rows = [json.loads(line) for line in (INPUTS / "logs" / "cases.jsonl").read_text().splitlines()]
    for number, row in enumerate(rows):
        yield Case(f"explain/{row['id']}.json", ("explain", "--json"), given=row["log"])
        yield Case(f"explain/{row['id']}.txt", ("explain",), given=row["log"])
        if number % 4 == 0:
            place = facts[number % len(facts)]
            yield Case(f"explain/{row['id']}.facts", ("explain", "--facts", place), given=row["log"])
    yield Case("explain/list.json", ("explain", "--list", "--json"))
    yield Case("explain/list.txt", ("explain", "--list"))
    for name in ("host-gcc-too-new", "toolkit-too-old-for-arch", "out_of_gpu_memory", "nonsense"):
        yield Case(f"explain/class-{name}", ("explain", "--class", name))


def _machines() -> Iterator[Case]:
    stacks = [str(INPUTS / "checkouts" / f"stack-{key}" / "stack") for key in ("inria-v1", "2dgs", "gsplat")]
    for folder in sorted((INPUTS / "machines").iterdir()):
        name, machine = f"machines/{folder.name}", str(folder)
        words: tuple[str, ...]
        for label in ("", "sm_120"):
            named = ("--target", label) if label else ()
            yield Case(f"{name}/diagnose{label}.json", ("diagnose", "--facts", machine, "--json", *named))
            yield Case(f"{name}/diagnose{label}.txt", ("diagnose", "--facts", machine, "-v", *named))
            why = ("install", "--dry-run", "--why", "--facts", machine, *named)
            yield Case(f"{name}/why{label}.json", (*why, "--json"))
            yield Case(f"{name}/why{label}.txt", why)
        yield Case(f"{name}/live.txt", ("diagnose", "--python", "python"), machine)
        keep = ("install", "--dry-run", "--why", "--keep", "torch", "--facts", machine, "--json")
        yield Case(f"{name}/keep.json", keep)
        for source in stacks:
            key = Path(source).parent.name
            yield Case(f"{name}/why-{key}.txt", ("install", source, *keep[1:3], "--facts", machine))
            for backend in BACKENDS:
                for target in TARGETS if backend in ("native", "auto") else TARGETS[1:2]:
                    words = ("install", source, "--dry-run", "--backend", backend, "--target", target)
                    yield Case(
                        f"{name}/plan-{key}-{backend}-{target}.json",
                        (*words, "--python", "python", "--json"),
                        machine,
                    )
        source = stacks[0]
        for option in ("--provide-toolkit", "--force-cuda-mismatch", "--ptx", "--with-dependencies"):
            words = ("install", source, "--dry-run", option, "--target", "sm_120", "--python", "python")
            yield Case(f"{name}/plan{option}.txt", words, machine)
        words = ("install", source, "--dry-run", "--why", "--target", "sm_86", "--python", "python")
        yield Case(f"{name}/plan-why.json", (*words, "--json"), machine)
        for option in ("diff_gaussian_rasterization", "simple_knn", "nonsense"):
            words = ("install", option, "--dry-run", "--backend", "pure", "--python", "python", "--json")
            yield Case(f"{name}/plan-named-{option}.json", words, machine)


def _facts() -> Iterator[Case]:
    for file in sorted((INPUTS / "facts").glob("*.json")):
        yield Case(f"driver/{file.stem}.json", ("diagnose", "--facts", str(file), "--json"))
        yield Case(f"driver/{file.stem}.txt", ("diagnose", "--facts", str(file)))


def _checkouts() -> Iterator[Case]:
    machines = [
        str(INPUTS / "machines" / name)
        for name in ("rtx-3090-and-5090", "rtx-2080-ubuntu-package", "h200", "rtx-5060-ti-wsl2")
    ]
    for number, folder in enumerate(sorted((INPUTS / "checkouts").iterdir())):
        name, stack = f"checkouts/{folder.name}", str(folder / "stack")
        words: tuple[str, ...]
        # `.git` of a project that any file makes one: 120 checkouts that differ in nothing else
        if folder.name.startswith("any_project_file") and number % 10:
            continue
        machine, python = machines[number % len(machines)], ("--python", "python")
        yield Case(
            f"{name}/diagnose.json",
            ("diagnose", "--repo", stack, "--json", "--target", "sm_120", *python),
            machine,
        )
        known = folder.name.startswith(("stack-", "a_checkout_is_built", "each_rasterizer"))
        words = ("install", stack, "--dry-run", "--target", "sm_86")
        yield Case(f"{name}/why.json", (*words, "--why", "--json", *python), machine)
        if known or number % 4 == 0:
            yield Case(f"{name}/plan.json", (*words, "--json", *python), machine)
        for target, toolkit in (("sm_120", "image"), ("sm_86", "wheels")):
            words = ("dockerfile", "--repo", stack, "--target", target, "--toolkit", toolkit)
            if known or number % 2 == len(toolkit) % 2:
                yield Case(f"{name}/dockerfile-{toolkit}", words)
        if folder.name.startswith("stack-") or number % 8 == 0:
            words = ("diagnose", "--repo", stack, *python)
            yield Case(f"{name}/diagnose.txt", words, machine)
            yield Case(
                f"{name}/dockerfile.json", ("dockerfile", "--repo", stack, "--target", "sm_90", "--json")
            )
            for backend in BACKENDS[1:]:
                words = ("install", stack, "--dry-run", "--backend", backend, "--json", "--target", "sm_86")
                yield Case(f"{name}/plan-{backend}.json", (*words, *python), machine)
            words = ("install", stack, "--dry-run", "--in-place", "--with-dependencies", "--target", "sm_86")
            yield Case(f"{name}/plan-edits.txt", (*words, *python), machine)


FORMS = ("text", "markdown", "html", "junit", "prometheus", "issue", "appendix", "latex")


def _reports() -> Iterator[Case]:
    folders = sorted((INPUTS / "reports").iterdir())
    lab = sorted((INPUTS / "lab").iterdir())
    for folder in (*folders, *lab[::24]):
        name = f"reports/{folder.name}"
        file = str(folder / "certificate.json")
        for form in FORMS:
            yield Case(f"{name}/show.{form}", ("report", "show", file, "--format", form))
        yield Case(f"{name}/show.json", ("report", "show", file, "--json"))
        yield Case(f"{name}/show-verbose.txt", ("report", "show", file, "--verbose"))
    pairs = [
        *itertools.pairwise(folders),
        *zip(lab[:12], lab[7:], strict=False),
        (lab[0], folders[0]),
    ]
    words: tuple[str, ...]
    for left, right in pairs:
        words = ("report", "diff", str(left), str(right))
        yield Case(f"reports/diff-{left.name}-{right.name}.json", (*words, "--json"))
        yield Case(f"reports/diff-{left.name}-{right.name}.txt", words)
        yield Case(f"reports/diff-{left.name}-{right.name}.md", (*words, "--format", "markdown"))
    for label, given in (("lab", lab), ("few", lab[:9]), ("all", folders)):
        words = ("report", "merge", *map(str, given))
        for form in ("text", "markdown", "html"):
            yield Case(f"reports/merge-{label}.{form}", (*words, "--format", form))
        yield Case(f"reports/merge-{label}.json", (*words, "--json"))
    yield Case("reports/verify.txt", ("report", "verify", str(folders[0])))


RESULTS: dict[str, dict[str, Any]] = {}
"""Recorded trainings by name: scene, or "" for all, to the trainer's result or to what it said as it failed."""


def _load_results() -> None:
    good = json.loads((INPUTS / "result.json").read_text())
    blind = json.loads(json.dumps(good))
    blind["gradients"] = {
        name: {**row, "zero_steps": 200} for name, row in blind.get("gradients", {}).items()
    }
    flat = json.loads(json.dumps(good))
    flat["heldout"] = {**flat["heldout"], "psnr": 9.0, "ssim": 0.1}
    wild = {**good, "gaussians": {"initial": 100, "final": 0}, "notes": ["a note"], "iterations": 7}
    died = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    RESULTS.update(
        good={"": good},
        blind={"": good, "figurine": blind},
        flat={"": flat},
        wild={"": wild},
        died={"": good, "figurine": died},
        empty={"": {}},
    )


CERTIFICATE = tuple(f"splatfix-report/certificate.{kind}" for kind in ("json", "md", "html"))


def _certificates() -> Iterator[Case]:
    python, cpu = ("--python", sys.executable), ("--device", "cpu")
    for name in ("good", "blind", "flat", "wild", "died", "empty"):
        words = ("certify", *cpu, *python)
        yield Case(f"certify/{name}.txt", words, recorded=name, keeps=CERTIFICATE)
        yield Case(f"certify/{name}.json", (*words, "--json"), recorded=name)
        for form in ("markdown", "junit", "prometheus", "issue", "appendix"):
            yield Case(f"certify/{name}.{form}", (*words, "--format", form), recorded=name)
        codes = ("--exit-codes", "monitoring")
        yield Case(f"certify/{name}.monitoring", (*words, *codes), recorded=name)
    for level in "1234":
        yield Case(
            f"certify/level-{level}.txt", (*words, "--level", level, "-v"), recorded="good", keeps=CERTIFICATE
        )
        yield Case(f"certify/level-{level}.json", (*words, "--level", level, "--json"), recorded="good")
    for label, more in (
        ("target", ("--target", "sm_120")),
        ("appendix", ("--appendix",)),
        ("iterations", ("--iterations", "40", "--resolution", "64", "--seed", "3")),
        ("standard", ("--suite", "standard")),
    ):
        keeps = (*CERTIFICATE, "splatfix-report/appendix.md", "splatfix-report/appendix.tex")
        yield Case(f"certify/{label}.txt", (*words, *more), recorded="good", keeps=keeps)
    lab = str(INPUTS / "lab" / "run-000" / "certificate.json")
    yield Case("certify/baseline.txt", (*words, "--baseline", lab), recorded="good")
    for device in ("cpu", "auto", "cuda"):
        yield Case(
            f"verify/{device}.json", ("verify", "--device", device, *python, "--json"), recorded="good"
        )
        yield Case(f"verify/{device}.txt", ("verify", "--device", device, *python), recorded="good")
    stack = str(INPUTS / "checkouts" / "tiny_stack" / "stack")
    short = (stack, *cpu, *python, "--iterations", "3")
    # its page has curves of what was measured
    yield Case("rehearse/short.txt", ("rehearse", *short), keeps=CERTIFICATE[:2])
    yield Case("rehearse/words.json", ("rehearse", *short, "--json", "--", "--sh_degree", "0"))
    yield Case("rehearse/refused.json", ("rehearse", *short, "--json", "--", "--no_such_option"))
    yield Case("rehearse/certify.json", ("certify", "--repo", *short, "--json"))
    for key in ("2dgs", "nerfstudio", "gsplat"):
        stack = str(INPUTS / "checkouts" / f"stack-{key}" / "stack")
        yield Case(f"rehearse/{key}.json", ("rehearse", stack, *cpu, *python, "--json"))


WRONG: tuple[tuple[str, ...], ...] = (
    (),
    ("nonsense",),
    ("diagnose", "--nonsense"),
    ("diagnose", "--nonsense", "--json"),
    ("diagnose", "--target", "sm_1", "--json"),
    ("diagnose", "--target", "rtx5090"),
    ("diagnose", "--facts", "absent.json", "--json"),
    ("diagnose", "--facts", "absent.json", "--python", "x"),
    ("diagnose", "--python", "absent", "--json"),
    ("diagnose", "--repo", "absent", "--json"),
    ("diagnose", "--save", "absent/facts.json"),
    ("diagnose", "--only", "nonsense", "--json"),
    ("inspect", "absent.so", "--json"),
    ("inspect",),
    ("checks", "list"),
    ("checks", "list", "--json"),
    ("checks", "show", "no-kernel-image"),
    ("checks", "show", "no-kernel-image", "--json"),
    ("checks", "show", "nonsense", "--json"),
    ("install", "--keep", "torch", "--json"),
    ("install", "--dry-run", "--why", "--facts", "x", "--backend", "pure"),
    ("install", "--resume", ".", "--json"),
    ("install", "--resume", "--target", "sm_120"),
    ("install", "--jobs", "0"),
    ("install", "--backend", "nonsense", "--json"),
    ("install", "absent", "--dry-run", "--json"),
    ("install", "--dry-run", "--target", "sm_1", "--json"),
    ("revert", "x", "--all", "--json"),
    ("revert", "--list", "--all"),
    ("revert", "--list", "--json"),
    ("revert", "--json"),
    ("cache", "list", "--json"),
    ("cache", "list"),
    ("cache", "clear", "absent", "--yes", "--json"),
    ("verify", "--device", "nonsense"),
    ("certify", "--json", "--format", "junit"),
    ("certify", "--level", "9", "--json"),
    ("certify", "--level", "3", "--suite", "standard"),
    ("certify", "--suite", "nonsense", "--json"),
    ("certify", "--data", "absent", "--json"),
    ("certify", "--data", "absent", "--suite", "quick", "--json"),
    ("certify", "--baseline", "absent", "--json"),
    ("certify", "--baseline", "inria-3dgs", "--json"),
    ("certify", "--repo", "absent", "--json"),
    ("certify", "--repo", ".", "--suite", "quick", "--json"),
    ("certify", "--repo", ".", "--container", "cpu", "--json"),
    ("certify", "--scene", "fruit", "--json"),
    ("certify", "--container", "nonsense", "--json"),
    ("certify", "--container", "nonsense", "--dry-run"),
    ("certify", "--container", "cpu", "--dry-run"),
    ("certify", "--container", "cpu", "--dry-run", "--json"),
    ("certify", "--container", "cpu", "--python", "x"),
    ("certify", "--container", "cpu", "--sign", "x", "--json"),
    ("certify", "--exit-codes", "monitoring", "--suite", "nonsense"),
    ("certify", "--renderer", "gsplat", "--device", "cuda", "--json"),
    ("certify", "--sign", "absent", "--json"),
    ("certify", "--keep", "--json"),
    ("rehearse", "absent"),
    ("rehearse",),
    ("monitor",),
    ("monitor", "absent-program", "--json"),
    ("scenes", "list"),
    ("scenes", "list", "--json"),
    ("scenes", "check", "absent", "--json"),
    ("scenes", "export", "nonsense", "out", "--json"),
    ("lanes", "list"),
    ("lanes", "list", "--json"),
    ("report", "show", "absent", "--json"),
    ("report", "show", "absent", "--format", "nonsense"),
    ("report", "diff", "absent", "other"),
    ("report", "merge", "absent", "--json"),
    ("report", "verify", "absent", "--json"),
    ("report", "sign", "absent", "--json"),
    ("dockerfile", "--repo", "absent", "--target", "sm_120"),
    ("dockerfile", "--repo", "."),
    ("explain", "absent.log", "--json"),
    ("explain", "--list", "--jsonl"),
    ("--knowledge", "absent.toml", "checks", "list"),
    ("--version",),
)


def _commands() -> Iterator[Case]:
    import typer.main

    from splatfix.cli import app

    def walk(command: Any, words: tuple[str, ...]) -> Iterator[Case]:
        yield Case(f"help/{'-'.join(words) or 'splatfix'}.txt", (*words, "--help"))
        for name, below in getattr(command, "commands", {}).items():
            yield from walk(below, (*words, name))

    yield from walk(typer.main.get_command(app), ())
    for number, words in enumerate(WRONG):
        yield Case(f"wrong/{number:02}-{'-'.join(words)[:60].replace('/', '_')}.txt", words)


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "rehearse": _certificates,
    "machines": _machines,
    "checkouts": _checkouts,
    "explain": _explains,
    "driver": _facts,
    "reports": _reports,
    "help": _commands,
}


def _dump_one(work: tuple[Path, Case]) -> None:
    folder, case = work
    file = folder / case.name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(run(case) + "\n", encoding="utf-8", errors="backslashreplace")


def dump(folder: Path, only: str, one_in: int, jobs: int) -> None:
    """Every case's output as a file below ``folder``; of ``one_in`` cases one, always the same."""
    _load_results()
    every = [case for group in GROUPS.values() for case in group()]
    cases = [
        case
        for case in every
        if fnmatch.fnmatch(case.name, only) and zlib.crc32(case.name.encode()) % one_in == 0
    ]
    if folder.exists():
        shutil.rmtree(folder)
    folder = folder.absolute()
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=400) as pool:
        for _ in pool.imap_unordered(_dump_one, ((folder, case) for case in cases), chunksize=4):
            pass
    print(f"{len(cases)} cases in {folder}")


def diff(left: Path, right: Path, only: str, most: int) -> int:
    """Print what differs; 1 where anything does. Cases that only one side has are those that a dump was not asked for."""

    def files(folder: Path) -> dict[str, str]:
        paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
        texts = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}
        return {name: text for name, text in texts.items() if fnmatch.fnmatch(name, only)}

    old, new = files(left), files(right)
    both = sorted({*old} & {*new})
    # again, for the masks that came after a dump
    differing = [name for name in both if _masked(old[name]) != _masked(new[name])]
    for name in differing[:most]:
        before, after = old[name], new[name]
        lines = difflib.unified_diff(
            before.splitlines(), after.splitlines(), f"a/{name}", f"b/{name}", lineterm="", n=1
        )
        print("\n".join(line[:300] for line in list(lines)[:60]))
    if len(differing) > most:
        print("and", *differing[most:], sep="\n  ")
    print(f"{len(differing)} of {len(both)} cases differ")
    return int(bool(differing))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="*", help="cases whose name matches, such as 'certify/*'")
    parser.add_argument("--one-in", type=int, default=1, help="dump one case of so many, always the same")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--most", type=int, default=20, help="differing cases that are shown whole")
    parser.add_argument("what", choices=("dump", "diff"))
    parser.add_argument("folders", type=Path, nargs="+")
    asked = parser.parse_args()
    if asked.what == "diff":
        return diff(asked.folders[0], asked.folders[1], asked.only, asked.most)
    dump(asked.folders[0], asked.only, asked.one_in, asked.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
