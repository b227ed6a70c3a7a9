"""A checkout's own trainer: what it would run on, and made ready to be certified, with drop-ins for a CPU and a mended copy."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from splatfix import __version__
from splatfix.app.result import Result, show_message, target_python
from splatfix.certify import CertifyRequest, device_for
from splatfix.certify.prerequisites import CERTIFY_NEEDS, gpu_obstacle, packages_obstacle
from splatfix.certify.stacks import prepare
from splatfix.certify.stacks.subject import StackSubject
from splatfix.checks.checkout.code_shapes import source_patterns
from splatfix.checks.checkout.faces import order_of, places
from splatfix.context import Goal, make_context
from splatfix.context.submodules import module_of
from splatfix.core.errors import Exit, Rejected, SplatfixError
from splatfix.core.files import write_text
from splatfix.core.source_pattern import NamePattern
from splatfix.facts import gather
from splatfix.facts.checkout import Reach, all_trainers, as_reached, with_checkout
from splatfix.facts.source.copying import copy_source, missed
from splatfix.install.dropins import make_dropin_wheel
from splatfix.knowledge.breakages import breakage
from splatfix.knowledge.dropins import DROPINS, is_rasterizer
from splatfix.knowledge.schedules import least_iterations
from splatfix.model import Checkout, Distribution, ExtensionCall, Facts, RenderCall
from splatfix.model.option import Native, Replacement
from splatfix.plan.checkout import incomplete
from splatfix.plan.dropins import replacement_for, served_host
from splatfix.plan.edits import apply
from splatfix.report import dry_run as report
from splatfix.report.dry_run import BesideThePoint, DryRun, ServedModule


class Trainer(Struct, frozen=True, kw_only=True):
    """A script of a checkout as it would be certified, and what that was decided by."""

    subject: StackSubject
    """Before anything is copied or made."""
    facts: Facts
    """Of the machine, with all of the checkout."""
    reach: Reach
    hosts: Mapping[str, Distribution]
    """The packages that drop-ins are a part of, by the names of these."""
    obstacle: Rejected | None
    """Why it cannot be run here."""


def read_trainer(request: CertifyRequest, *typed: str) -> Trainer:
    """Choose the script that is run, and read what it reaches and what it needs.

    Args:
        typed: other options, for the commands that name a script.

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
    script = prepare.choose_script(request, whole, *typed)
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
    obstacle = packages_obstacle(facts, python, CERTIFY_NEEDS) or gpu_obstacle(device, facts)
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
    return Trainer(subject=subject, facts=facts, reach=reach, hosts=hosts, obstacle=obstacle)


def stack_subject(request: CertifyRequest, folder: Path) -> tuple[StackSubject, Facts]:
    """Return the checkout with what stands in for its extensions on this device, and the facts of the machine with all of it.

    Args:
        folder: for what is made; it must outlast the run.

    Raises:
        SplatfixError: wrong options (exit code 2), missing prerequisites (3), or ``nothing-replaces-it`` (1).
    """
    trainer = read_trainer(request)
    subject, replacement = trainer.subject, trainer.subject.replacement
    if trainer.obstacle:
        raise trainer.obstacle.error()
    if subject.rehearsed and replacement.useless:
        raise SplatfixError.of(
            "app.nothing-replaces-it",
            exit_code=_exit_code_of(replacement.native),
            script=subject.script,
            refused=replacement.refused,
            folder=request.checkout,
        )
    subject = _with_mended_copy(subject, folder)
    subject = replace(subject, work=folder / "work")
    _copy(subject.source, subject.work)
    subject = prepare.with_scene(subject, folder)
    if not subject.rehearsed:
        return subject, trainer.facts

    # the drop-ins as they would be in site-packages, beside the Python of those that they are a part of
    packages = folder / "dropins"
    packages.mkdir()
    for name, host in trainer.hosts.items():
        without_kernels = shutil.ignore_patterns("*.so", "*.pyd", "csrc", "__pycache__")
        shutil.copytree(Path(host.location, name), packages / name, ignore=without_kernels)
    for item in replacement.dropins:
        with zipfile.ZipFile(make_dropin_wheel(item, __version__, folder / "wheels")) as wheel:
            wheel.extractall(packages)  # our own wheel, made a moment ago
    threads, because = prepare.threads_for(trainer.facts)
    subject = replace(subject, dropins=packages, threads=threads, threads_because=because)
    return subject, trainer.facts


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


def _exit_code_of(refused: Sequence[Native]) -> Exit:
    if not refused:
        return Exit.OK
    if any(item.undetermined for item in refused):
        return Exit.UNDETERMINED
    return Exit.FAILURE


def dry_run(request: CertifyRequest, *, why: bool) -> Result[DryRun]:
    """Say what a rehearsal would run on, from text alone; nothing is run, written or imported. What the run would refuse is
    refused too.

    Raises:
        SplatfixError: as :func:`read_trainer`.
    """
    trainer = read_trainer(request, "--dry-run")
    subject, checkout, replacement = trainer.subject, trainer.subject.checkout, trainer.subject.replacement
    called = {call.module for call in checkout.calls}
    refused = tuple(
        item
        for item in replacement.native
        if item.module in called or is_rasterizer(item.module) or not replacement.dropins
    )
    called |= {item.module for item in replacement.dropins if item.module in checkout.imports}
    draws = replacement.renderer or any(is_rasterizer(item.module) for item in replacement.dropins)
    if not refused and not (called and draws):
        refused = (Native("its rasterizer", "no call of one could be read", undetermined=True),)
    exit_code = _exit_code_of(refused)
    problem = trainer.obstacle
    if problem is None and subject.mends and not refused:
        problems = " ".join(f"{mend.summary.rstrip('.')} [{mend.code}]." for mend in subject.mends)
        steps = tuple(dict.fromkeys(step for mend in subject.mends for step in mend.remedy))
        problem = Rejected.of("app.not-as-it-is", todo=steps, problems=problems)
    error = None
    if problem:
        error, exit_code = problem.error(), exit_code or problem.exit_code
    # extensions that draw nothing: whether they can be had here is not for a rehearsal to say
    needs = [item.module for item in replacement.native if item not in refused]
    missing = (*subject.placeholders, *subject.standins)
    scripts = prepare.scripts_of(checkout, subject.script)
    result = DryRun(
        checkout=checkout.folder,
        stack=prepare.recognised_stack(trainer.facts.checkout.value or checkout)[1],
        script=subject.script,
        scripts=scripts,
        reached_by=trainer.reach.everything,
        dropins=_served(replacement, checkout),
        refused=refused,
        also_needed=tuple(dict.fromkeys((*needs, *(name for name in missing if name not in report.WITHOUT)))),
        other_scripts=tuple(name for name in all_trainers(request.checkout) if name not in scripts),
        beside_the_point=tuple(
            BesideThePoint(name, report.WITHOUT[name]) for name in missing if name in report.WITHOUT
        ),
        would_run=None if exit_code == Exit.UNDETERMINED and error is None else exit_code == Exit.OK,
    )
    return Result("certify dry-run", result, exit_code, error, verbose=why)


def _served(replacement: Replacement, checkout: Checkout) -> tuple[ServedModule, ...]:
    """Return the drop-ins, with what was read of the face of each."""
    empty = {item.path.rpartition("/")[2].replace("-", "_") for item in checkout.submodules if item.empty}
    calls: tuple[RenderCall | ExtensionCall, ...] = (*checkout.calls, *checkout.extension_calls)
    served = []
    for item in replacement.dropins:
        returns, assumed, read = "", "", tuple[tuple[str, str], ...]()
        if item.declared:
            returns, assumed, read = item.declared.words, item.declared.assumed, item.declared.read
        elif item.serves:
            read = (("its face", f"the table's {item.serves[0]}"),)
        called = [call for call in calls if item.module in (call.module, call.module.partition(".")[0])]
        if called and not any(places(called) in location for _, location in read):
            read = (*read, ("called", places(called)))
        if item.module in empty:
            read = (*read, ("its submodule", "is empty: judged by its calls and its address"))
        served.append(ServedModule(item.module, item.name, returns, read, assumed))
    return tuple(served)
