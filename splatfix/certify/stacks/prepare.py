"""What a stack's own trainer needs before it runs: its script, its extensions, what to mend and to leave out, threads."""

import os
from pathlib import Path

from msgspec.structs import replace

from splatfix.certify.criteria.running import METRICS, RENDER
from splatfix.certify.model import Mend
from splatfix.certify.request import CertifyRequest
from splatfix.certify.stacks.subject import StackSubject
from splatfix.checks import run_checks, select
from splatfix.checks.checkout.recognition import recognise
from splatfix.context import Context
from splatfix.context.imports import brought_by, missing_modules
from splatfix.core.errors import SplatfixError
from splatfix.core.step import run, value_options
from splatfix.facts.checkout import as_reached, find_trainers
from splatfix.knowledge.breakages import breakages
from splatfix.model import Checkout, Fact, Facts, Status

ITERATIONS, GPU_ITERATIONS = 120, 1000
"""Without a GPU: the prototype's, after which each of six trainers had a loss below half of its first."""
STANDINS = frozenset({"torch_scatter"})
"""Compiled packages beside the splatting extensions that a rehearsal can do without."""
THREADS = "OMP_NUM_THREADS"
MOST_THREADS = 8
"""A rehearsal's tensors, of some thousand Gaussians at 128 px, keep no more busy."""
CORES_A_THREAD = 2
"""Of so many idle cores one thread: two threads on two cores that others use too took 5 to 25 times as long as one, and on idle
ones 0.8 of its time (torch 2.13, measured). OpenMP threads that wait for one another lose their time slices to other programs."""
_MOST_LISTED = 8


def choose_script(request: CertifyRequest, checkout: Checkout) -> str:
    """Return the trainer that was asked for, else ``train.py``, else the only one; a refusal repeats the other options.

    Raises:
        SplatfixError: ``no-such-script``, ``which-script``, ``no-trainer`` (exit code 2).
    """
    root, folder = Path(checkout.folder), request.checkout
    if request.script and (root / request.script).is_file():
        return Path(request.script).as_posix()
    trainers = find_trainers(root)
    options = {"--scene": request.scene, "--python": request.python, "--face": request.face or None}
    words = ("splatfix", "certify", "--repo", str(folder), *value_options(options))
    todo = tuple(run(*words, "--script", name) for name in trainers[:_MOST_LISTED])
    if request.script:
        raise SplatfixError.of("certify.no-such-script", checkout=folder, script=request.script, todo=todo)
    if len(trainers) > 1:
        raise SplatfixError.of("certify.which-script", checkout=folder, todo=todo)
    if trainers:
        return trainers[0]
    own = next((item.source for item in checkout.sources if item.path == "."), checkout.package)
    if own is None:
        raise SplatfixError.of("certify.no-trainer", folder=str(folder))
    raise SplatfixError.of("certify.extension-alone", folder=folder, label=own.label)


def scripts_of(checkout: Checkout, script: str) -> tuple[str, ...]:
    """Return those that are run: the trainer, and ``render.py`` and ``metrics.py`` where the checkout has them."""
    beside = [name for name in (RENDER, METRICS) if Path(checkout.folder, name).is_file()]
    return tuple(dict.fromkeys((script, *beside)))


def recognised_stack(checkout: Checkout) -> tuple[str, str]:
    """Return key and name of the stack that a checkout is or was made from; "" and its folder's name where it is none."""
    recognition = recognise(checkout)
    folder = Path(checkout.folder).name
    if recognition is None:
        return "", folder
    if recognition.own:
        return recognition.stack.key, recognition.words
    return recognition.stack.key, f"{folder} ({recognition.words})"


def called_extensions(subject: StackSubject) -> tuple[str, ...]:
    """Return the top-level modules of the extensions that the trainer calls.

    Not those that it asks for in a ``try`` and does not bring, as FastGS does with Inria's rasterizer for an optimizer; nor
    rasterizers that only other scripts call.
    """
    checkout, replacement = subject.checkout, subject.replacement
    # a drop-in replaces it, or it must be built
    brought = {_top(item.module) for item in replacement.dropins}
    brought |= {_top(item.module) for item in replacement.native}
    brought |= {_top(name) for name in checkout.imports}
    guarded = {_top(item.module) for item in checkout.guarded}
    called = [call.module for call in checkout.calls]
    called += [call.module for call in checkout.extension_calls]
    modules = dict.fromkeys(_top(name) for name in (*called, *checkout.imports, *sorted(guarded & brought)))
    reach = as_reached(checkout, (subject.script,), ())[1]
    drawn_with = {call.module for call in checkout.calls if reach.has(call.file, call.function)}
    of_others = {call.module for call in checkout.calls} - drawn_with
    return tuple(
        name for name in modules if (name in brought or name not in guarded) and name not in of_others
    )


def _top(module: str) -> str:
    return module.partition(".")[0]


def with_needs(subject: StackSubject, context: Context) -> StackSubject:
    """Return the subject with the extensions that it calls, what a diagnosis finds wrong with the checkout's own Python code, and
    what that imports at once and the environment lacks."""
    checkout = subject.checkout
    needs = [item for item in checkout.needs if not item.beside]
    brought = brought_by(item.source for item in checkout.sources)
    missing = missing_modules(context.facts, needs, declared=checkout.pins, brought=brought)
    names = [item.name for item in missing.places if "." not in item.name]
    standins = tuple(name for name in names if subject.rehearsed and name in STANDINS)
    # what a stand-in takes the place of is not missing on a CPU
    lacking = replace(checkout, needs=tuple(item for item in checkout.needs if item.name not in standins))
    facts = replace(context.facts, checkout=Fact(lacking, "files of the checkout"))
    codes = {record.check.code for record in breakages() if record.check and record.uses}
    # to checkpoints a training from the beginning does not come
    checks = select(("imports-missing", *sorted(codes - {"torch-load-pickles"})))
    mends = []
    for item in run_checks(replace(context, facts=facts), checks):
        # nor does it matter in scripts that one can do without, or in sources that a drop-in stands in for
        beside = item.subject == "beside" or "submodules/" in (item.subject or "")
        if item.status in (Status.FAIL, Status.WARN) and not beside:
            mends.append(Mend(item.code, item.summary, item.remedy))
    return replace(
        subject,
        extensions=called_extensions(subject),
        mends=tuple(mends),
        placeholders=tuple(name for name in names if name not in standins),
        standins=standins,
        needed=tuple(item.name for item in needs),
    )


def threads_for(facts: Facts, load: float | None = None) -> str:
    """Return the OMP_NUM_THREADS of a rehearsal: the user's own; else by the cores that were idle in the last minute."""
    cores = facts.machine.resources.cores or os.cpu_count() or 1
    if load is None:
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0  # not on Windows
    threads = max(1, min(MOST_THREADS, int((cores - load) / CORES_A_THREAD)))
    return os.environ.get(THREADS) or str(threads)
