"""``splatfix certify``: train, and write the certificate as it goes."""

from pathlib import Path

from msgspec.structs import replace

from splatfix import facts as machine_facts
from splatfix.app.interrupts import on_interrupt
from splatfix.app.rehearse import stack_subject
from splatfix.app.result import Result, show_message, target_python
from splatfix.app.stored import NAME, read_stored
from splatfix.certify import Certificate, Interrupted, SmokeSubject, Verdict, report_lock, smoke_subject
from splatfix.certify import certify as train_and_judge
from splatfix.certify.certificate import NAMES_THE_FIX
from splatfix.certify.criteria.running import MENDS
from splatfix.certify.levels import TRAINS_FROM
from splatfix.certify.request import CertifyRequest as CertifyRequest  # built by the command line
from splatfix.certify.stacks.subject import StackSubject
from splatfix.certify.subject import Progress, published_method
from splatfix.checks import run_checks
from splatfix.context import make_context
from splatfix.context.matrix import binary_matrix
from splatfix.core.codec import to_json
from splatfix.core.errors import Exit, require
from splatfix.core.files import sha256_of, write_json, write_text
from splatfix.core.scratch import temporary_folder
from splatfix.core.step import Step, run, say
from splatfix.knowledge.published import Method
from splatfix.model import Facts, Status
from splatfix.plan import Case, Options, advised_options
from splatfix.report import console
from splatfix.report.certificate import CertificateDocument, certificate_page, markdown
from splatfix.report.forms import envelope
from splatfix.report.progress import training

_NOTHING = "Interrupted: nothing was certified."
_EXIT_CODES = {Verdict.CERTIFIED: Exit.OK, Verdict.REHEARSED: Exit.OK, Verdict.NOT_CERTIFIED: Exit.FAILURE}


def certify(request: CertifyRequest) -> Result[CertificateDocument]:
    """Train the scenes and judge the outcome.

    Raises:
        SplatfixError: wrong options (exit code 2), or missing prerequisites (3); nothing was trained then.
        Interrupted: Ctrl-C or SIGTERM; it says where partial results are.
    """
    with on_interrupt(_NOTHING):
        # a wrong option is told before anything is looked at
        baseline: Certificate | Method | None = published_method(request)
        if request.baseline is not None and baseline is None:
            baseline = require(read_stored(Path(request.baseline))).certificate
        python = target_python(request.python)
        facts = machine_facts.gather(python)
        return _run(smoke_subject(request, python, facts, baseline), facts)


def rehearse(request: CertifyRequest) -> Result[CertificateDocument]:
    """Run a checkout's own trainer and judge the outcome.

    Raises:
        SplatfixError: wrong options (exit code 2), missing prerequisites (3), or ``nothing-replaces-it`` (1) where no drop-in
            serves what the checkout calls and there is no GPU; nothing was trained then.
        Interrupted: Ctrl-C or SIGTERM; it says where partial results are.
    """
    # the folder has the drop-ins and, where the checkout has to be mended, the copy that is run
    with on_interrupt(_NOTHING), temporary_folder() as folder:
        return _run(*stack_subject(request, folder))


def _run(subject: SmokeSubject | StackSubject, facts: Facts) -> Result[CertificateDocument]:
    with report_lock(subject.out) as notes, training(console.err()) as progress:
        for note in notes:
            show_message(f"Note: {note}.")
        document = run_and_report(subject, facts, progress)
    return Result("certify", document, exit_code_of(document.certificate))


def run_and_report(
    subject: SmokeSubject | StackSubject,
    facts: Facts,
    progress: Progress = lambda where, state: None,
) -> CertificateDocument:
    """Certify, and write ``certificate.json``, ``.md`` and ``.html`` as it goes: a run that is killed leaves the latest of them,
    which says how far it had come.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; it says where partial results are.
    """
    matrix = binary_matrix(make_context(facts))

    def write(made: Certificate) -> CertificateDocument:
        options = None
        # to look for options takes a while, and is not done while the training waits for it
        if isinstance(subject, SmokeSubject) and not made.unfinished:
            options = suggested_options(made, facts)
        document = CertificateDocument(
            certificate=made,
            facts=facts,
            folder=str(subject.out),
            page=str(subject.out / "certificate.html"),
            options=options,
            matrix=matrix,
            next_steps=tuple(filter(None, (next_step(made),))),
        )
        write_json(subject.out / NAME, envelope("certify", exit_code_of(made), to_json(document)))
        written = replace(document, sha256=sha256_of(subject.out / NAME))
        write_text(subject.out / "certificate.md", markdown(written))
        write_text(subject.out / "certificate.html", certificate_page(written))
        return document

    try:
        return write(train_and_judge(subject, facts, progress, interim=write))
    except Interrupted as stop:
        if stop.certificate is None:
            raise
        page = write(stop.certificate).page
        raise Interrupted(
            f"{_NOTHING} The certificate of what was run, marked as interrupted: {page}."
        ) from None


def suggested_options(made: Certificate, facts: Facts) -> Options | None:
    """Return the options that answer what a diagnosis of the same facts finds, which may have failed it; None if it did not."""
    if not _failed_here(made):
        return None
    context = make_context(facts)
    findings = run_checks(context)
    if not any(finding.status is Status.FAIL for finding in findings):
        return None
    return advised_options(findings, Case(context=context))


def next_step(made: Certificate) -> Step | None:
    """Return what to do about what failed first here; training after a run level that trained nothing."""
    if made.verdict is Verdict.CERTIFIED and (made.level or TRAINS_FROM) < TRAINS_FROM:
        level = ("--level", str(TRAINS_FROM))
        return run("splatfix", "certify", *level, *made.python, text="Next: test training")
    first = next((item.criterion for item in made.problems if item.criterion.advice), None)
    if not _failed_here(made) or (first and first.code == MENDS):  # whose steps are shown with the stack
        return None
    if first is None or first.advice == NAMES_THE_FIX:
        return run("splatfix", "diagnose", *made.python, text="Next: look for the cause")
    return say(f"Next: {first.advice}")


def _failed_here(made: Certificate) -> bool:
    """Tell whether something failed, and not in a container's environment: of that nothing is left to be changed."""
    return made.verdict is Verdict.NOT_CERTIFIED and "--container" not in made.repeat.argv


def exit_code_of(made: Certificate) -> Exit:
    """Return 0 for certified, 1 for not certified, 3 for undetermined."""
    return _EXIT_CODES.get(made.verdict, Exit.UNDETERMINED)
