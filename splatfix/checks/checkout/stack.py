"""Checks of what stack a checkout is: its name and commit, its pins against this machine, the memory its defaults take."""

from __future__ import annotations

import re
from collections.abc import Iterator

from splatfix.checks.checkout.rasterizer_calls import call_words
from splatfix.checks.checkout.recognition import recognise, stack_of
from splatfix.checks.evidence import reason, unread_files, version_of
from splatfix.checks.model import Evidence, Finding
from splatfix.checks.registry import Check, check
from splatfix.checks.torch import torch_for
from splatfix.context import Context
from splatfix.core.step import run, say
from splatfix.core.words import counted
from splatfix.facts import Gpu
from splatfix.knowledge import torch_releases


@check("checkout-stack-unknown", family="checkout", title="Which stack the checkout is")
def checkout_stack(context: Context, this: Check) -> Iterator[Finding]:
    """What a checkout is, is told by its addresses (its remote, what its README clones, its submodules), by files that only
    one stack has, and by its own call of the rasterizer; each is named. One that differs from the stack it was made from is
    called that, with the differences. Which variant it calls and how much memory it takes follow from that, unless the call
    is another. Asked for with `--repo DIR`."""
    found = context.checkout
    if found is None:
        if context.facts.checkout.error:
            yield this.unknown("The checkout could not be read.", evidence=reason(context.facts.checkout))
        return
    where = f"commit {found.commit[:7]}" if found.commit else "no git commit"
    evidence = (
        Evidence(
            found.folder,
            f"{where}{f' of {found.remote}' if found.remote else ''}",
            context.facts.checkout.found_via,
        ),
        *(
            Evidence(f"{call.file}:{call.line}", call_words(call), "its syntax tree")
            for call in found.calls[:1]
        ),
    )
    if found.photos:
        yield this.warn(
            f"{found.folder} holds {counted(found.photos, 'photo')} and no code: there is no checkout to look at.",
            evidence=evidence,
            remedy=(
                run("splatfix", "scenes", "check", found.folder, text="See whether a trainer can load them"),
                say("Or give the trainer's checkout with --repo."),
            ),
        )
        return
    seen = recognise(found)
    if seen is None:
        called = ", ".join(sorted({call.module for call in found.calls}))
        what = f"; it calls {called}" if called else ""
        yield this.skip(
            f"{found.folder} is not a stack that splatfix knows ({where}{what}).", evidence=evidence
        )
        return
    evidence += tuple(Evidence("for it", text, "its own text") for text in seen.evidence)
    evidence += tuple(Evidence("against it", text, "its own text") for text in seen.against)
    if seen.call_fits is False:
        yield this.skip(
            f"{found.folder} is {seen.words} ({where}), and calls another rasterizer: {seen.difference}.",
            evidence=evidence,
        )
        return
    stack = seen.stack
    needs = ", ".join((*stack.needs, *stack.also_needs)) or "nothing native"
    extra = {"compiled when it runs": stack.jit, "its architectures are chosen by": stack.arch_variable}
    yield this.ok(
        f"{seen.words}, {where}." if seen.own else f"{found.folder} is {seen.words} ({where}).",
        subject=stack.key,
        evidence=(
            *evidence,
            Evidence("needs", needs, stack.source),
            *(Evidence(name, text, stack.source) for name, text in extra.items() if text),
        ),
    )


@check(
    "pinned-torch-too-old", family="checkout", title="The torch that the checkout pins has code for the GPU"
)
def pinned_torch_too_old(context: Context, this: Check) -> Iterator[Finding]:
    """Most stacks still pin torch 1.12 and CUDA 11.6 in their environment file. No build of that release carries code for
    a newer GPU, so the environment that the file describes cannot work there. Said only where torch is not installed yet."""
    found = context.checkout
    if found is None or context.environment.torch_installed.value is not False:
        return
    pin = next(
        (
            item
            for item in found.pins
            if item.name.lower() in ("torch", "pytorch") and item.spec.startswith("==")
        ),
        None,
    )
    if pin is None or torch_releases.release(pin.spec.removeprefix("==")) is None:
        return
    for target in context.targets:
        version = pin.spec.removeprefix("==")
        if not torch_releases.builds_for_arch(
            target.arch,
            context.platform or "linux",
            context.machine.machine,
            torch=version,
            include_unknown=True,
        ):
            yield this.warn(
                f"{pin.file} pins torch {version}; none of its builds has code for {target.label}.",
                subject=target.label,
                evidence=Evidence(pin.file, f"{pin.name}{pin.spec}", "its text"),
                remedy=(
                    "Leave that file aside and install a torch for this GPU first:",
                    *torch_for(context, (target,)),
                ),
            )


@check(
    "gsplat-version-mismatch",
    family="checkout",
    title="The gsplat that the checkout pins is the one installed",
)
def gsplat_version_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    """gsplat changes its interface between releases: before 1.0 other functions, from 1.5 on radii with a last dimension of
    two, which splatfacto unpacks wrongly. A stack that pins a release means it."""
    found = context.checkout
    have = context.distribution("gsplat")
    pin = next((item for item in (found.pins if found else ()) if item.name.lower() == "gsplat"), None)
    if have is None or pin is None or not pin.spec.startswith("=="):
        return
    wanted = pin.spec.removeprefix("==")
    evidence = (Evidence(pin.file, f"gsplat{pin.spec}", "its text"), version_of(context, "gsplat"))
    if have.version.partition("+")[0] == wanted:
        yield this.ok(f"gsplat {have.version} is the one that is pinned.", evidence=evidence)
    else:
        yield this.warn(
            f"{pin.file} pins gsplat {wanted}; {have.version} is installed.",
            evidence=evidence,
            remedy=context.pip("install", f"gsplat=={wanted}"),
        )


@check("vram-too-small", family="checkout", title="The GPU has enough memory for the stack's defaults")
def vram_for_stack(context: Context, this: Check) -> Iterator[Finding]:
    """Published runs tell how much GPU memory a stack takes with its defaults, on average and at most. A GPU below the
    average runs out of memory on most scenes unless images are kept on the CPU or made smaller."""
    found = context.checkout
    stack = stack_of(found) if found else None
    if stack is None or stack.vram_gb is None or not context.has_nvidia_gpu:
        return
    hidden = context.hidden_gpus
    sizes = [
        _for_one_program(gpu)
        for gpu in context.machine.gpus.value or ()
        if gpu.vendor == "nvidia" and gpu.index not in hidden
    ]
    known = [size for size in sizes if size]
    if not known:
        return
    mean, most = stack.vram_gb
    have = max(known) / 1e9
    evidence = (
        Evidence("largest GPU for one program", f"{have:.1f} GB", context.machine.gpus.found_via),
        Evidence(stack.name, f"{mean} GB on average, {most} GB at most", stack.source),
    )
    if have < mean:
        yield this.warn(
            f"{stack.name} takes {mean} GB on average; the GPU has {have:.1f} GB.",
            evidence=evidence,
            remedy="Train with --data_device cpu, a lower resolution (-r 4), or a cap on the number of Gaussians.",
        )
    else:
        words = "any published scene" if have >= most else f"most scenes; the largest takes {most} GB"
        yield this.ok(f"The GPU's {have:.1f} GB hold {words}.", evidence=evidence)


def _for_one_program(gpu: Gpu) -> float | None:
    """Bytes that one program can have of a card: all, or those of its largest MIG instance (``MIG 3g.40gb``); None: not known."""
    if not gpu.mig:
        return gpu.memory_total
    found = [re.search(r"\b\d+g\.(\d+)gb", name) for name in gpu.mig_devices]
    return max((int(match.group(1)) * 1e9 for match in found if match), default=None)


@check("unreadable-source", family="checkout", title="Files of the checkout can be read")
def unreadable_source(context: Context, this: Check) -> Iterator[Finding]:
    """A checkout is read within limits on the size of a file, its nesting and the number of files and folders; pipes, devices
    and Python that this version cannot read are left out too. What is left out may hold what another check looks for."""
    found = context.checkout
    if found is not None:
        yield from unread_files(this, found.unreadable, f"{found.folder}/")
