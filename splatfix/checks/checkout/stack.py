"""Checks of what stack a checkout is: its name and commit, its pins against this machine, the memory its defaults take."""

from collections.abc import Iterator

from splatfix.budget.changes import changes_for, highest_peak
from splatfix.budget.expected import BASIS, usual_needs
from splatfix.budget.model import LIMIT
from splatfix.checks.checkout.rasterizer_calls import call_words
from splatfix.checks.checkout.recognition import recognise
from splatfix.checks.evidence import reason, unread_files, version_of
from splatfix.checks.registry import Check, checks_of
from splatfix.checks.torch import pinned_torch, torch_for
from splatfix.context import Context
from splatfix.context.commands import pip
from splatfix.core.step import Step, say
from splatfix.core.words import counted
from splatfix.knowledge import torch_releases
from splatfix.model import Evidence, Finding

check = checks_of("checkout")


@check("checkout-stack-unknown")
def checkout_stack_unknown(context: Context, this: Check) -> Iterator[Finding]:
    checkout, fact = context.checkout, context.facts.checkout
    if checkout is None:
        if fact.error and not fact.absent:
            yield this.unknown(evidence=reason(fact.error))
        return
    commit = "no git commit"
    if checkout.commit:
        commit = f"commit {checkout.commit[:7]}"
    origin = commit
    if checkout.remote:
        origin += f" of {checkout.remote}"
    evidence = [Evidence(checkout.folder, origin, fact.found_via)]
    if checkout.calls:
        call = checkout.calls[0]
        evidence.append(Evidence(f"{call.file}:{call.line}", call_words(call), "its syntax tree"))
    report, case, subject, recognition = this.skip, "strange", "", recognise(checkout)
    modules = ", ".join(sorted({call.module for call in checkout.calls}))
    if checkout.photos:
        report, case = this.warn, "photos"
    elif recognition is not None:
        evidence += [Evidence("for it", text, "its own text") for text in recognition.evidence]
        evidence += [Evidence("against it", text, "its own text") for text in recognition.against]
        case = "other-rasterizer"
        if recognition.call_fits is not False:
            report, case = this.ok, "" if recognition.own else "made-from"
            stack, subject = recognition.stack, recognition.stack.key
            needs = ", ".join((*stack.needs, *stack.also_needs)) or "nothing native"
            evidence.append(Evidence("needs", needs, stack.source))
            if stack.jit:
                evidence.append(Evidence("compiled when it runs", stack.jit, stack.source))
            if stack.arch_variable:
                chosen = Evidence("its architectures are chosen by", stack.arch_variable, stack.source)
                evidence.append(chosen)
    elif modules:
        case = "strange-calls"
    yield report(
        case,
        subject=subject,
        evidence=evidence,
        checkout=checkout,
        commit=commit,
        photos=counted(checkout.photos, "photo"),
        modules=modules,
        stack=recognition,
    )


@check("pinned-torch-too-old")
def pinned_torch_too_old(context: Context, this: Check) -> Iterator[Finding]:
    pin = pinned_torch(context)
    if pin is None:
        return
    version, platform = pin.spec.removeprefix("=="), context.platform or "linux"
    for target in context.targets:
        builds = torch_releases.builds_for_arch(
            target.arch, platform, context.machine.machine, torch=version, include_unknown=True
        )
        if not builds:
            yield this.warn(
                subject=target.label,
                evidence=Evidence(pin.file, f"{pin.name}{pin.spec}", "its text"),
                pin=pin,
                version=version,
                target=target,
                install=torch_for(context, (target,)),
            )


@check("gsplat-version-mismatch")
def gsplat_version_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    checkout, gsplat = context.checkout, context.distribution("gsplat")
    if checkout is None or gsplat is None:
        return
    pin = next((pin for pin in checkout.pins if pin.name.lower() == "gsplat"), None)
    # a range leaves the choice to pip
    if pin is None or not pin.spec.startswith("=="):
        return
    version = pin.spec.removeprefix("==")
    report = this.ok if gsplat.version.partition("+")[0] == version else this.warn
    yield report(
        evidence=(Evidence(pin.file, f"gsplat{pin.spec}", "its text"), version_of(context, "gsplat")),
        pin=pin,
        version=version,
        gsplat=gsplat,
        install=pip(context.facts, "install", f"gsplat=={version}"),
    )


@check("vram-too-small")
def vram_too_small(context: Context, this: Check) -> Iterator[Finding]:
    if context.checkout is None or not context.nvidia_gpus:
        return
    recognition = recognise(context.checkout)
    if recognition is None or not recognition.own or recognition.call_fits is False:
        return
    stack, card = recognition.stack, context.largest_card
    needs = usual_needs(stack.key)
    if card is None or not needs:
        return
    peaks = {need: highest_peak(need) or 0 for need in needs}
    mean, most = sum(peaks.values()) / len(peaks), max(peaks.values())
    limit = int(LIMIT * card[1])
    report, case, smaller = this.ok, "", list[Step]()
    if limit < mean:
        report = this.warn
        hardest = max(peaks, key=lambda need: peaks[need])
        options = [change.option for change in changes_for(hardest, limit) if change.saves_bytes]
        if options:
            smaller.append(say(f"Train with {', '.join(options)}."))
    elif limit < most:
        case = "most"
    memory = Evidence(
        "largest GPU for one program", f"{card[1] / 1e9:.1f} GB", context.machine.gpus.found_via
    )
    needed = Evidence(stack.name, f"{mean / 1e9:.1f} GB on average, {most / 1e9:.1f} GB at most", BASIS)
    yield report(
        case,
        evidence=(memory, needed),
        stack=stack,
        memory=card[1] / 1e9,
        mean=mean / 1e9,
        most=most / 1e9,
        smaller=smaller,
    )


@check("unreadable-source")
def unreadable_source(context: Context, this: Check) -> Iterator[Finding]:
    checkout = context.checkout
    if checkout is not None:
        yield from unread_files(this, checkout.unreadable, f"{checkout.folder}/")
