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
from splatfix.core.step import run, say
from splatfix.core.words import counted
from splatfix.knowledge import torch_releases
from splatfix.model import Evidence, Finding

check = checks_of("checkout")


@check("checkout-stack-unknown", "Which stack the checkout is")
def checkout_stack(context: Context, this: Check) -> Iterator[Finding]:
    """What a checkout is, is told by its addresses (its remote, what its README clones, its submodules), by files that only
    one stack has, and by its own call of the rasterizer; each is named. One that differs from the stack it was made from is
    called that, with the differences. Which variant it calls and how much memory it takes follow from that, unless the call
    is another. Asked for with `--repo DIR`."""
    checkout = context.checkout
    if checkout is None:
        if context.facts.checkout.error and not context.facts.checkout.absent:
            yield this.unknown(
                "The checkout could not be read.", evidence=reason(context.facts.checkout.error)
            )
        return
    commit = "no git commit"
    if checkout.commit:
        commit = f"commit {checkout.commit[:7]}"
    origin = commit
    if checkout.remote:
        origin += f" of {checkout.remote}"
    evidence = [Evidence(checkout.folder, origin, context.facts.checkout.found_via)]
    if checkout.calls:
        call = checkout.calls[0]
        evidence.append(Evidence(f"{call.file}:{call.line}", call_words(call), "its syntax tree"))
    if checkout.photos:
        photos = counted(checkout.photos, "photo")
        yield this.warn(
            f"{checkout.folder} holds {photos} and no code: there is no checkout to look at.",
            evidence=evidence,
            remedy=(
                run(
                    "splatfix", "scenes", "check", checkout.folder, text="See whether a trainer can load them"
                ),
                say("Or give the trainer's checkout with --repo."),
            ),
        )
        return
    recognition = recognise(checkout)
    if recognition is None:
        modules = ", ".join(sorted({call.module for call in checkout.calls}))
        origin = commit
        if modules:
            origin += f"; it calls {modules}"
        summary = f"{checkout.folder} is not a stack that splatfix knows ({origin})."
        yield this.skip(summary, evidence=evidence)
        return
    evidence += [Evidence("for it", text, "its own text") for text in recognition.evidence]
    evidence += [Evidence("against it", text, "its own text") for text in recognition.against]
    if recognition.call_fits is False:
        yield this.skip(
            f"{checkout.folder} is {recognition.words} ({commit}), and calls another rasterizer: "
            f"{recognition.difference}.",
            evidence=evidence,
        )
        return
    stack = recognition.stack
    needs = ", ".join((*stack.needs, *stack.also_needs)) or "nothing native"
    evidence.append(Evidence("needs", needs, stack.source))
    if stack.jit:
        evidence.append(Evidence("compiled when it runs", stack.jit, stack.source))
    if stack.arch_variable:
        evidence.append(Evidence("its architectures are chosen by", stack.arch_variable, stack.source))
    summary = f"{checkout.folder} is {recognition.words} ({commit})."
    if recognition.own:
        summary = f"{recognition.words}, {commit}."
    yield this.ok(summary, subject=stack.key, evidence=evidence)


@check("pinned-torch-too-old", "The torch that the checkout pins has code for the GPU")
def pinned_torch_too_old(context: Context, this: Check) -> Iterator[Finding]:
    """Most stacks still pin torch 1.12 and CUDA 11.6 in their environment file. No build of that release carries code for
    a newer GPU, so the environment that the file describes cannot work there. Said only where torch is not installed yet."""
    pin = pinned_torch(context)
    if pin is None:
        return
    version = pin.spec.removeprefix("==")
    platform = context.platform or "linux"
    for target in context.targets:
        builds = torch_releases.builds_for_arch(
            target.arch, platform, context.machine.machine, torch=version, include_unknown=True
        )
        if not builds:
            yield this.warn(
                f"{pin.file} pins torch {version}; none of its builds has code for {target.label}.",
                subject=target.label,
                evidence=Evidence(pin.file, f"{pin.name}{pin.spec}", "its text"),
                remedy=(
                    "Leave that file aside and install a torch for this GPU first:",
                    *torch_for(context, (target,)),
                ),
            )


@check("gsplat-version-mismatch", "The gsplat that the checkout pins is the one installed")
def gsplat_version_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    """gsplat changes its interface between releases: before 1.0 other functions, from 1.5 on radii with a last dimension of
    two, which splatfacto unpacks wrongly. A stack that pins a release means it."""
    checkout, gsplat = context.checkout, context.distribution("gsplat")
    if checkout is None or gsplat is None:
        return
    pin = next((pin for pin in checkout.pins if pin.name.lower() == "gsplat"), None)
    # a range leaves the choice to pip
    if pin is None or not pin.spec.startswith("=="):
        return
    version = pin.spec.removeprefix("==")
    evidence = (Evidence(pin.file, f"gsplat{pin.spec}", "its text"), version_of(context, "gsplat"))
    if gsplat.version.partition("+")[0] == version:
        yield this.ok(f"gsplat {gsplat.version} is the one that is pinned.", evidence=evidence)
    else:
        yield this.warn(
            f"{pin.file} pins gsplat {version}; {gsplat.version} is installed.",
            evidence=evidence,
            remedy=pip(context.facts, "install", f"gsplat=={version}"),
        )


@check("vram-too-small", "The GPU has enough memory for the stack's defaults")
def vram_for_stack(context: Context, this: Check) -> Iterator[Finding]:
    """What a stack takes with its defaults on seven public scenes, as `splatfix vram` foretells it from the stack's parts and
    published runs. A GPU below the average runs out of memory on most scenes unless photos are kept on the CPU or made smaller.
    For a scene of your own, ask `splatfix vram --scene DIR`."""
    if context.checkout is None or not context.nvidia_gpus:
        return
    recognition = recognise(context.checkout)
    if recognition is None or not recognition.own or recognition.call_fits is False:
        return
    stack = recognition.stack
    needs = usual_needs(stack.key)
    card = context.largest_card
    if card is None or not needs:
        return
    _, largest = card
    peaks = {need: highest_peak(need) or 0 for need in needs}
    mean, most = sum(peaks.values()) / len(peaks), max(peaks.values())
    evidence = (
        Evidence("largest GPU for one program", f"{largest / 1e9:.1f} GB", context.machine.gpus.found_via),
        Evidence(stack.name, f"{mean / 1e9:.1f} GB on average, {most / 1e9:.1f} GB at most", BASIS),
    )
    limit = int(LIMIT * largest)
    if limit < mean:
        hardest = max(peaks, key=lambda need: peaks[need])
        options = [change.option for change in changes_for(hardest, limit) if change.saves_bytes]
        ask = run("splatfix", "vram", "--stack", stack.key, "--scene", "SCENE", text="Ask it of your scene")
        remedy = [ask]
        if options:
            remedy.insert(0, say(f"Train with {', '.join(options)}."))
        yield this.warn(
            f"{stack.name} takes {mean / 1e9:.1f} GB on average; the GPU has {largest / 1e9:.1f} GB.",
            evidence=evidence,
            remedy=tuple(remedy),
        )
    else:
        scenes = "any published scene"
        if limit < most:
            scenes = f"most scenes; the largest takes {most / 1e9:.1f} GB"
        yield this.ok(f"The GPU's {largest / 1e9:.1f} GB hold {scenes}.", evidence=evidence)


@check("unreadable-source", "Files of the checkout can be read")
def unreadable_source(context: Context, this: Check) -> Iterator[Finding]:
    """A checkout is read within limits on the size of a file, its nesting and the number of files and folders; pipes, devices
    and Python that this version cannot read are left out too. What is left out may hold what another check looks for."""
    checkout = context.checkout
    if checkout is not None:
        yield from unread_files(this, checkout.unreadable, f"{checkout.folder}/")
