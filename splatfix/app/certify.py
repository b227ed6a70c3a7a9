"""``splatfix certify``: train scenes in an environment, and write the certificate."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splatfix.app.interrupts import on_interrupt
from splatfix.app.result import Result, target_python
from splatfix.core.errors import Exit, usage_error
from splatfix.core.step import Step, run, say

if TYPE_CHECKING:
    from rich.console import Console

    from splatfix.certify import Certificate, Request, Suite
    from splatfix.facts import Facts
    from splatfix.knowledge.published import Method
    from splatfix.plan import Options


@dataclass(frozen=True)
class CertifyRequest:
    """What to certify on this machine, as it was asked for; None is the suite's or the device's own default."""

    python: str | None = None
    suite: str | None = None
    data: Path | None = None
    iterations: int | None = None
    resolution: int | None = None
    out: Path = Path("splatfix-report")
    renderer: str = "torch"
    device: str = "auto"
    seed: int = 0
    baseline: str | None = None
    """The file of an earlier certificate, or the name of published figures."""
    verbose: bool = False
    level: int | None = None
    """The run level, 1 to 4."""
    monitoring: bool = False
    """Exit codes as monitoring systems read them."""
    sign: Path | None = None
    """The private key to sign the report with."""
    appendix: bool = False
    """Also write an artifact-evaluation appendix."""
    targets: tuple[str, ...] = ()
    """On the CPU: the GPU architectures that installed extensions are judged for."""


def certify(asked: CertifyRequest) -> Result:
    """Train the scenes and judge the outcome.

    Raises:
        SplatfixError: wrong options (exit code 2), or missing prerequisites (3); nothing was trained then.
        Interrupted: Ctrl-C or SIGTERM; it says where partial results are.
    """
    from splatfix import facts
    from splatfix.app.attest import open_key, sign_report
    from splatfix.attest.dsse import ENVELOPE
    from splatfix.attest.report import require_key_elsewhere, require_room
    from splatfix.certify import Interrupted, Request, device_for, require_gpu
    from splatfix.core.files import write_text
    from splatfix.report import appendix, certificate, console, verification
    from splatfix.report.field_report import markdown
    from splatfix.report.forms import FORMS
    from splatfix.report.progress import training

    method = _published(asked)
    with on_interrupt(_interrupted):
        key = None
        if asked.sign is not None:
            require_key_elsewhere(asked.out, asked.sign)
            key = open_key(asked.sign)
        target = target_python(asked.python)
        known = facts.gather(target)
        device = device_for(asked.device, known)
        require_gpu(asked.renderer, device, known)
        suite = _suite(asked, method, target, device)
        request = Request(
            target,
            suite,
            asked.out.absolute(),
            asked.renderer,
            device,
            asked.seed,
            _baseline(Path(asked.baseline), asked.renderer, device)
            if asked.baseline and not method
            else None,
            method.name if method else "",
            asked.level,
            asked.targets if device == "cpu" else (),
        )
        if key is not None:
            require_room(request.out, suite.scenes)
        with training(console.err()) as progress:
            try:
                result, options = run_and_report(request, progress, known)
            except Interrupted as stop:
                missing = ["It is not signed."] if key is not None else []
                stop.add(*missing, *(["The appendix was not written."] if asked.appendix else []))
                raise
        if asked.appendix:
            write_text(request.out / "appendix.md", appendix.markdown(result))
            write_text(request.out / "appendix.tex", appendix.latex(result))
        if key is not None:
            sign_report(request.out, key)

    def show(console: Console) -> None:
        page, step = asked.out / "certificate.html", next_step(result, asked.python)
        certificate.show(console, result, page, step, options, verbose=asked.verbose)
        if key is not None:
            verification.show_signed(console, asked.out / ENVELOPE, key.public.id)

    return Result(
        "certify",
        lambda: certificate.document(result, known, options),
        show,
        monitoring_code_of(result) if asked.monitoring else exit_code_of(result),
        forms={
            "markdown": lambda: markdown(result, options),
            **{name: partial(form, result) for name, form in FORMS.items()},
        },
    )


def run_and_report(
    request: Request,
    progress: Callable[[str, Mapping[str, Any]], None] = lambda where, state: None,
    facts: Facts | None = None,
) -> tuple[Certificate, Options | None]:
    """Certify, and write ``certificate.json``, ``.md`` and ``.html`` into the request's folder, as it goes: a run that is
    killed leaves the latest of them, which says how far it had come.

    Returns:
        The certificate, and what :func:`suggested_options` says of it.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; it says where partial results are.
    """
    from splatfix.certify import Interrupted
    from splatfix.certify import certify as train_and_judge
    from splatfix.certify.host import placed
    from splatfix.context import make_context
    from splatfix.context.matrix import binary_matrix
    from splatfix.core.files import write_json, write_text
    from splatfix.report import certificate
    from splatfix.report.documents import envelope
    from splatfix.report.field_report import markdown
    from splatfix.report.html import certificate_page

    def write(result: Certificate, known: Facts) -> Options | None:
        result = placed(result, os.environ)
        # to look for options takes a while, and is not done while the training waits for it
        options = None if result.unfinished else suggested_options(result, known)
        document = envelope("certify", exit_code_of(result), certificate.document(result, known, options))
        write_json(request.out / "certificate.json", document)
        write_text(request.out / "certificate.md", markdown(result, options))
        matrix = binary_matrix(make_context(known))
        write_text(
            request.out / "certificate.html", certificate_page(result, known, request.out, options, matrix)
        )
        return options

    try:
        result, known = train_and_judge(request, progress, facts, interim=write)
    except Interrupted as stop:
        if stop.certificate is not None:
            write(*stop.certificate)
            stop.add(
                f"The certificate of what was run, marked as interrupted: {request.out / 'certificate.html'}."
            )
        raise
    return placed(result, os.environ), write(result, known)


def suggested_options(certificate: Certificate, facts: Facts) -> Options | None:
    """Where a diagnosis of the same facts finds what may have failed the certification: the options that answer it. None for
    a container's environment, which nobody can change."""
    from splatfix.app.options import options_after
    from splatfix.certify import Verdict
    from splatfix.checks import run_checks
    from splatfix.context import make_context

    if certificate.verdict is not Verdict.NOT_CERTIFIED or _in_container(certificate):
        return None
    return options_after(run_checks(make_context(facts)), make_context(facts))


def next_step(certificate: Certificate, python: str | None) -> Step | None:
    """The diagnosis where something failed, training after a run level that trained nothing; None otherwise."""
    from splatfix.certify import Verdict
    from splatfix.certify.run_levels import TRAINS_FROM

    if certificate.verdict is Verdict.NOT_CERTIFIED and _in_container(certificate):
        return run(
            *certificate.repeat.argv, "--keep", text="Next: run it again, and look into what is left of it"
        )
    named = ["--python", python] if python else []
    if certificate.verdict is Verdict.CERTIFIED and (certificate.level or TRAINS_FROM) < TRAINS_FROM:
        level = ("--level", str(TRAINS_FROM))
        return run("splatfix", "certify", *level, *named, text="Next: test training")
    if certificate.verdict is not Verdict.NOT_CERTIFIED:
        return None
    return run("splatfix", "diagnose", *named, text="Next: look for the cause")


def _in_container(certificate: Certificate) -> bool:
    return "--container" in certificate.repeat.argv


def exit_code_of(certificate: Certificate) -> Exit:
    """0 certified, 1 not certified, 3 undetermined."""
    from splatfix.certify import Verdict

    codes = {Verdict.CERTIFIED: Exit.OK, Verdict.REHEARSED: Exit.OK, Verdict.NOT_CERTIFIED: Exit.FAILURE}
    return codes.get(certificate.verdict, Exit.UNDETERMINED)


def monitoring_code_of(certificate: Certificate) -> int:
    """As monitoring systems read it: 0 ok, 1 warning (certified with reservations, or with scenes left out), 2 critical,
    3 unknown."""
    from splatfix.certify import Verdict

    if certificate.verdict in (Verdict.CERTIFIED, Verdict.REHEARSED):
        return 1 if certificate.notes or certificate.skipped else 0
    return 2 if certificate.verdict is Verdict.NOT_CERTIFIED else 3


def _interrupted() -> str:
    from splatfix.certify import Interrupted

    return str(Interrupted())


def _suite(asked: CertifyRequest, method: Method | None, python: str, device: str) -> Suite:
    """The scenes that were asked for, those of a run level, or none.

    Raises:
        SplatfixError: ``level-needs-gpu`` (exit code 2); as of ``data_suite`` and ``sample_suite``.
    """
    from splatfix.certify import Suite, data_suite, sample_suite
    from splatfix.certify.run_levels import FULL, FULL_ITERATIONS, TRAINS_FROM

    if asked.level is not None and asked.level < TRAINS_FROM:
        return Suite("", (), 0.0)
    if asked.data is None:
        named = {None: asked.suite or "quick", FULL: "standard"}.get(asked.level, "quick")
        return sample_suite(named, asked.iterations, asked.resolution)
    full = asked.level == FULL
    if full and device == "cpu":
        raise usage_error(
            "level-needs-gpu",
            f"--level {FULL} with --data trains thirteen scenes for {FULL_ITERATIONS} iterations each: a GPU takes hours, "
            "a CPU months.",
            say("Use a machine with a GPU, or leave --data out for the sample scenes."),
        )
    of_method = method.iterations if method and device != "cpu" else None
    length = FULL_ITERATIONS if full else of_method
    suite = data_suite(
        asked.data, python, device, asked.iterations or length, asked.resolution, every_public=full
    )
    return replace(suite, strategy=method.strategy) if method else suite


def _published(asked: CertifyRequest) -> Method | None:
    """The published figures that ``--baseline`` names; None where it names a file.

    Raises:
        SplatfixError: ``unknown-baseline`` (exit code 2) for neither, ``baseline-needs-data`` for sample scenes.
    """
    from splatfix.knowledge.published import methods

    if asked.baseline is None:
        return None
    method = methods().get(asked.baseline)
    if method is None and not Path(asked.baseline).exists():
        raise usage_error(
            "unknown-baseline",
            f"--baseline {asked.baseline}: there is no such file, and no published figures of that name.",
            say(f"Give an earlier certificate.json, or one of: {', '.join(methods())}."),
        )
    if method is not None and asked.data is None:
        raise usage_error(
            "baseline-needs-data",
            f"--baseline {asked.baseline} has figures of the public scenes, and the sample scenes have none.",
            say("Add --data ROOT, the folder with the public scenes."),
        )
    return method


def _baseline(path: Path, renderer: str, device: str) -> dict[str, Any]:
    """An earlier certificate of the same renderer and device.

    Raises:
        SplatfixError: exit code 2 for anything else, before anything is trained.
    """
    from splatfix.core.files import read_json

    document = read_json(path, "an earlier certificate.json")
    if not isinstance(document, dict) or document.get("command") != "certify":
        raise usage_error("not-a-certificate", f"{path} is not a certificate.json of splatfix certify.")
    if not document.get("scenes"):
        level = document.get("level")
        why = (
            "ended before a scene was trained"
            if level not in (1, 2)
            else f"is of run level {level}, which trains nothing"
        )
        raise usage_error(
            "another-baseline",
            f"{path} {why}: there is nothing to compare with.",
            say("Give the certificate.json of a run that trained, such as one of --level 3."),
        )
    if (document.get("renderer"), document.get("device")) != (renderer, device):
        raise usage_error(
            "another-baseline",
            f"{path} was certified with {document.get('renderer')} on {document.get('device')}, "
            f"not {renderer} on {device}.",
            say("Compare like with like: give the same --renderer and --device."),
        )
    return document
