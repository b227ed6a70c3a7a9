"""Certifies a stack's own trainer: runs it, its rendering and its metrics as children of the target environment, and judges it.

On a GPU it runs as it is. Without one it is rehearsed: calls for CUDA land on the CPU, drop-ins serve its extensions.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from splatfix.certify.interim import InterimReports, incomplete
from splatfix.certify.model import Certificate, Mend, SceneRun
from splatfix.certify.resources import no_cuda_error
from splatfix.certify.run import MAX_IMAGES, Interrupted, Progress, make_room
from splatfix.certify.scene_layout import scene_problems
from splatfix.certify.stack_certificate import TRAIN, StackRequest, Started, conclude
from splatfix.certify.stack_child import Inside, copy_scene, stage_inside, training_words
from splatfix.certify.stack_criteria import judge_stack
from splatfix.certify.stack_progress import following
from splatfix.certify.stack_result import read_observed, result_of
from splatfix.certify.threads import VARIABLE
from splatfix.certify.trainer import child_variables, stage
from splatfix.core.errors import Exit, SplatfixError, usage_error
from splatfix.core.files import make_folder, write_json
from splatfix.core.runner import Completed, ProcessRunner, Runner
from splatfix.core.scratch import temporary_folder
from splatfix.core.step import fill_in, say
from splatfix.core.words import few
from splatfix.facts import Facts, read_arguments

RENDER, METRICS = "render.py", "metrics.py"
ITERATIONS, GPU_ITERATIONS = 120, 1000
"""Without a GPU: the prototype's, after which each of six trainers had a loss below half of its first."""
TIMEOUT, GPU_TIMEOUT = 3600.0, 4 * 3600.0
_LEAST_TIMEOUT = 600.0
PICKLES = "torch-load-pickles"
"""Of the finding of a file of pickled objects that torch refuses."""
_KEPT = {"metrics.jsonl": "metrics.jsonl", "inside.txt": "observer.log"}
"""What the observer writes, and what it is called in the report."""


def certify_stack(
    request: StackRequest,
    facts: Facts,
    progress: Progress = lambda where, state: None,
    *,
    interim: Callable[[Certificate], object] = lambda certificate: None,
    runner: Runner | None = None,
) -> Certificate:
    """Run the trainer and judge it. Nothing is written into the checkout or the scene.

    Args:
        interim: takes the certificate of a run that goes on, now and then: one that is killed leaves the latest.

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
    began, name = time.monotonic(), request.scene.name
    with temporary_folder() as folder:
        running = _Run(request, runner or ProcessRunner(), folder, progress)

        def certificate(run: SceneRun | None = None) -> Certificate:
            return conclude(request, facts, run, running.started, round(time.monotonic() - began, 1))

        def write(certified: Certificate) -> None:
            running.keep()
            interim(certified)

        running.reports = reports = InterimReports((name,), certificate, write)
        try:
            reports.settled()
            return certificate(running.all())
        except KeyboardInterrupt:
            running.keep()
            stopped = incomplete(certificate(), (name,), reports.under_way, interrupted=True)
            raise Interrupted(request.out, (name,), (stopped, facts)) from None


class _Run:
    """The children of one certification, in a temporary folder."""

    def __init__(self, request: StackRequest, runner: Runner, folder: Path, progress: Progress) -> None:
        self.request, self.runner, self.folder, self.progress = request, runner, folder, progress
        self.scene = request.scene.name
        self.model = folder / "model"
        self.inside = Inside(
            request.source,
            request.rehearsed,
            request.extensions,
            request.placeholders,
            request.standins,
            (self.model, folder / "work") if request.rehearsed else (),
            request.needed if request.rehearsed else (),
        )
        copy = copy_scene(request.scene, folder / self.scene)
        arguments = read_arguments(request.source, TRAIN)
        if "iterations" not in arguments and not request.extra:
            raise _no_length(request)
        self.words = training_words(
            arguments,
            request.key,
            copy,
            self.model,
            request.iterations,
            request.resolution,
            request.images,
            request.extra,
        )
        places = {str(copy): "SCENE", str(self.model): "MODEL"}
        self.started = Started(tuple(places.get(word, word) for word in self.words))
        self.errors: dict[str, Any] = {}
        """The exceptions that ended render.py or metrics.py, as the observer describes them."""
        self.reports: InterimReports | None = None
        self.seen: Path | None = None
        """Where train.py's observer writes."""
        self.timeout = TIMEOUT if request.rehearsed else GPU_TIMEOUT
        make_room(request.out, (self.scene,))
        self.report = make_folder(request.out / self.scene)

    def tell(self, where: str, state: Mapping[str, Any]) -> None:
        """Who watches, and the report, of what runs now."""
        self.progress(where, state)
        if self.reports:
            self.reports.training(where, state)

    def keep(self) -> None:
        """Put what the observer of train.py has written so far into the report."""
        for name, copy in _KEPT.items() if self.seen else ():
            assert self.seen is not None
            if (self.seen / name).is_file():
                shutil.copyfile(self.seen / name, self.report / copy)

    def all(self) -> SceneRun:
        """Train, render, measure."""
        started = time.monotonic()
        request, iterations = self.request, self.request.iterations
        problems = scene_problems(request.source, request.scene, request.images)
        done, observed = self.child(TRAIN, self.words, "trainer.log")
        others: dict[str, Completed] = {}
        if done.ok:
            others.update(self.render(iterations))
            if (request.source / METRICS).is_file() and others.get("rendering", done).ok:
                others["metrics"], _ = self.child(METRICS, ["-m", str(self.model)], "metrics.log")
        measured = self.measure(iterations)
        quality = {name: row for name, row in measured.items() if not name.isdigit()}
        saves = {int(name): row for name, row in measured.items() if name.isdigit()}
        result = {**result_of(observed, done, iterations, quality, saves), "script_errors": self.errors}
        if request.resumes and (kinds := observed.get("not_tensors")):
            self.started = replace(self.started, notes=(_cannot_resume(request.resumes, kinds),))
        mends = (*request.mends, *self.started.mends)
        judged = judge_stack(result, done, request.extensions, mends, others, problems)
        if not request.rehearsed:
            judged += no_cuda_error(f"{done.stdout}\n{done.stderr}", request.device)
        images = sorted(
            path.relative_to(request.out).as_posix() for path in self.report.glob("renders/**/*.png")
        )
        write_json(self.report / "result.json", result)
        seconds = round(time.monotonic() - started, 1)
        return SceneRun(
            self.scene, judged, seconds, result, tuple(images[:MAX_IMAGES]), f"{self.scene}/trainer.log"
        )

    def child(self, script: str, words: list[str], log: str) -> tuple[Completed, dict[str, Any]]:
        """Run one script of the checkout to its end; how it ended, and what was observed."""
        request, name = self.request, Path(script).stem
        where = f"{self.scene}: {script}"
        self.tell(where, {})
        seen = make_folder(self.folder / f"observed-{name}-{log}")
        variables = stage_inside(make_folder(self.folder / "inside"), self.inside, seen, request.dropins)
        if request.threads:
            variables[VARIABLE] = str(request.threads.count)
        with ExitStack() as stack:
            if script == TRAIN:
                self.seen = seen
                lines = seen / "metrics.jsonl"
                stack.enter_context(
                    following(lines, request.iterations, lambda state: self.tell(where, state))
                )
            done = self.runner.run(
                [request.python, str(request.source / script), *words],
                timeout=self.timeout,
                env=variables,
                cwd=make_folder(self.folder / "work"),
                on_line=lambda line: None,
                log=self.report / log,
            )
        self.keep()
        observed = read_observed(seen, script)
        lacking = (f"{script}: {text}" for text in observed.get("weights", ()))
        refused = (_refused(script, row) for row in observed.get("refused_loads", ()) if row["gone_on"])
        unloadable = (_unloadable(row) for row in observed.get("unloadable", ()))
        if not done.ok and script != TRAIN and (error := observed.get("error")):
            self.errors["rendering" if script == RENDER else "metrics"] = error
        self.started = replace(
            self.started,
            weights=tuple(dict.fromkeys((*self.started.weights, *lacking))),
            mends=tuple(dict.fromkeys((*self.started.mends, *refused, *unloadable))),
        )
        return done, observed

    def render(self, iterations: int) -> dict[str, Completed]:
        """The test views after the first iteration and the last, and the training views after the last."""
        if not (self.request.source / RENDER).is_file():
            return {}
        known = read_arguments(self.request.source, RENDER)
        found: dict[str, Completed] = {}
        words = ["-m", str(self.model)]
        if "iteration" in known and self.cloud(1):
            skip = [known[name].name for name in ("skip_train", "skip_mesh") if name in known]
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
        self.tell(f"{self.scene}: comparing", {})
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


def _refused(script: str, row: Mapping[str, Any]) -> Mend:
    return Mend(
        PICKLES,
        f"{row['place'] or script} loads {row['file']}, which torch refuses without weights_only=False.",
        (say("Give weights_only=False to that torch.load, if nobody else's files are loaded there."),),
    )


def _unloadable(row: Mapping[str, Any]) -> Mend:
    library = str(row["words"]).partition(": ")[2].partition(":")[0]
    todo = say(
        f"Install the package of the system that brings {library} (apt-file search {library} names it)."
    )
    return Mend("library-missing", f"{row['words']}: no such file.", (todo,))


def _cannot_resume(places: Sequence[str], kinds: Sequence[str]) -> str:
    return (
        f"no checkpoint was loaded, and one with this trainer's optimizer would be refused by {few(list(places))}: "
        f"torch.load has no weights_only there, and the optimizer holds {few(list(kinds), most=2)}"
    )


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
