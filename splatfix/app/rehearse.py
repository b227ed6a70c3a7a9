"""A checkout's own trainer: what it would run on, and made ready to be certified, with drop-ins for a CPU and a mended copy."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from splatfix import __version__
from splatfix.app.result import Result, show_message, target_python
from splatfix.certify import CertifyRequest, device_for
from splatfix.certify.environment import gpu_obstacle, packages_obstacle
from splatfix.certify.stacks import prepare
from splatfix.certify.stacks.subject import StackSubject
from splatfix.checks.checkout.code_shapes import source_patterns
from splatfix.checks.checkout.faces import order_of
from splatfix.context import Goal, make_context
from splatfix.context.commands import TRAINING_NEEDS
from splatfix.context.submodules import module_of
from splatfix.core.errors import Exit, Rejected, SplatfixError
from splatfix.core.files import write_text
from splatfix.core.source_pattern import NamePattern
from splatfix.facts import gather
from splatfix.facts.checkout import as_reached, with_checkout
from splatfix.facts.source.copying import copy_source, missed
from splatfix.install.dropins import make_dropin_wheel
from splatfix.knowledge.breakages import breakage
from splatfix.knowledge.dropins import DROPINS, is_rasterizer
from splatfix.knowledge.schedules import least_iterations
from splatfix.model import Distribution, Facts
from splatfix.model.option import Replacement
from splatfix.plan.checkout import incomplete
from splatfix.plan.dropins import replacement_for, served_host
from splatfix.plan.edits import apply
from splatfix.report.dry_run import DryRun


class Trainer(Struct, frozen=True, kw_only=True):
    """A script of a checkout as it would be certified, and what that was decided by."""

    subject: StackSubject
    """Before anything is copied or made."""
    facts: Facts
    """Of the machine, with all of the checkout."""
    hosts: Mapping[str, Distribution]
    """The packages that drop-ins are a part of, by the names of these."""
    obstacle: Rejected | None
    """Why it cannot be run here."""


def read_trainer(request: CertifyRequest) -> Trainer:
    """Choose the script that is run, and read what it reaches and what it needs.

    Raises:
        SplatfixError: ``not-a-folder``, ``not-a-checkout``, ``no-such-script``, ``which-script``, ``no-trainer``, ``wrong-face``
            (exit code 2); ``source-incomplete`` (1), where it imports what an empty submodule holds: a renderer of another name
            than any extension's.
    """
    if not request.checkout.is_dir():
        raise SplatfixError.of("app.not-a-folder", folder=request.checkout)
    python = target_python(request.python)
    facts = with_checkout(gather(python), request.checkout, source_patterns())
    whole = facts.checkout.value
    if whole is None:
        raise SplatfixError.of("app.not-a-checkout", checkout=request.checkout, error=facts.checkout.error)
    script = prepare.choose_script(request, whole)
    patterns = [pattern for pattern in source_patterns() if isinstance(pattern, NamePattern)]
    checkout, reach = as_reached(whole, prepare.scripts_of(whole, script), patterns)
    context = make_context(replace(facts, checkout=replace(facts.checkout, value=checkout)), Goal())
    device = device_for(request.device, facts)

    # what takes the place of its extensions, and what has none
    replacement = replacement_for(checkout, order_of(request.face) if request.face else ())
    native = replacement.native
    if not reach.everything:
        native = tuple(item for item in native if item.module.partition(".")[0] in reach.modules)
    # what an import in a try asks for is no need of the checkout, and yet what runs where it is installed
    guarded = {item.module for item in checkout.guarded} - {item.module for item in replacement.dropins}
    beside = tuple(item for item in DROPINS if item.module in guarded and not item.variant)
    replacement = Replacement((*replacement.dropins, *beside), native)

    # why it cannot be run here
    obstacle = packages_obstacle(facts, python, TRAINING_NEEDS) or gpu_obstacle(device, facts)
    if device == "cpu" and replacement.useless:
        unread = any(item.undetermined for item in replacement.native)
        obstacle = Rejected.of(
            "app.nothing-replaces-it",
            exit_code=Exit.UNDETERMINED if unread else Exit.FAILURE,
            script=script,
            refused=replacement.refused,
            folder=request.checkout,
        )
    if obstacle is None and request.scene and not Path(request.scene).is_dir():
        obstacle = Rejected.of("app.no-scene", scene=request.scene)
    hosts: dict[str, Distribution] = {}
    for dropin in replacement.dropins:
        host = served_host(context, dropin) if dropin.host else None
        if isinstance(host, Rejected):
            obstacle = obstacle or host
        elif host:
            hosts[dropin.name] = host

    key, name = prepare.recognised_stack(checkout)
    usual = prepare.ITERATIONS if device == "cpu" else prepare.GPU_ITERATIONS
    folder = Path(checkout.folder)
    subject = StackSubject(
        request=request,
        python=python,
        device=device,
        checkout=checkout,
        source=folder,
        work=folder,
        name=name,
        key=key,
        script=script,
        iterations=request.iterations or max(usual, least_iterations(key)),
        replacement=replacement,
    )
    subject = prepare.with_needs(subject, context)
    empty = [item for item in checkout.submodules if item.empty]
    if paths := [item.path for item in empty if module_of(item, checkout) in subject.placeholders]:
        raise incomplete(checkout.folder, folder, paths).error()
    return Trainer(subject=subject, facts=facts, hosts=hosts, obstacle=obstacle)


def stack_subject(request: CertifyRequest, folder: Path) -> tuple[StackSubject, Facts]:
    """Return the checkout with what stands in for its extensions on this device, and the facts of the machine with all of it.

    Args:
        folder: for what is made; it must outlast the run.

    Raises:
        SplatfixError: wrong options (exit code 2), missing prerequisites (3), or ``nothing-replaces-it`` (1).
    """
    trainer = read_trainer(request)
    if trainer.obstacle:
        raise trainer.obstacle.error()
    subject = _with_mended_copy(trainer.subject, folder)
    subject = replace(subject, work=folder / "work")
    _copy(subject.source, subject.work)
    if not subject.rehearsed:
        return subject, trainer.facts

    # the drop-ins as they would be in site-packages, beside the Python of those that they are a part of
    packages = folder / "dropins"
    packages.mkdir()
    for name, host in trainer.hosts.items():
        without_kernels = shutil.ignore_patterns("*.so", "*.pyd", "csrc", "__pycache__")
        shutil.copytree(Path(host.location, name), packages / name, ignore=without_kernels)
    for item in subject.replacement.dropins:
        with zipfile.ZipFile(make_dropin_wheel(item, __version__, folder / "wheels")) as wheel:
            wheel.extractall(packages)  # our own wheel, made a moment ago
    threads = prepare.threads_for(trainer.facts)
    return replace(subject, dropins=packages, threads=threads), trainer.facts


def _with_mended_copy(subject: StackSubject, folder: Path) -> StackSubject:
    """Where known edits mend the checkout's own Python code, run a scratch copy with the edits made."""
    codes = {item.code for item in subject.mends}
    files: dict[str, dict[str, None]] = {}
    for match in subject.checkout.python_matches:
        record = breakage(match.breakage)
        if record.check and record.check.code in codes and record.edits:
            files.setdefault(match.file, {})[match.breakage] = None
    if not files:
        return subject
    copy = folder / subject.folder.name
    _copy(subject.folder, copy)
    edited = set()
    for file, keys in files.items():
        if not (copy / file).is_file():  # behind a link that leads out
            continue
        text = (copy / file).read_text(encoding="utf-8", errors="surrogateescape")
        for key in keys:
            record = breakage(key)
            text = apply(record, text)
            if record.check:
                edited.add(record.check.code)
        write_text(copy / file, text)
    mends = tuple(replace(item, edited=item.code in edited) for item in subject.mends)
    return replace(subject, source=copy, mends=mends)


def _copy(source: Path, destination: Path) -> None:
    for text in missed(copy_source(source, destination)):
        show_message(f"Not copied for the run: {text}.")


def dry_run(request: CertifyRequest) -> Result[DryRun]:
    """Say what a rehearsal would run on, from text alone; nothing is run, written or imported. What the run would refuse is
    refused too.
    """
    trainer = read_trainer(request)
    subject, problem = trainer.subject, trainer.obstacle
    if problem is None and subject.mends:
        problems = " ".join(f"{mend.summary.rstrip('.')} [{mend.code}]." for mend in subject.mends)
        steps = tuple(dict.fromkeys(step for mend in subject.mends for step in mend.remedy))
        problem = Rejected.of("app.not-as-it-is", todo=steps, problems=problems)
    exit_code, error = Exit.OK, None
    if problem:
        exit_code, error = problem.exit_code, problem.error()
    elif subject.rehearsed and not any(is_rasterizer(item.module) for item in subject.replacement.dropins):
        exit_code = Exit.UNDETERMINED  # no call of one could be read
    document = DryRun(
        would_run=None if exit_code == Exit.UNDETERMINED else exit_code == Exit.OK,
        stack=subject.name,
        script=subject.script,
        replacement=subject.replacement,
        missing=subject.placeholders,
    )
    return Result("certify dry-run", document, exit_code, error)
