"""Runs a certification: kernels and trainer as children of the target environment, then the verdict."""

from __future__ import annotations

import datetime
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splatfix.certify import criteria, ladder
from splatfix.certify.device import idle_gpu
from splatfix.certify.model import Certificate, Criterion, KernelCheck, Outcome, SceneRun
from splatfix.certify.prepare import (
    CERTIFY,
    VERIFY,
    child_variables,
    make_room,
    require_device,
    require_packages,
)
from splatfix.certify.stage import stage
from splatfix.certify.suites import Suite
from splatfix.checks import Goal, run_checks
from splatfix.core.codec import from_json
from splatfix.core.proof import Rung
from splatfix.core.runner import Completed, ProcessRunner, Runner
from splatfix.facts import Facts, gather

KERNEL_TIMEOUT = 300.0

Progress = Callable[[str, Mapping[str, Any]], None]
"""Told what runs now (scene or stage) and the trainer's own progress object."""


@dataclass(frozen=True)
class Request:
    """What to certify, and where the report goes."""

    python: str
    suite: Suite
    out: Path
    renderer: str = "torch"
    device: str = "cpu"
    seed: int = 0
    baseline: Mapping[str, Any] | None = None
    """An earlier certificate to hold this one against."""


def certify(
    request: Request,
    progress: Progress = lambda where, state: None,
    facts: Facts | None = None,
    *,
    runner: Runner | None = None,
    put_in_place: Callable[[Path], Path] = stage,
) -> tuple[Certificate, Facts]:
    """Certify one environment.

    Args:
        facts: of this machine and environment, where they are gathered already.
        put_in_place: stages trainer and kernels into a folder and returns the PYTHONPATH entry; tests hand in one that
            sabotages the copy.

    Raises:
        SplatfixError: ``environment-not-ready`` (exit code 3) when the environment lacks what the trainer needs.
    """
    started = time.monotonic()
    processes = runner or ProcessRunner()
    progress("environment", {})
    facts = facts or gather(request.python)
    require_packages(facts, request.python, CERTIFY)
    with tempfile.TemporaryDirectory(prefix="splatfix-certify-") as folder:
        variables = child_variables(put_in_place(Path(folder)))
        progress("kernels", {})
        kernels = check_kernels(processes, request.python, request.device, Path(folder), variables)
        require_device(kernels, request.device)
        make_room(request.out, request.suite.scenes)
        scenes = tuple(_train(processes, request, name, variables, progress) for name in request.suite.scenes)
    findings = run_checks(facts, Goal())
    proof = ladder.climb(findings, kernels, scenes, request.baseline, request.renderer)
    reasons = _reasons(kernels, scenes, proof)
    granted = not reasons and not any(run.unreadable for run in scenes)
    return (
        Certificate(
            granted=granted,
            claim=ladder.claim(
                proof, request, scenes, refused=bool(reasons), idle_gpu=idle_gpu(facts, request.device)
            ),
            reasons=reasons,
            suite=request.suite.name,
            renderer=request.renderer,
            device=request.device,
            proof=proof,
            kernels=kernels,
            scenes=scenes,
            environment=_versions(facts, scenes),
            issued=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - started, 1),
            skipped=request.suite.skipped,
        ),
        facts,
    )


def verify(
    python: str,
    device: str,
    *,
    facts: Facts | None = None,
    runner: Runner | None = None,
    put_in_place: Callable[[Path], Path] = stage,
) -> tuple[KernelCheck, ...]:
    """Every implementation of SSIM, kNN and rasterizer in an environment, ours and the stack's, against float64.

    Raises:
        SplatfixError: ``environment-not-ready`` (exit code 3) when the environment lacks torch.
    """
    require_packages(facts or gather(python), python, VERIFY)
    with tempfile.TemporaryDirectory(prefix="splatfix-verify-") as folder:
        variables = child_variables(put_in_place(Path(folder)))
        return check_kernels(runner or ProcessRunner(), python, device, Path(folder), variables)


def check_kernels(
    runner: Runner, python: str, device: str, staged: Path, variables: Mapping[str, str]
) -> tuple[KernelCheck, ...]:
    """Each kernel against its float64 reference, in one child of the target environment."""
    script = staged / "kernel_probe.py"
    script.write_bytes(Path(__file__).with_name("kernel_probe.py").read_bytes())
    argv = [python, str(script), "--device", device]
    done = runner.run(argv, timeout=KERNEL_TIMEOUT, env=variables, cwd=staged)
    try:
        document = json.loads(done.stdout.splitlines()[-1])
        return from_json(tuple[KernelCheck, ...], document["kernels"])
    except (ValueError, KeyError, IndexError, TypeError):
        reason = done.why() or "its answer is not readable"
        return (
            KernelCheck(
                "all kernels",
                "",
                Outcome.FAILED,
                None,
                0.0,
                None,
                None,
                f"the kernel checks ended badly: {reason}",
            ),
        )


def _train(
    runner: Runner, request: Request, scene: str, variables: Mapping[str, str], progress: Progress
) -> SceneRun:
    folder = request.out / scene
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "trainer.log"
    argv = [
        request.python,
        "-m",
        "smoke_trainer",
        *request.suite.trainer_arguments(scene),
        "--renderer",
        request.renderer,
        "--device",
        request.device,
        "--seed",
        str(request.seed),
        "--out",
        str(folder),
        "--json-progress",
    ]
    progress(scene, {})

    def tell(line: str) -> None:
        if line.startswith("{"):
            try:
                progress(scene, json.loads(line))
            except ValueError:
                return  # a line of the trainer's that only looks like JSON; it is in the log

    started = time.monotonic()
    done = runner.run(argv, timeout=request.suite.timeout, env=variables, cwd=folder, on_line=tell, log=log)
    return _judge(request, scene, folder, done, time.monotonic() - started)


def _judge(request: Request, scene: str, folder: Path, done: Completed, seconds: float) -> SceneRun:
    result = _result(folder)
    unreadable = _unreadable(request, result)
    if unreadable:
        judged: tuple[Criterion, ...] = (
            Criterion("scene-readable", Outcome.NOT_MEASURED, unreadable, "a scene that can be read"),
        )
    elif "error" in result or "iterations" not in result:
        said = result.get("error")
        why = _sentences(said) if isinstance(said, Mapping) else _last_words(done)
        failed = Criterion("training-finishes", Outcome.FAILED, why, "a finished training with a result.json")
        judged = (failed,)
    else:
        judged = criteria.judge(result, criteria.Asked(request.renderer, request.suite.iterations))
    pictures = sorted(path.relative_to(request.out).as_posix() for path in folder.glob("renders/**/*.png"))
    log = (folder / "trainer.log").relative_to(request.out).as_posix()
    return SceneRun(scene, judged, round(seconds, 1), result, tuple(pictures[:4]), log, unreadable)


def _unreadable(request: Request, result: Mapping[str, Any]) -> str:
    """The loader's words on a scene of the user's; "" for any other end. A bundled scene that cannot be read is our failure."""
    said = result.get("error")
    if request.suite.data is None or not isinstance(said, Mapping) or said.get("code") != "unreadable-scene":
        return ""
    return _sentences(said)


def _result(folder: Path) -> dict[str, Any]:
    try:
        document = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _sentences(said: Mapping[str, Any]) -> str:
    """The trainer's error for a report: what happened, what it means, what to do."""
    words = (str(said.get(key) or "").strip().rstrip(".") for key in ("happened", "meaning", "remedy"))
    return ". ".join(f"{word[0].upper()}{word[1:]}" for word in words if word) + "."


def _last_words(done: Completed) -> str:
    if done.error:
        return f"The trainer gave {done.error}."
    lines = [line for line in done.stdout.splitlines() if line.strip() and not line.startswith("{")]
    told = [
        line for line in lines if line.startswith("error[")
    ]  # meaning and remedy follow on lines of their own
    if told:
        return told[-1].partition(": ")[2].strip()
    return lines[-1].strip() if lines else (done.why() or "The trainer left no result.")


def _reasons(
    kernels: tuple[KernelCheck, ...], scenes: tuple[SceneRun, ...], proof: tuple[Rung, ...]
) -> tuple[str, ...]:
    reasons = [
        f"kernel {item.name}: {item.detail or f'value error {item.value_error}, gradient error {item.gradient_error}'}"
        for item in kernels
        if item.outcome is Outcome.FAILED
    ]
    for run in scenes:
        reasons += [
            f"{run.scene}: {item.code}: {item.measured.rstrip('.')}. {item.why}".rstrip()
            for item in run.criteria
            if item.outcome is Outcome.FAILED
        ]
    reasons += [
        f"{rung.name.value}: {rung.shown_by}" for rung in proof if rung.reached is False and not reasons
    ]
    return tuple(reasons)


def _versions(facts: Facts, scenes: tuple[SceneRun, ...]) -> dict[str, str]:
    interpreter, torch = facts.environment.interpreter.value, facts.environment.torch.value
    versions = {
        "system": f"{facts.machine.distribution or facts.machine.system} {facts.machine.machine}",
        "python": interpreter.version if interpreter else "unknown",
        "torch": torch.version if torch else "unknown",
        "GPU": ", ".join(gpu.name for gpu in facts.machine.gpus.value or ()) or "none",
        "driver": facts.machine.driver.value.version or "unknown" if facts.machine.driver.value else "none",
    }
    for run in scenes:
        for part, said in dict(run.result.get("implementations", {})).items():
            if isinstance(said, Mapping):
                versions[part] = " ".join(
                    str(said.get(key)) for key in ("name", "version", "engine") if said.get(key)
                )
    return versions
