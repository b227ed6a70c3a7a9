"""Certifies a stack's own trainer: runs it, its rendering and its metrics as children of the target environment, and judges it.

On a GPU it runs as it is. Without one it is rehearsed: calls for CUDA land on the CPU, drop-ins serve its extensions.
"""

from __future__ import annotations

import datetime
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from splatfix.certify.levels import level_resolved
from splatfix.certify.model import Certificate, Criterion, Mend, Outcome, SceneRun, TestedStack, Verdict
from splatfix.certify.run import MAX_IMAGES, Interrupted, Progress, environment_of, make_room
from splatfix.certify.scene_layout import scene_problems
from splatfix.certify.stack_child import Inside, copy_scene, stage_inside, training_words
from splatfix.certify.stack_criteria import judge_stack
from splatfix.certify.stack_result import read_observed, result_of
from splatfix.certify.trainer import child_variables, stage
from splatfix.checks import run_checks
from splatfix.context import Goal, make_context
from splatfix.core.errors import Exit, SplatfixError, usage_error
from splatfix.core.files import make_folder, write_json
from splatfix.core.proof import Rung, RungName
from splatfix.core.runner import Completed, ProcessRunner, Runner
from splatfix.core.scratch import temporary_folder
from splatfix.core.step import Command, fill_in, say
from splatfix.core.words import counted
from splatfix.facts import Facts, read_arguments

TRAIN, RENDER, METRICS = "train.py", "render.py", "metrics.py"
ITERATIONS, GPU_ITERATIONS = 120, 1000
"""Without a GPU: the prototype's, after which each of six trainers had a loss below half of its first."""
TIMEOUT, GPU_TIMEOUT = 3600.0, 4 * 3600.0
_LEAST_TIMEOUT = 600.0
_NOTHING_OF_CUDA = "a rehearsal on the CPU shows nothing about CUDA"


@dataclass(frozen=True)
class StackRequest:
    """What to certify, as the rooms on the left prepared it."""

    python: str
    checkout: Path
    source: Path
    """What is run: the checkout, or a scratch copy that was mended."""
    name: str
    key: str
    """Of the stack in the tables; "" where it is none of them."""
    remote: str
    commit: str
    scene: Path
    out: Path
    device: str
    iterations: int
    resolution: int | None = None
    images: str = ""
    extensions: tuple[str, ...] = ()
    dropins: Path | None = None
    """A folder with them, to be searched first."""
    dropin_names: tuple[str, ...] = ()
    placeholders: tuple[str, ...] = ()
    standins: tuple[str, ...] = ()
    mends: tuple[Mend, ...] = ()
    extra: tuple[str, ...] = ()
    """The user's own words for train.py."""
    repeat: Command = field(default_factory=lambda: Command(()))

    @property
    def rehearsed(self) -> bool:
        """On the CPU."""
        return self.device == "cpu"


def certify_stack(
    request: StackRequest,
    facts: Facts,
    progress: Progress = lambda where, state: None,
    *,
    runner: Runner | None = None,
) -> Certificate:
    """Run the trainer and judge it. Nothing is written into the checkout or the scene.

    Raises:
        SplatfixError: ``no-trainer`` or ``not-our-folder`` (exit code 2), ``no-length`` (3), ``cannot-write``.
        Interrupted: Ctrl-C or SIGTERM.
    """
    if not (request.source / TRAIN).is_file():
        raise usage_error(
            "no-trainer",
            f"{request.checkout} has no {TRAIN}.",
            say("Give the folder of a stack whose trainer is called so, or certify the environment alone."),
        )
    started = time.monotonic()
    try:
        with temporary_folder() as folder:
            run, words, missing = _Run(request, runner or ProcessRunner(), folder, progress).all()
    except KeyboardInterrupt:
        raise Interrupted from None
    return _conclude(request, facts, run, words, missing, round(time.monotonic() - started, 1))


class _Run:
    """The children of one certification, in a temporary folder."""

    def __init__(self, request: StackRequest, runner: Runner, folder: Path, progress: Progress) -> None:
        self.request, self.runner, self.folder, self.progress = request, runner, folder, progress
        self.scene = request.scene.name
        make_room(request.out, (self.scene,))
        self.report = make_folder(request.out / self.scene)
        self.model = folder / "model"
        self.inside = Inside(
            request.source, request.rehearsed, request.extensions, request.placeholders, request.standins
        )
        self.weights: dict[str, None] = {}
        """Those that could not be had, with the script that asked: LPIPS of train.py and of metrics.py."""
        self.timeout = TIMEOUT if request.rehearsed else GPU_TIMEOUT

    def all(self) -> tuple[SceneRun, tuple[str, ...], tuple[str, ...]]:
        """Train, render, measure; the run, the words of its command, and the weights that could not be had."""
        started = time.monotonic()
        request, iterations = self.request, self.request.iterations
        arguments = read_arguments(request.source, TRAIN)
        copy = copy_scene(request.scene, self.folder / self.scene)
        words = training_words(
            arguments,
            request.key,
            copy,
            self.model,
            iterations,
            request.resolution,
            request.images,
            request.extra,
        )
        if "iterations" not in arguments and not request.extra:
            raise _no_length(request)
        problems = scene_problems(request.source, request.scene, request.images)
        done, observed = self.child(TRAIN, words, "trainer.log")
        others: dict[str, Completed] = {}
        if done.ok:
            others.update(self.render(iterations))
            if (request.source / METRICS).is_file() and others.get("rendering", done).ok:
                others["metrics"], _ = self.child(METRICS, ["-m", str(self.model)], "metrics.log")
        measured = self.measure(iterations)
        quality = {name: row for name, row in measured.items() if not name.isdigit()}
        saves = {int(name): row for name, row in measured.items() if name.isdigit()}
        result = result_of(observed, done, iterations, quality, saves)
        judged = judge_stack(result, done, request.extensions, request.mends, others, problems)
        images = sorted(
            path.relative_to(request.out).as_posix() for path in self.report.glob("renders/**/*.png")
        )
        write_json(self.report / "result.json", result)
        seconds = round(time.monotonic() - started, 1)
        run = SceneRun(
            self.scene, judged, seconds, result, tuple(images[:MAX_IMAGES]), f"{self.scene}/trainer.log"
        )
        places = {str(copy): "SCENE", str(self.model): "MODEL"}
        return run, tuple(places.get(word, word) for word in words), tuple(self.weights)

    def child(self, script: str, words: list[str], log: str) -> tuple[Completed, dict[str, Any]]:
        """Run one script of the checkout to its end; how it ended, and what was observed."""
        request, name = self.request, Path(script).stem
        self.progress(f"{self.scene}: {script}", {})
        seen = make_folder(self.folder / f"observed-{name}-{log}")
        variables = stage_inside(make_folder(self.folder / "inside"), self.inside, seen, request.dropins)
        done = self.runner.run(
            [request.python, str(request.source / script), *words],
            timeout=self.timeout,
            env=variables,
            cwd=make_folder(self.folder / "work"),
            on_line=lambda line: None,
            log=self.report / log,
        )
        kept = {"metrics.jsonl": "metrics.jsonl", "inside.txt": "observer.log"}
        for name, copy in kept.items() if script == TRAIN else ():
            if (seen / name).is_file():
                shutil.copyfile(seen / name, self.report / copy)
        observed = read_observed(seen, script)
        self.weights.update(dict.fromkeys(f"{script}: {text}" for text in observed.get("weights", ())))
        return done, observed

    def render(self, iterations: int) -> dict[str, Completed]:
        """The test views after the first iteration and the last, and the training views after the last."""
        if not (self.request.source / RENDER).is_file():
            return {}
        known = read_arguments(self.request.source, RENDER)
        found: dict[str, Completed] = {}
        words = ["-m", str(self.model)]
        if "iteration" in known and self.cloud(1):
            skip = ["--skip_train"] if "skip_train" in known else []
            first, _ = self.child(RENDER, [*words, "--iteration", "1", *skip], "render-first.log")
            if not first.ok:
                found["rendering"] = first
                return found
        last = ["--iteration", str(iterations)] if "iteration" in known else []
        found["rendering"], _ = self.child(RENDER, [*words, *last], "render.log")
        return found

    def cloud(self, iteration: int) -> Path | None:
        """The point cloud that was saved at an iteration."""
        return next(iter(sorted(self.model.glob(f"point_cloud/iteration_{iteration}/*.ply"))), None)

    def measure(self, iterations: int) -> dict[str, dict[str, Any]]:
        """Our own metric of the renderings, and what the point clouds hold, each by the name it has in a result."""
        images = {
            name: {"renders": str(pair[0]), "gt": str(pair[1]), "previews": previews}
            for name, kind, number, previews in (
                ("initial_heldout", "test", 1, None),
                ("heldout", "test", iterations, str(self.report / "renders" / "heldout")),
                ("training_views", "train", iterations, None),
            )
            if (pair := self.pair(kind, number))
        }
        clouds = {str(number): str(path) for number in (1, iterations) if (path := self.cloud(number))}
        if not images and not clouds:
            return {}
        self.progress(f"{self.scene}: comparing", {})
        staged = stage(make_folder(self.folder / "compare"))
        script, asked, answer = (
            staged / "compare_renders.py",
            self.folder / "asked.json",
            self.folder / "answer.json",
        )
        shutil.copyfile(Path(__file__).with_name("compare_renders.py"), script)
        write_json(asked, {"images": images, "clouds": clouds})
        done = self.runner.run(
            [self.request.python, str(script), str(asked), str(answer)],
            timeout=_LEAST_TIMEOUT,
            env=child_variables(staged),
        )
        if not done.ok:
            return {name: {"error": done.why()} for name in (*images, *clouds)}
        found: dict[str, dict[str, Any]] = json.loads(answer.read_text(encoding="utf-8"))
        return found

    def pair(self, kind: str, iteration: int) -> tuple[Path, Path] | None:
        """The folders of renderings and ground truth of an iteration: ``test/ours_7000/renders`` and ``gt`` in Inria's family,
        ``test_preds_1`` and ``gt_1`` in Mip-Splatting's."""
        for folder in sorted(self.model.glob(f"{kind}/*_{iteration}")):
            places = [
                place for place in sorted(folder.iterdir()) if place.is_dir() and any(place.glob("*.png"))
            ]
            truth = next((place for place in places if place.name.startswith("gt")), None)
            names = {path.name for path in truth.glob("*.png")} if truth else set()
            for place in places:
                same = {path.name for path in place.glob("*.png")} == names
                if truth and same and ("render" in place.name or "pred" in place.name):
                    return place, truth
        return None


def _no_length(request: StackRequest) -> SplatfixError:
    return SplatfixError(
        "no-length",
        f"{request.checkout / TRAIN} has no option --iterations that could be read.",
        meaning="It would train as long as it does by default: it was not run.",
        todo=(
            fill_in(
                *("splatfix", "rehearse", str(request.checkout), "--", "--OPTION", "100"),
                text="Name its own option for the length",
            ),
        ),
        exit_code=Exit.UNDETERMINED,
    )


def _conclude(
    request: StackRequest,
    facts: Facts,
    run: SceneRun,
    words: tuple[str, ...],
    weights: tuple[str, ...],
    seconds: float,
) -> Certificate:
    proof = tuple(_levels(request, facts, run))
    failed = [item for item in run.criteria if item.outcome is Outcome.FAILED]
    reasons = tuple(f"{item.code}: {item.measured.rstrip('.')}. {item.why}".rstrip() for item in failed)
    verdict = Verdict.REHEARSED if request.rehearsed else Verdict.CERTIFIED
    if reasons:
        verdict = Verdict.NOT_CERTIFIED
    elif run.passed is None:
        verdict = Verdict.UNDETERMINED
    stack = TestedStack(
        name=request.name,
        folder=str(request.checkout),
        remote=request.remote,
        commit=request.commit,
        command=Command((request.python, str(request.checkout / TRAIN), *words)),
        rehearsed=request.rehearsed,
        dropins=request.dropin_names,
        mends=request.mends,
        weights=weights,
    )
    return Certificate(
        verdict=verdict,
        summary=_summary(verdict, request, run, proof),
        reasons=reasons,
        suite=run.scene,
        renderer=", ".join(request.extensions) or "its own",
        device=request.device,
        proof=proof,
        kernels=(),
        scenes=(
            replace(run, result={**run.result, "notes": [*run.result.get("notes", ()), *_notes(weights)]}),
        ),
        environment={
            **environment_of(facts, (run,), request.device),
            "stack": ", ".join(filter(None, (request.name, request.remote, request.commit))),
            "training": stack.command.shell(windows=False),
            **({"drop-ins": ", ".join(request.dropin_names)} if request.dropin_names else {}),
        },
        repeat=request.repeat,
        issued=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        seconds=seconds,
        stack=stack,
    )


def _notes(weights: tuple[str, ...]) -> list[str]:
    if not weights:
        return []
    return [f"pretrained weights could not be loaded, random ones took their place: {'; '.join(weights)}"]


def _levels(request: StackRequest, facts: Facts, run: SceneRun) -> Iterator[Rung]:
    goal = Goal(device="" if request.rehearsed else request.device)
    yield level_resolved(run_checks(make_context(facts, goal)), request.device)
    natives = [name for name in request.extensions if not request.rehearsed]
    yield Rung(
        RungName.BUILT,
        None,
        f"not looked at: {', '.join(natives)}" if natives else "drop-ins ran, in plain PyTorch",
        needed=bool(natives),
    )
    ran = sorted(name for name, row in run.result.get("implementations", {}).items() if "module" in row)
    yield Rung(
        RungName.LOADS,
        bool(ran),
        f"imported and called: {', '.join(ran)}" if ran else "no extension was called",
    )
    trained = _trained(run)
    if request.rehearsed:
        yield Rung(RungName.REHEARSED, *trained)
        above = _NOTHING_OF_CUDA
        yield Rung(RungName.COMPUTES, None, above)
        yield Rung(RungName.TRAINS, None, above)
    else:
        yield Rung(RungName.REHEARSED, None, "it ran on the GPU", needed=False)
        yield Rung(
            RungName.COMPUTES, None, "kernels were not compared with references; splatfix verify does that"
        )
        yield Rung(RungName.TRAINS, *trained)
    yield Rung(RungName.REPRODUCES, None, "no baseline to compare with")


def _trained(run: SceneRun) -> tuple[bool | None, str]:
    failed = [item.code for item in run.criteria if item.outcome is Outcome.FAILED]
    if failed:
        return False, f"criteria failed: {', '.join(failed)}"
    if run.passed is None:
        return None, f"{_open(run)}: {counted(run.result.get('iterations') or 0, 'iteration')}"
    psnr = run.result.get("heldout", {}).get("psnr")
    quality = "held-out quality was not measured" if psnr is None else f"held-out PSNR {psnr:.2f} dB"
    return (
        True,
        f"{counted(run.result['iterations'], 'iteration')} of its own trainer on {run.scene}; {quality}",
    )


def _summary(verdict: Verdict, request: StackRequest, run: SceneRun, proof: tuple[Rung, ...]) -> str:
    what = f"{request.name}'s own trainer"
    done = counted(run.result.get("iterations") or 0, "iteration")
    how = "was rehearsed on the CPU" if request.rehearsed else f"ran on {request.device}"
    last = " CUDA and its kernels were not verified." if request.rehearsed else ""
    if verdict is Verdict.NOT_CERTIFIED:
        failed = counted(sum(item.outcome is Outcome.FAILED for item in run.criteria), "criterion")
        failed = failed.replace("criterions", "criteria")
        return f"{what} {how} for {done}, and does not pass: {failed} failed.{last}"
    if verdict is Verdict.UNDETERMINED:
        return f"{what} {how} for {done}, {_open(run)}.{last}"
    unmeasured = _unmeasured(run.criteria)
    return f"{what} {how} for {done} on {run.scene}, and meets every criterion that was measured ({unmeasured}).{last}"


def _open(run: SceneRun) -> str:
    """Why a run without a failure is no success."""
    seen = next((item for item in run.criteria if item.code == "observed"), None)
    if seen is None or seen.outcome is Outcome.MET:
        return "too short to judge"
    return f"and could not be observed ({seen.measured})"


def _unmeasured(criteria: tuple[Criterion, ...]) -> str:
    met = sum(item.outcome is Outcome.MET for item in criteria)
    return f"{met} met, {len(criteria) - met} not measured"
