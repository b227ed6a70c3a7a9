"""Runs a certification: kernels and trainer as children of the target environment, then the verdict."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import splatfix
from splatfix.certify import criteria, levels, run_levels
from splatfix.certify.advice import advised
from splatfix.certify.baseline import compare
from splatfix.certify.cause import explained
from splatfix.certify.gpu import gpu_record
from splatfix.certify.interim import InterimReports, incomplete, so_far
from splatfix.certify.kernels import check_kernels
from splatfix.certify.model import (
    Certificate,
    Criterion,
    KernelCheck,
    Outcome,
    Request,
    SceneRun,
    Verdict,
)
from splatfix.certify.prerequisites import (
    VERIFY_NEEDS,
    idle_gpu,
    require_device,
    require_packages,
    require_visible_gpu,
)
from splatfix.certify.repeat import repeats
from splatfix.certify.resources import no_cuda_error
from splatfix.certify.run_levels import FULL, TRAINS_FROM
from splatfix.certify.trainer import (
    FINISHED,
    child_variables,
    ended_early,
    sentences,
    source_digests,
    stage,
)
from splatfix.checks import run_checks
from splatfix.context import Goal, make_context
from splatfix.core.errors import usage_error
from splatfix.core.files import make_folder, set_aside
from splatfix.core.runner import Completed, ProcessRunner, Runner
from splatfix.core.scratch import temporary_folder
from splatfix.core.step import say
from splatfix.core.visible import visible
from splatfix.core.words import counted
from splatfix.facts import Facts, gather

MAX_IMAGES = 4
"""Per scene, in the report."""
_OURS = ("cuda_oom_runtime",)
"""Classes whose cure is an option of the smoke trainer, which other trainers do not have."""

REPORT_FILES = (
    *(f"certificate.{kind}" for kind in ("json", "md", "html", "intoto.jsonl")),
    "appendix.md",
    "appendix.tex",
    "container.json",
    "container.log",
    "image-build.log",
)
"""Those of a report that do not belong to a scene."""
_TRAINING_LOG = "trainer.log"
"""In the folder of every scene that was begun."""

Progress = Callable[[str, Mapping[str, Any]], None]
"""Called with what runs now (scene or stage) and the trainer's own progress object."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM during a certification, with a message that names partial results.

    Attributes:
        certificate: of the scenes that were trained, and the facts; None where it had not come to one.
    """

    def __init__(
        self,
        out: Path | None = None,
        scenes: tuple[str, ...] = (),
        certificate: tuple[Certificate, Facts] | None = None,
    ) -> None:
        message = "Interrupted: nothing was certified."
        if scenes:
            message += f" Partial results of {', '.join(scenes)} are in {out}."
        super().__init__(visible(message))
        self.certificate = certificate

    def add(self, *sentences: str) -> None:
        """Say more about what is left behind."""
        self.args = (" ".join((str(self), *map(visible, sentences))),)


def certify(
    request: Request,
    progress: Progress = lambda where, state: None,
    facts: Facts | None = None,
    *,
    interim: Callable[[Certificate, Facts], object] = lambda certificate, facts: None,
    runner: Runner | None = None,
    stage_files: Callable[[Path], Path] = stage,
) -> tuple[Certificate, Facts]:
    """Certify one environment.

    Args:
        facts: of this machine and environment, where they are gathered already.
        interim: takes the certificate as it is after the kernels, after each scene, and now and then within one.
        stage_files: puts trainer and kernels into a folder and returns the PYTHONPATH entry.

    Raises:
        SplatfixError: ``environment-not-ready`` or ``no-gpu`` (exit code 3), ``not-our-folder`` (2), ``cannot-write``.
        Interrupted: Ctrl-C or SIGTERM.
    """
    started = time.monotonic()
    processes = runner or ProcessRunner()
    begun: list[str] = []
    runs: list[SceneRun] = []
    kernels: tuple[KernelCheck, ...] = ()
    sources: dict[str, str] = {}

    def conclude(known: Facts, *, whole: bool) -> Certificate:
        seconds = round(time.monotonic() - started, 1)
        certificate = _conclude(request, known, kernels, tuple(runs), seconds, whole=whole)
        if reports is not None and (told := reports.under_way.get("run")):
            begun_run = SceneRun(str(reports.under_way.get("where")), (), 0.0, told)
            certificate = replace(
                certificate, environment=environment_of(known, (*runs, begun_run), request.device)
            )
        return replace(certificate, sources=sources)

    scenes = request.suite.scenes
    reports: InterimReports | None = None
    _commit()  # kept: after an interrupt no program is started any more
    try:
        progress("environment", {})
        facts = facts or gather(request.python)
        require_packages(facts, request.python, "certify", run_levels.NEEDS[request.level or FULL])
        if request.level == 1:
            require_visible_gpu(request.device, facts)
            make_room(request.out, ())
            return conclude(facts, whole=True), facts
        with temporary_folder() as folder:
            staged = stage_files(folder)
            sources = source_digests(staged)
            variables = child_variables(staged)
            progress("kernels", {})
            kernels = check_kernels(processes, request.python, request.device, folder, variables)
            require_device(kernels, request.device)
            make_room(request.out, scenes)
            known = facts
            reports = InterimReports(
                scenes,
                lambda: conclude(known, whole=False),
                lambda certificate: interim(certificate, known),
            )
            if scenes:
                reports.settled()
            for number, scene in enumerate(scenes, 1):
                told = _told(progress, reports, {"scene": number, "scenes": len(scenes)})
                begun.append(scene)
                told(scene, {})
                run = _train(processes, request, scene, variables, told)
                if not runs and run.result.get("status") == "ok":
                    told(f"{scene}, again", {})
                    judged = repeats(
                        processes,
                        _trainer_argv(request, scene),
                        request.suite,
                        request.device,
                        request.out / scene,
                        folder / "again",
                        variables,
                    )
                    run = replace(run, criteria=(*run.criteria, judged))
                judged_run = (advised(item, request.renderer, request.device) for item in run.criteria)
                runs.append(replace(run, criteria=tuple(judged_run)))
                reports.settled()
    except KeyboardInterrupt:
        partial = None
        if facts is not None and reports is not None and begun:
            base = conclude(facts, whole=False)
            partial = incomplete(base, scenes, reports.under_way, interrupted=True), facts
        raise Interrupted(request.out, tuple(begun), partial) from None
    return conclude(facts, whole=True), facts


def _told(progress: Progress, reports: InterimReports, place: Mapping[str, int]) -> Progress:
    """Progress of one scene, which is the ``scene``-th of ``scenes``, for who watches and for the report."""

    def told(where: str, state: Mapping[str, Any]) -> None:
        progress(where, {**state, **place})
        reports.training(where, {**state, **place})

    return told


def _conclude(
    request: Request,
    facts: Facts,
    kernels: tuple[KernelCheck, ...],
    scenes: tuple[SceneRun, ...],
    seconds: float,
    *,
    whole: bool,
) -> Certificate:
    """Levels and verdict of what was run; never certified unless that is the whole suite."""
    # judged for the GPU that trained; any other in the machine says nothing about it
    goal = Goal(device="" if request.device == "cpu" else request.device)
    findings = run_checks(make_context(facts, goal))
    comparison = compare(scenes, request.baseline, request.published)
    built = levels.built_for(facts, request.targets, request.device)
    proof = levels.evaluate(findings, kernels, scenes, comparison, request.renderer, request.device, built)
    if not whole:
        proof = so_far(proof, len(scenes), len(request.suite.scenes))
    proof = run_levels.only_of_level(proof, request.level)
    diagnosis = () if request.level is None else run_levels.diagnosed(findings, request.device)
    reasons = levels.failures(kernels, scenes, proof, diagnosis)
    left_open = run_levels.left_open(request, diagnosis, kernels)
    verdict = Verdict.CERTIFIED
    if reasons:
        verdict = Verdict.NOT_CERTIFIED
    elif not whole or left_open or any(run.unreadable or run.passed is None for run in scenes):
        verdict = Verdict.UNDETERMINED
    passed = {Verdict.CERTIFIED: True, Verdict.NOT_CERTIFIED: False}.get(verdict)
    idle = idle_gpu(facts, request.device)
    if request.level is not None and request.level < TRAINS_FROM:
        summary = f"It is undetermined, because of {'; '.join(left_open)}." if passed is None else ""
        summary = f"{summary} {idle}"
    else:
        summary = levels.summarize(verdict, proof, request, scenes, idle, left_open)
    summary = f"{run_levels.told(request, diagnosis, passed)} {summary}".strip()
    return Certificate(
        verdict=verdict,
        summary=summary,
        reasons=reasons,
        suite=request.suite.name,
        renderer=request.renderer,
        device=request.device,
        proof=proof,
        kernels=kernels,
        scenes=scenes,
        environment=environment_of(facts, scenes, request.device),
        repeat=request.command,
        issued=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        seconds=seconds,
        skipped=request.suite.skipped,
        comparison=comparison,
        level=request.level,
        diagnosis=diagnosis,
    )


def verify(
    python: str,
    device: str,
    *,
    facts: Facts | None = None,
    runner: Runner | None = None,
    stage_files: Callable[[Path], Path] = stage,
) -> tuple[KernelCheck, ...]:
    """Compare every implementation of SSIM, kNN and rasterizer in an environment, ours and the stack's, with float64.

    Raises:
        SplatfixError: ``environment-not-ready`` (exit code 3) when the environment lacks torch.
    """
    require_packages(facts or gather(python), python, "verify", VERIFY_NEEDS)
    with temporary_folder() as folder:
        variables = child_variables(stage_files(folder))
        return check_kernels(runner or ProcessRunner(), python, device, folder, variables)


def make_room(out: Path, scenes: tuple[str, ...]) -> None:
    """An empty report folder; an earlier report moves to ``previous``, with the folders of all its scenes.

    Raises:
        SplatfixError: ``cannot-write``; ``not-our-folder`` (exit code 2) where a scene's folder exists and holds
            something else than an earlier report: it may be the user's data.
    """
    make_folder(out)
    for folder in (out / name for name in scenes):
        ours = folder.is_dir() and ((folder / _TRAINING_LOG).is_file() or not any(folder.iterdir()))
        if folder.exists() and not ours:
            raise usage_error(
                "not-our-folder",
                f"{folder} exists, and is not the report of an earlier certification.",
                say("Choose another folder with --out."),
            )
    set_aside(out, (*REPORT_FILES, *dict.fromkeys((*scenes, *_trained_in(out)))))


def _trained_in(out: Path) -> list[str]:
    """The folders of scenes in a report folder, whichever suite they are of; none where there is no report."""
    if not (out / "certificate.json").is_file():
        return []
    return sorted(log.parent.name for log in out.glob(f"*/{_TRAINING_LOG}"))


def _train(
    runner: Runner, request: Request, scene: str, variables: Mapping[str, str], progress: Progress
) -> SceneRun:
    folder = make_folder(request.out / scene)
    argv = [*_trainer_argv(request, scene), "--out", str(folder), "--json-progress"]

    latest: dict[str, Any] = {}

    def on_line(line: str) -> None:
        if line.startswith("{"):
            try:
                said = json.loads(line)
            except ValueError:
                return  # only looks like JSON; it is in the log
            if said.get("event") == "progress":
                latest.update(said)
                progress(scene, latest)

    started = time.monotonic()
    done = runner.run(
        argv,
        timeout=request.suite.timeout,
        env=variables,
        cwd=folder,
        on_line=on_line,
        log=folder / _TRAINING_LOG,
    )
    seconds = round(time.monotonic() - started, 1)
    result = _read_result(folder)
    judged, unreadable = _judge(request, result, done, latest)
    images = sorted(path.relative_to(request.out).as_posix() for path in folder.glob("renders/**/*.png"))
    return SceneRun(
        scene, judged, seconds, result, tuple(images[:MAX_IMAGES]), f"{scene}/{_TRAINING_LOG}", unreadable
    )


def _trainer_argv(request: Request, scene: str) -> list[str]:
    argv = [request.python, "-m", "smoke_trainer", *request.suite.trainer_arguments(scene)]
    return [*argv, "--renderer", request.renderer, "--device", request.device, "--seed", str(request.seed)]


def _judge(
    request: Request, result: Mapping[str, Any], done: Completed, latest: Mapping[str, Any]
) -> tuple[tuple[Criterion, ...], str]:
    """The criteria of one run, and the loader's error where a scene of the user's could not be read.

    Args:
        latest: the trainer's last progress object.
    """
    error = result.get("error")
    said = sentences(error) if isinstance(error, Mapping) else ""
    output = f"{done.stdout}\n{done.stderr}\n{said}"
    cuda = tuple(
        explained(item, output, own=_OURS)
        for item in no_cuda_error(f"{done.stdout}\n{done.stderr}", request.device)
    )
    if "iterations" not in result and any(item.outcome is Outcome.FAILED for item in cuda):
        return cuda, ""
    if isinstance(error, Mapping):
        # a bundled scene that cannot be read is our failure
        if request.suite.data is not None and error.get("code") == "unreadable-scene":
            return (Criterion("scene-readable", Outcome.NOT_MEASURED, said, "a readable scene"),), said
        return (
            explained(Criterion("training-finishes", Outcome.FAILED, said, FINISHED), output, own=_OURS),
        ), ""
    if "iterations" in result:
        return (*criteria.judge(result, request.renderer, request.suite.iterations), *cuda), ""
    return (explained(ended_early(done, latest), output, own=_OURS),), ""


def _read_result(folder: Path) -> dict[str, Any]:
    try:
        document = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def environment_of(facts: Facts, scenes: tuple[SceneRun, ...], device: str) -> dict[str, str]:
    """Versions of everything that ran, and the hardware."""
    interpreter, torch = facts.environment.interpreter.value, facts.environment.torch.value
    found = {
        "splatfix": f"{splatfix.__version__}{_commit()}",
        "system": f"{facts.machine.distribution or facts.machine.system} {facts.machine.machine}",
        "python": interpreter.version if interpreter else "unknown",
        "torch": torch.version if torch else "unknown",
        **gpu_record(facts, device, scenes),
    }
    for run in scenes:
        about = run.result.get("machine", {})
        if about.get("cpu"):
            found["CPU"] = (
                f"{about['cpu']}, {counted(about['cores'], 'core')}, {counted(about['threads'], 'thread')}"
            )
        if about.get("memory"):
            found["memory"] = f"{about['memory'] / 2**30:.1f} GiB"
        for part, engine in dict(run.result.get("implementations", {})).items():
            if isinstance(engine, Mapping):
                keys = ("name", "version", "engine")
                found[part] = " ".join(str(engine[key]) for key in keys if engine.get(key))
    return found


@cache
def _commit() -> str:
    """`` (commit 1a2b3c4)`` where splatfix runs from a clone of itself; "" where it is installed."""
    root = Path(splatfix.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return ""
    done = ProcessRunner().run(["git", "-C", str(root), "rev-parse", "--short", "HEAD"], timeout=10.0)
    return f" (commit {done.stdout.strip()})" if done.ok else ""
