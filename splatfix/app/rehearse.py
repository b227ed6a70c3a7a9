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
from splatfix.certify import Mend, RehearseRequest, device_for
from splatfix.certify.prerequisites import CERTIFY_NEEDS, gpu_obstacle, packages_obstacle
from splatfix.certify.stacks import prepare
from splatfix.certify.stacks.entry import choose_script, not_called_by, reached_by, scripts_of
from splatfix.certify.stacks.subject import Gaps, StackSubject
from splatfix.certify.stacks.threads import threads_for
from splatfix.checks.checkout.code_shapes import source_patterns
from splatfix.checks.checkout.faces import order_of, places
from splatfix.context import Context, Goal, make_context
from splatfix.context.submodules import module_of
from splatfix.core.errors import Exit, Rejected, SplatfixError
from splatfix.core.files import write_text
from splatfix.facts import gather
from splatfix.facts.checkout import Reach, all_trainers, with_checkout
from splatfix.facts.source.copying import copy_source, missed
from splatfix.install.dropins import make_dropin_wheel
from splatfix.knowledge.breakages import breakage
from splatfix.knowledge.dropins import DROPINS, is_rasterizer
from splatfix.model import Checkout, Distribution, ExtensionCall, Facts, RenderCall
from splatfix.model.option import Native, Replacement
from splatfix.plan.checkout import incomplete
from splatfix.plan.dropins import replacement_for, served_host
from splatfix.plan.edits import apply
from splatfix.report import dry_run as report
from splatfix.report.dry_run import BesideThePoint, DryRun, ServedModule


class Trainer(Struct, frozen=True, kw_only=True):
    """A script of a checkout, what of the checkout it reaches, and what it runs on."""

    python: str
    facts: Facts
    """Of the machine, with all of the checkout."""
    device: str
    script: str
    reach: Reach
    checkout: Checkout
    """As far as it is reached."""
    context: Context
    replacement: Replacement
    """The drop-ins for what it reaches, and what of that has none."""
    hosts: Mapping[str, Distribution]
    """The packages that drop-ins are a part of, by the names of these."""
    gaps: Gaps
    obstacle: Rejected | None
    """Why it cannot be run here."""


def dry_run(request: RehearseRequest, *, why: bool) -> Result[DryRun]:
    """Say what a rehearsal would run on, from text alone; nothing is run, written or imported. What the run would refuse is
    refused too.

    Raises:
        SplatfixError: ``not-a-folder``, ``not-a-checkout``, ``no-such-script``, ``which-script``, ``no-trainer``,
            ``wrong-face`` (exit code 2), ``source-incomplete`` (1).
    """
    trainer = _read_trainer(request, "--dry-run")
    checkout, replacement, gaps = trainer.checkout, trainer.replacement, trainer.gaps
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
    if problem is None and gaps.mends and not refused:
        problems = " ".join(f"{mend.summary.rstrip('.')} [{mend.code}]." for mend in gaps.mends)
        steps = tuple(dict.fromkeys(step for mend in gaps.mends for step in mend.remedy))
        problem = Rejected.of("app.not-as-it-is", todo=steps, problems=problems)
    error = None
    if problem:
        error, exit_code = problem.error(), exit_code or problem.exit_code
    # extensions that draw nothing: whether they can be had here is not for a rehearsal to say
    needs = [item.module for item in replacement.native if item not in refused]
    beside = []
    for name in (*gaps.placeholders, *gaps.standins):
        if name in report.WITHOUT:
            beside.append(BesideThePoint(name, report.WITHOUT[name]))
        else:
            needs.append(name)
    scripts = scripts_of(checkout, trainer.script)
    result = DryRun(
        checkout=checkout.folder,
        stack=prepare.recognised_stack(trainer.facts.checkout.value or checkout)[1],
        script=trainer.script,
        scripts=scripts,
        reached_by=trainer.reach.everything,
        dropins=_served(replacement, checkout),
        refused=refused,
        also_needed=tuple(dict.fromkeys(needs)),
        other_scripts=tuple(name for name in all_trainers(request.checkout) if name not in scripts),
        beside_the_point=tuple(beside),
        would_run=None if exit_code == Exit.UNDETERMINED and error is None else exit_code == Exit.OK,
    )
    return Result("certify dry-run", result, exit_code, error, verbose=why)


def _served(replacement: Replacement, checkout: Checkout) -> tuple[ServedModule, ...]:
    """Return the drop-ins, with what was read of the face of each."""
    empty = {item.path.rpartition("/")[2].replace("-", "_") for item in checkout.submodules if item.empty}
    served = []
    for item in replacement.dropins:
        returns, assumed, read = "", "", tuple[tuple[str, str], ...]()
        if item.declared:
            returns, assumed, read = item.declared.words, item.declared.assumed, item.declared.read
        elif item.serves:
            read = (("its face", f"the table's {item.serves[0]}"),)
        calls: tuple[RenderCall | ExtensionCall, ...] = (*checkout.calls, *checkout.extension_calls)
        called = [call for call in calls if item.module in (call.module, call.module.partition(".")[0])]
        if called and not any(places(called) in location for _, location in read):
            read = (*read, ("called", places(called)))
        if item.module in empty:
            read = (*read, ("its submodule", "is empty: judged by its calls and its address"))
        served.append(ServedModule(item.module, item.name, returns, read, assumed))
    return tuple(served)


def _read_trainer(request: RehearseRequest, *typed: str) -> Trainer:
    """Choose the script that is run, and read what it reaches and what it needs.

    Args:
        typed: other options, for the commands that name a script.

    Raises:
        SplatfixError: ``source-incomplete``, where it imports what an empty submodule holds: a renderer of another name than
            any extension's.
    """
    if not request.checkout.is_dir():
        raise SplatfixError.of("app.not-a-folder", folder=request.checkout)
    python = target_python(request.python)
    facts = with_checkout(gather(python), request.checkout, source_patterns())
    checkout = facts.checkout.value
    if checkout is None:
        raise SplatfixError.of("app.not-a-checkout", checkout=request.checkout, error=facts.checkout.error)
    script = choose_script(request, checkout, *typed)
    checkout, reach = reached_by(checkout, script)
    context = make_context(replace(facts, checkout=replace(facts.checkout, value=checkout)), Goal())
    replacement = replacement_for(checkout, order_of(request.face) if request.face else ())
    native = replacement.native
    if not reach.everything:
        native = tuple(item for item in native if item.module.partition(".")[0] in reach.modules)
    # what an import in a try asks for is no need of the checkout, and yet what runs where it is installed
    guarded = {item.module for item in checkout.guarded} - {item.module for item in replacement.dropins}
    beside = tuple(item for item in DROPINS if item.module in guarded and not item.variant)
    dropins = (*replacement.dropins, *beside)
    device = device_for(request.device, facts)
    obstacle = packages_obstacle(facts, python, CERTIFY_NEEDS) or gpu_obstacle(device, facts)
    if obstacle is None and request.scene and not request.scene.is_dir():
        obstacle = Rejected.of("app.no-scene", scene=request.scene)
    hosts: dict[str, Distribution] = {}
    for dropin in dropins:
        host = served_host(context, dropin) if dropin.host else None
        if isinstance(host, Rejected):
            obstacle = obstacle or host
        elif host:
            hosts[dropin.name] = host
    gaps = prepare.find_gaps(context, checkout, rehearsed=device == "cpu")
    empty = [item for item in checkout.submodules if item.empty]
    if paths := [item.path for item in empty if module_of(item, checkout) in gaps.placeholders]:
        raise incomplete(checkout.folder, Path(checkout.folder), paths).error()
    return Trainer(
        python=python,
        facts=facts,
        device=device,
        script=script,
        reach=reach,
        checkout=checkout,
        context=context,
        replacement=Replacement(dropins, native),
        hosts=hosts,
        gaps=gaps,
        obstacle=obstacle,
    )


def _exit_code_of(refused: Sequence[Native]) -> Exit:
    if not refused:
        return Exit.OK
    if any(item.undetermined for item in refused):
        return Exit.UNDETERMINED
    return Exit.FAILURE


def stack_subject(request: RehearseRequest, folder: Path) -> tuple[StackSubject, Facts]:
    """Return the checkout with what stands in for its extensions on this device, and the facts of the machine with all of it.

    Args:
        folder: for what is made; it must outlast the run.

    Raises:
        SplatfixError: wrong options (exit code 2), missing prerequisites (3), or ``nothing-replaces-it`` (1).
    """
    trainer = _read_trainer(request)
    if trainer.obstacle:
        raise trainer.obstacle.error()
    checkout, script, replacement = trainer.checkout, trainer.script, trainer.replacement
    rehearsed = trainer.device == "cpu"
    if rehearsed and replacement.useless:
        raise SplatfixError.of(
            "app.nothing-replaces-it",
            exit_code=_exit_code_of(replacement.native),
            script=script,
            refused=replacement.refused,
            folder=request.checkout,
        )
    source, mends = _mended_copy(checkout, trainer.gaps.mends, folder)
    work = folder / "work"
    _copy(source, work)
    key, name = prepare.recognised_stack(checkout)
    uncalled = not_called_by(checkout, script)
    served = [item.module for item in replacement.dropins]
    served += [item.module for item in replacement.native]
    subject = StackSubject(
        request=request,
        python=trainer.python,
        device=trainer.device,
        checkout=Path(checkout.folder),
        source=source,
        work=work,
        name=name,
        key=key,
        remote=checkout.remote,
        commit=checkout.commit or "",
        script=script,
        scene=prepare.choose_scene(request, folder, rehearsed=rehearsed),
        iterations=prepare.length_of(request, key, rehearsed=rehearsed),
        extensions=tuple(
            name for name in prepare.called_extensions(checkout, served) if name not in uncalled
        ),
        gaps=replace(trainer.gaps, mends=mends),
        needed=tuple(item.name for item in checkout.needs if not item.beside),
        resumes=prepare.checkpoint_loads(trainer.context),
    )
    if not rehearsed:
        return subject, trainer.facts
    declared = [(item.module, item.declared.assumed) for item in replacement.dropins if item.declared]
    subject = replace(
        subject,
        dropins=_unpacked(replacement, trainer.hosts, folder),
        dropin_names=(*replacement.names, *trainer.gaps.standins),
        assumed=tuple(f"{module}: {assumed}" for module, assumed in declared if assumed),
        threads=threads_for(trainer.facts),
    )
    return subject, trainer.facts


def _unpacked(replacement: Replacement, hosts: Mapping[str, Distribution], folder: Path) -> Path:
    """Make a folder with the drop-ins as they would be in site-packages, beside the Python of those that they are a part of."""
    packages = folder / "dropins"
    packages.mkdir()
    for name, host in hosts.items():
        without_kernels = shutil.ignore_patterns("*.so", "*.pyd", "csrc", "__pycache__")
        shutil.copytree(Path(host.location, name), packages / name, ignore=without_kernels)
    for item in replacement.dropins:
        with zipfile.ZipFile(make_dropin_wheel(item, __version__, folder / "wheels")) as wheel:
            wheel.extractall(packages)  # our own wheel, made a moment ago
    return packages


def _copy(source: Path, destination: Path) -> None:
    for text in missed(copy_source(source, destination)):
        show_message(f"Not copied for the run: {text}.")


def _mended_copy(checkout: Checkout, mends: tuple[Mend, ...], folder: Path) -> tuple[Path, tuple[Mend, ...]]:
    """What is run: the checkout itself, or where a known edit mends its own Python code a scratch copy with the edits made."""
    edits = prepare.known_edits(checkout, mends)
    if not edits:
        return Path(checkout.folder), mends
    copy = folder / Path(checkout.folder).name
    _copy(Path(checkout.folder), copy)
    edited = set()
    for file, keys in edits.items():
        if not (copy / file).is_file():  # behind a link that leads out
            continue
        text = (copy / file).read_text(encoding="utf-8", errors="surrogateescape")
        for key in keys:
            record = breakage(key)
            text = apply(record, text)
            if record.check:
                edited.add(record.check.code)
        write_text(copy / file, text)
    return copy, tuple(replace(item, edited=item.code in edited) for item in mends)
