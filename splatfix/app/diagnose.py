"""``splatfix diagnose``: what is wrong with this machine or a saved one, which options there are, and what it looks at."""

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, convert
from msgspec.structs import replace

from splatfix import facts as machine_facts
from splatfix.app.result import Result
from splatfix.checks import all_checks, check_named, run_checks, select
from splatfix.checks.checkout.code_shapes import source_patterns
from splatfix.context import Goal, make_context
from splatfix.context.commands import training_steps
from splatfix.core.codec import to_json
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.files import write_json
from splatfix.core.step import Step, run, target_options, value_options
from splatfix.facts.checkout import has_build_file, read_identity, read_source, with_checkout
from splatfix.knowledge import Arch
from splatfix.knowledge.dropins import has_reference
from splatfix.model import Fact, Facts, Finding, Status
from splatfix.model.option import NO_SOURCES
from splatfix.plan import Case, advised_options, has_stack_files, summarise
from splatfix.plan.checkout import absolute
from splatfix.report.diagnosis import CheckDocument, CheckPage, CheckRow, ChecksDocument, DiagnosisDocument

_OF_CHECKOUTS = ("train.py", "setup.py", "pyproject.toml", "CMakeLists.txt", "Cargo.toml", ".gitmodules")


class DiagnoseRequest(Struct, frozen=True):
    """What to look at, and what to write down."""

    python: str | None = None
    targets: tuple[Arch, ...] = ()
    repo: Path | None = None
    """A checkout to look at as well; None: the current folder, where it is one."""
    facts_file: Path | None = None
    """Saved facts to judge instead of this machine."""
    save: Path | None = None
    record: Path | None = None
    redact: bool = True
    try_imports: bool = False
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()


def diagnose(request: DiagnoseRequest) -> Result[DiagnosisDocument]:
    """Run the checks on the facts of a machine.

    Raises:
        SplatfixError: wrong names of checks, folders or interpreters (exit code 2).
    """
    if request.repo is None and request.facts_file is None:
        request = replace(request, repo=_checkout_here())
    checks = select(request.only, request.skip)
    if request.facts_file is not None:
        facts = machine_facts.load(request.facts_file)
    else:
        if request.repo is not None and not request.repo.is_dir():
            raise SplatfixError.of("app.not-a-folder", folder=request.repo)
        choice = machine_facts.choose_python(request.python)
        facts = machine_facts.gather(
            choice.python,
            chosen=choice.why,
            try_imports=request.try_imports,
            record=request.record,
            redact=request.redact,
        )
        if request.repo is not None:
            facts = with_checkout(facts, request.repo, source_patterns(), started=True)
    if not_examined := _not_examined(request):
        facts = replace(facts, checkout=Fact(None, "names in the current folder", not_examined, absent=True))
    if request.save is not None:
        write_json(request.save, to_json(facts))
    context = make_context(facts, Goal(request.targets))
    findings = run_checks(context, checks)
    python, interpreter = request.python, facts.environment.interpreter.value
    if python and interpreter:  # as every other command on the screen names it
        python = interpreter.executable
    named = value_options({"--python": python})
    options, why, steps = None, None, tuple[Step, ...]()
    if any(finding.status is Status.FAIL for finding in findings):
        summary = NO_SOURCES
        if request.repo is not None:
            checkout = absolute((str(request.repo),))
            summary = summarise(checkout, context, named=checkout)
        options = advised_options(findings, Case(context=context, sources=summary))
        # all options for what was diagnosed: for the checkout, where something can be built of it
        machine = (*target_options(request.targets), *value_options({"--facts": request.facts_file}), *named)
        why = run("splatfix", "install", *summary.named, "--dry-run", "--why", *machine)
    if request.facts_file is None and not request.only and not request.skip:
        steps = next_steps(facts, *named)
    # what install mends by itself is no problem: one answer for the text, the document and the exit code
    mended = options.advice.mended if options and options.advice else ()
    findings = tuple(
        replace(item, status=Status.SKIP) if item.code in mended and item.status is not Status.PASS else item
        for item in findings
    )

    document = DiagnosisDocument(
        facts=facts,
        findings=findings,
        goal=context.goal,
        options=options,
        why=why,
        next_steps=steps,
        not_examined=not_examined,
        unused_gpus=context.left_aside,
    )
    return Result("diagnose", document, exit_code_of(findings))


def exit_code_of(findings: Sequence[Finding]) -> Exit:
    """Return 1 when a check failed or crashed; 3 when none did but one could not be determined, or none was made; else 0."""
    statuses = {finding.status for finding in findings}
    if statuses & {Status.FAIL, Status.CRASH}:
        return Exit.FAILURE
    if Status.UNKNOWN in statuses or not findings:
        return Exit.UNDETERMINED
    return Exit.OK


def _checkout_here() -> Path | None:
    """Return the current folder, where it is a checkout that trains Gaussians, or the folder of an extension with CUDA code."""
    folder = Path()
    if not any((folder / name).is_file() for name in _OF_CHECKOUTS):
        return None
    identity = read_identity(folder).value if (folder / "train.py").is_file() else None
    source = read_source(folder) if has_build_file(folder) else None
    builds = source and source.modules and source.needs_cuda
    if (identity and identity.imports) or builds or has_stack_files(folder):
        return folder.absolute()
    return None


def _not_examined(request: DiagnoseRequest) -> str:
    """Say that code at the top of the current folder is not looked at; "" where there is none, and in one's home folder."""
    code = any(Path().glob("*.py")) or any(Path(name).is_file() for name in _OF_CHECKOUTS)
    home = os.path.expanduser("~")  # noqa: PTH111 - Path's raises for a user without one
    if not code or request.repo or request.facts_file or str(Path.cwd()) == home:
        return ""
    argv = ("diagnose", "--repo", ".", *value_options({"--python": request.python}))
    return run("splatfix", *argv, text="The code in this folder was not examined; to do so").line()


def next_steps(facts: Facts, *named: str) -> tuple[Step, ...]:
    """Return the command that shows what facts cannot, where nothing failed; () without torch.

    Args:
        named: ``--python`` with what was named by it; nothing where nothing was.
    """
    if facts.environment.torch.value is None:
        return ()
    packages = facts.environment.packages.value or ()
    if any(has_reference(item.module) for item in packages):
        text = "Next: check the accuracy of the kernels"
        return (run("splatfix", "certify", "--level", "2", *named, text=text),)
    return training_steps(facts, *named)


def list_checks() -> Result[ChecksDocument]:
    """List every check with its code, family and title (``--list``)."""
    rows = convert(all_checks(), tuple[CheckRow, ...], from_attributes=True)
    return Result("diagnose list", ChecksDocument(rows))


def show_check(code: str) -> Result[CheckDocument]:
    """Show one check's page (``--explain``).

    Raises:
        SplatfixError: ``unknown-check`` (exit code 2).
    """
    page = convert(check_named(code), CheckPage, from_attributes=True)
    return Result("diagnose explain", CheckDocument(page))
