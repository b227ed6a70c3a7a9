"""``splatfix certify --dry-run --repo``: what a checkout's trainer would run on, from text alone."""

from __future__ import annotations

from msgspec.structs import replace

from splatfix.app.rehearse import hosts_of, replacement_of, require_imported_submodules, usable_device
from splatfix.app.result import Result, target_python
from splatfix.certify import RehearseRequest, device_for
from splatfix.certify.stacks.entry import choose_script, reached_by, scripts_of
from splatfix.certify.stacks.prepare import find_gaps, recognised_stack
from splatfix.context import Goal, make_context
from splatfix.core.codec import to_json
from splatfix.core.errors import Exit, Rejected, SplatfixError
from splatfix.facts import gather
from splatfix.facts.checkout import all_trainers, with_checkout
from splatfix.knowledge.breakages import source_patterns
from splatfix.knowledge.dropins import is_rasterizer
from splatfix.model import Checkout, ExtensionCall, RenderCall
from splatfix.model.option import Native, Replacement
from splatfix.plan.faces import places
from splatfix.report import dry_run as report
from splatfix.report.dry_run import BesideThePoint, DryRun, ServedModule


def dry_run(request: RehearseRequest, *, why: bool) -> Result:
    """Say what a rehearsal would run on; nothing is run, written or imported. What the run would refuse is refused too.

    Raises:
        SplatfixError: ``not-a-folder``, ``not-a-checkout``, ``no-such-script``, ``which-script``, ``no-trainer``,
            ``wrong-face`` (exit code 2), ``source-incomplete`` (1).
    """
    if not request.checkout.is_dir():
        raise SplatfixError.of("app.not-a-folder", folder=request.checkout)
    python = target_python(request.python)
    facts = with_checkout(gather(python), request.checkout, source_patterns())
    checkout = facts.checkout.value
    if checkout is None:
        raise SplatfixError.of("app.not-a-checkout", checkout=request.checkout, error=facts.checkout.error)
    script = choose_script(request, checkout, "--dry-run")
    scripts = scripts_of(checkout, script)
    reached, reach = reached_by(checkout, script)
    replacement = replacement_of(request, reached, reach)
    called = {call.module for call in reached.calls}
    refused = tuple(
        item
        for item in replacement.native
        if item.module in called or is_rasterizer(item.module) or not replacement.dropins
    )
    called |= {item.module for item in replacement.dropins if item.module in reached.imports}
    if not refused and not (called and replacement.draws):
        refused = (Native("its rasterizer", "no call of one could be read", undetermined=True),)
    exit_code = Exit.OK
    if refused:
        exit_code = Exit.FAILURE
        if any(item.undetermined for item in refused):
            exit_code = Exit.UNDETERMINED
    context = make_context(replace(facts, checkout=replace(facts.checkout, value=reached)), Goal())
    gaps = find_gaps(context, reached, rehearsed=device_for(request.device, facts) == "cpu")
    problem: Rejected | None = None
    for prerequisite in (usable_device(request, python, facts), hosts_of(replacement, context)):
        if problem is None and isinstance(prerequisite, Rejected):
            problem = prerequisite
    if problem is None and gaps.mends and not refused:
        problems = " ".join(f"{mend.summary.rstrip('.')} [{mend.code}]." for mend in gaps.mends)
        steps = tuple(dict.fromkeys(step for mend in gaps.mends for step in mend.remedy))
        problem = Rejected.of("app.not-as-it-is", todo=steps, problems=problems)
    if problem:
        exit_code = exit_code or problem.exit_code
    names = (*gaps.placeholders, *gaps.standins)
    needs = tuple(name for name in names if name not in report.WITHOUT)
    beside = [BesideThePoint(name, report.WITHOUT[name]) for name in names if name in report.WITHOUT]
    require_imported_submodules(reached, needs)
    # extensions that draw nothing: whether they can be had here is not for a rehearsal to say
    needs = (*(item.module for item in replacement.native if item not in refused), *needs)
    result = DryRun(
        checkout=checkout.folder,
        stack=recognised_stack(checkout)[1],
        script=script,
        scripts=scripts,
        reached_by=reach.everything,
        dropins=_served(replacement, reached),
        refused=refused,
        also_needed=tuple(dict.fromkeys(needs)),
        other_scripts=tuple(name for name in all_trainers(request.checkout) if name not in scripts),
        beside_the_point=tuple(beside),
    )
    return Result(
        "certify dry-run",
        lambda: to_json(result),
        lambda console: report.show(console, result, exit_code, why=why, is_refused=problem is not None),
        exit_code,
        problem.error() if problem else None,
    )


def _served(replacement: Replacement, checkout: Checkout) -> tuple[ServedModule, ...]:
    """The drop-ins, with what was read of the face of each."""
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
