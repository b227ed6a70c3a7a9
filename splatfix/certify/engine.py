"""Runs a certification: a trainer as child processes of the target environment, scene by scene, then the certificate."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from splatfix.certify.certificate import write_certificate
from splatfix.certify.kernels import check_kernels
from splatfix.certify.model import Certificate, KernelCheck, SceneRun
from splatfix.certify.stacks.subject import StackSubject
from splatfix.certify.staging import child_variables, stage
from splatfix.certify.subject import Progress, SmokeSubject
from splatfix.core.runner import Runner
from splatfix.core.scratch import temporary_folder
from splatfix.model import Facts


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM during a certification."""

    certificate: Certificate | None = None
    """Of the scenes that were begun."""


def certify(
    subject: SmokeSubject | StackSubject,
    facts: Facts,
    progress: Progress = lambda where, state: None,
    *,
    interim: Callable[[Certificate], object] = lambda certificate: None,
    runner: Runner | None = None,
) -> Certificate:
    """Certify one environment, or one stack. Nothing is written into a stack's checkout or its scene.

    ``interim`` takes the certificate of what is done before each scene: a run that is killed leaves the latest.

    Raises:
        SplatfixError: ``environment-not-ready``, ``no-gpu`` or ``no-length`` (exit code 3), ``not-our-folder`` or
            ``no-trainer`` (2), ``cannot-write``.
        Interrupted: Ctrl-C or SIGTERM.
    """
    began = time.monotonic()
    runs: list[SceneRun] = []
    under_way: dict[str, Any] = {}

    def certificate(**state: Any) -> Certificate:
        return write_certificate(
            subject, facts, tuple(runs), seconds=round(time.monotonic() - began, 1), **state
        )

    def at(where: str) -> dict[str, Any]:
        number, scenes = len(runs) + 1, len(subject.scenes)
        if scenes > 1:
            where += f" (scene {number} of {scenes})"
        return {"where": where, "scene": number, "scenes": scenes}

    def tell(where: str, state: Mapping[str, Any]) -> None:
        nonlocal under_way
        under_way = {**state, **at(where)}
        progress(under_way["where"], under_way)

    with temporary_folder() as scratch:
        try:
            subject.prepare(facts, runner or Runner(), scratch, progress)
            for scene in () if subject.not_run else subject.scenes:
                under_way = at(scene)
                interim(certificate(under_way=under_way))
                runs.append(subject.run(scene, tell))
            return certificate()
        except KeyboardInterrupt:
            stop = Interrupted()
            if under_way:
                stop.certificate = certificate(under_way=under_way, interrupted=True)
            raise stop from None


def verify(
    python: str, device: str, *, stage_files: Callable[[Path], Path] = stage
) -> tuple[KernelCheck, ...]:
    """Compare every implementation of SSIM, kNN and rasterizer in an environment, ours and the stack's, with float64."""
    with temporary_folder() as folder:
        variables = child_variables(stage_files(folder))
        return check_kernels(Runner(), python, device, folder, variables)
