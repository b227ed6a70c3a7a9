"""``splatfix rehearse`` and ``splatfix certify --repo``: a stack's own trainer, on the GPU or rehearsed on the CPU."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from splatfix.app.certify import exit_code_of, monitoring_code_of, next_step
from splatfix.app.interrupts import on_interrupt
from splatfix.app.result import Result, target_python
from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.step import Command, run, say

if TYPE_CHECKING:
    from splatfix.certify import Certificate, Mend
    from splatfix.certify.run import Progress
    from splatfix.checks import Finding
    from splatfix.context import Context
    from splatfix.facts import Checkout, Facts
    from splatfix.plan.replacement import Replacement

SAMPLE = "fruit"
"""The bundled scene that is used without another: COLMAP's layout, a pinhole camera, 24 small views."""
RESOLUTION = 128
"""Pixels of width of a rehearsal on a scene of the user's."""
_MENDED = ("numpy", "torch", "python", "pillow", "torchvision")


@dataclass(frozen=True)
class RehearseRequest:
    """What to certify, as it was asked for; None is the default of the device."""

    checkout: Path
    scene: Path | None = None
    python: str | None = None
    out: Path = Path("splatfix-report")
    device: str = "auto"
    iterations: int | None = None
    resolution: int | None = None
    extra: tuple[str, ...] = ()
    """Words for train.py."""
    verbose: bool = False
    monitoring: bool = False
    targets: tuple[str, ...] = ()
    """On the CPU: the GPU architectures that installed extensions are judged for."""


def rehearse(asked: RehearseRequest) -> Result:
    """Run the checkout's own trainer and judge the outcome.

    Raises:
        SplatfixError: wrong options (exit code 2), missing prerequisites (3), or ``nothing-replaces-it`` (1) where no drop-in
            serves what the checkout calls and there is no GPU; nothing was trained then.
        Interrupted: Ctrl-C or SIGTERM.
    """
    from splatfix import facts
    from splatfix.certify import device_for
    from splatfix.certify.prerequisites import CERTIFY_NEEDS, require_packages, require_visible_gpu
    from splatfix.knowledge.breakages import source_patterns
    from splatfix.report import certificate, console
    from splatfix.report.field_report import markdown
    from splatfix.report.forms import FORMS
    from splatfix.report.progress import training

    if not asked.checkout.is_dir():
        raise usage_error(
            "not-a-folder", f"There is no folder {asked.checkout}.", say("Give the folder of the checkout.")
        )
    with on_interrupt(lambda: "Interrupted: nothing was certified."):
        target = target_python(asked.python)
        known = facts.with_checkout(facts.gather(target), asked.checkout, source_patterns())
        require_packages(known, target, "rehearse", CERTIFY_NEEDS)
        device = device_for(asked.device, known)
        if device != "cpu":
            require_visible_gpu(device, known)
        with training(console.err()) as progress:
            result = run_and_report(asked, target, device, known, progress)
    return Result(
        "rehearse",
        lambda: certificate.document(result, known, None),
        lambda console: certificate.show(
            console,
            result,
            asked.out / "certificate.html",
            next_step(result, asked.python),
            None,
            verbose=asked.verbose,
        ),
        monitoring_code_of(result) if asked.monitoring else exit_code_of(result),
        forms={
            "markdown": lambda: markdown(result, None),
            **{name: partial(form, result) for name, form in FORMS.items()},
        },
    )


def run_and_report(
    asked: RehearseRequest,
    target: str,
    device: str,
    known: Facts,
    progress: Progress = lambda where, state: None,
) -> Certificate:
    """Certify, and write ``certificate.json``, ``.md`` and ``.html`` into the report's folder, as it goes: a run that is
    killed leaves the latest of them, which says how far it had come.

    Raises:
        SplatfixError, Interrupted: see :func:`rehearse`; an interrupt says where the report is.
    """
    from splatfix.certify import Interrupted
    from splatfix.certify.host import placed
    from splatfix.certify.stack import GPU_ITERATIONS, ITERATIONS, PICKLES, certify_stack
    from splatfix.certify.stack_certificate import StackRequest
    from splatfix.certify.stack_child import STANDINS
    from splatfix.certify.threads import threads_for
    from splatfix.context import Goal, make_context
    from splatfix.context.matrix import binary_matrix
    from splatfix.core.files import write_json, write_text
    from splatfix.core.scratch import temporary_folder
    from splatfix.knowledge.schedules import least_iterations
    from splatfix.report import certificate
    from splatfix.report.documents import envelope
    from splatfix.report.field_report import markdown
    from splatfix.report.html import certificate_page

    checkout = known.checkout.value
    if checkout is None:
        raise usage_error("not-a-checkout", f"{asked.checkout} cannot be read: {known.checkout.error}")
    context = make_context(known, Goal())
    rehearsed = device == "cpu"
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        replacement = _replacement(checkout, rehearsed=rehearsed)
        mends, missing = to_be_mended(context, checkout)
        standins = tuple(name for name in missing if rehearsed and name in STANDINS)
        placeholders = tuple(name for name in missing if name not in standins)
        if not placeholders:  # nothing is missing that has to be there on a CPU
            mends = tuple(item for item in mends if item.code != "imports-missing" or not standins)
        source, mends = mended_copy(checkout, context, mends, folder)
        scene, images, resolution = _scene(asked, folder, rehearsed=rehearsed)
        recognised = _recognised(checkout)
        request = StackRequest(
            python=target,
            checkout=Path(checkout.folder),
            source=source,
            name=recognised[1],
            key=recognised[0],
            remote=checkout.remote,
            commit=checkout.commit or "",
            scene=scene,
            out=asked.out.absolute(),
            device=device,
            iterations=asked.iterations
            or max(ITERATIONS if rehearsed else GPU_ITERATIONS, least_iterations(recognised[0])),
            resolution=resolution,
            images=images,
            extensions=_extensions(checkout, replacement),
            dropins=_unpacked(replacement, folder) if rehearsed else None,
            dropin_names=(*(item.name for item in replacement.dropins), *standins) if rehearsed else (),
            placeholders=placeholders,
            standins=standins,
            needed=tuple(item.name for item in checkout.needs if not item.beside),
            mends=mends,
            resumes=_loads(context, PICKLES),
            extra=asked.extra,
            threads=threads_for(known) if rehearsed else None,
            repeat=_repeat(asked, target, device),
            targets=asked.targets,
        )

        def write(certified: Certificate) -> Certificate:
            certified = placed(certified, os.environ)
            document = certificate.document(certified, known, None)
            write_json(
                request.out / "certificate.json", envelope("rehearse", exit_code_of(certified), document)
            )
            write_text(request.out / "certificate.md", markdown(certified, None))
            page = certificate_page(certified, known, request.out, None, binary_matrix(context))
            write_text(request.out / "certificate.html", page)
            return certified

        try:
            result = certify_stack(request, known, progress, interim=write)
        except Interrupted as stop:
            if stop.certificate is not None:
                write(stop.certificate[0])
                page = request.out / "certificate.html"
                stop.add(f"The certificate of what was run, marked as interrupted: {page}.")
            raise
        return write(result)


def _repeat(asked: RehearseRequest, target: str, device: str) -> Command:
    words = ["splatfix", "rehearse", str(asked.checkout), "--python", target, "--device", device]
    words += ["--scene", str(asked.scene)] if asked.scene else []
    words += [word for name in asked.targets for word in ("--target", name)]
    for name, value in (("--iterations", asked.iterations), ("--resolution", asked.resolution)):
        words += [] if value is None else [name, str(value)]
    return Command((*words, *(("--", *asked.extra) if asked.extra else ())))


def _recognised(checkout: Checkout) -> tuple[str, str]:
    """Key and name of the stack that a checkout is or was made from; "" and its folder's name where it is none."""
    from splatfix.checks.checkout.recognition import recognise

    seen = recognise(checkout)
    folder = Path(checkout.folder).name
    if seen is None:
        return "", folder
    return seen.stack.key, seen.words if seen.own else f"{folder} ({seen.words})"


def _replacement(checkout: Checkout, *, rehearsed: bool) -> Replacement:
    """The drop-ins for all that the checkout calls.

    Raises:
        SplatfixError: ``nothing-replaces-it``, for a rehearsal without a rasterizer.
    """
    from splatfix.knowledge.dropins import DROPINS
    from splatfix.plan.replacement import replacement_for

    found = replacement_for(checkout)
    # what an import in a try asks for is no need of the checkout, and yet what runs where it is installed
    asked = {item.module for item in checkout.guarded} - {item.module for item in found.dropins}
    beside = tuple(item for item in DROPINS if item.module in asked and not item.variant)
    found = replace(found, dropins=(*found.dropins, *beside))
    if rehearsed and found.useless:
        raise SplatfixError(
            "nothing-replaces-it",
            f"There is no drop-in for {found.refused}.",
            meaning="Without it the trainer cannot draw on a CPU: it was not run.",
            todo=(
                run("splatfix", "diagnose", "--repo", checkout.folder, text="See what else it needs"),
                say("Or certify it on a machine with a GPU: --device cuda."),
            ),
        )
    return found


def _extensions(checkout: Checkout, replacement: Replacement) -> tuple[str, ...]:
    """Top-level modules of the extensions that the checkout calls; without those that it asks for in a ``try`` and does not
    bring, as FastGS does with Inria's rasterizer for an optimizer: it goes on without them by design."""
    served = {*(item.module for item in replacement.dropins), *(item.module for item in replacement.native)}
    meant = {name.partition(".")[0] for name in (*served, *checkout.imports)}
    called = [call.module for call in checkout.calls] + [call.module for call in checkout.extension_calls]
    guarded = {item.module.partition(".")[0] for item in checkout.guarded}
    tops = [name.partition(".")[0] for name in (*called, *checkout.imports, *sorted(guarded & meant))]
    return tuple(dict.fromkeys(name for name in tops if name in meant or name not in guarded))


def _unpacked(replacement: Replacement, folder: Path) -> Path:
    """A folder with the drop-ins as they would be in site-packages."""
    from splatfix import __version__
    from splatfix.install.dropins import make_dropin_wheel

    place = folder / "dropins"
    place.mkdir()
    for item in replacement.dropins:
        with zipfile.ZipFile(make_dropin_wheel(item, __version__, folder / "wheels")) as wheel:
            wheel.extractall(place)  # our own wheel, made a moment ago
    return place


def to_be_mended(context: Context, checkout: Checkout) -> tuple[tuple[Mend, ...], tuple[str, ...]]:
    """What stops the trainer before its first step, each with its finding; and the missing modules that it imports at once."""
    from splatfix.certify import Mend
    from splatfix.certify.stack import PICKLES
    from splatfix.checks import Status, run_checks, select
    from splatfix.context.imports import brought_by, missing_modules
    from splatfix.knowledge.breakages import breakages

    codes = {record.check.code for record in breakages() if record.check and record.uses}
    found = run_checks(context, select(("imports-missing", *sorted(codes))))
    bad = [
        item
        for item in found
        if item.status in (Status.FAIL, Status.WARN) and item.code != PICKLES and not _beside(item)
    ]
    lost = missing_modules(
        context.facts,
        (item for item in checkout.needs if not item.beside),
        declared=(pin.name for pin in checkout.pins),
        brought=brought_by(item.source for item in checkout.sources),
    )
    names = tuple(item.name for item in lost.places if "." not in item.name)
    return tuple(Mend(item.code, item.summary, item.remedy) for item in bad), names


def _loads(context: Context, code: str) -> tuple[str, ...]:
    """Places of the trainer that load checkpoints; a training from the beginning does not come to them."""
    from splatfix.checks import Status, run_checks, select

    found = run_checks(context, select((code,)))
    return tuple(
        place.name
        for item in found
        if item.status is Status.WARN
        for place in item.evidence
        if ":" in place.name
    )


def _beside(finding: Finding) -> bool:
    """Of scripts that one can do without, or of an extension's own sources, which a drop-in stands in for."""
    return finding.subject == "beside" or "submodules/" in (finding.subject or "")


def mended_copy(
    checkout: Checkout, context: Context, mends: tuple[Mend, ...], folder: Path
) -> tuple[Path, tuple[Mend, ...]]:
    """What is run: the checkout itself, or where a known edit mends its own Python code a scratch copy with the edits made."""
    from splatfix.core.files import write_text
    from splatfix.install.scratch import copy_source
    from splatfix.knowledge.breakages import breakage
    from splatfix.plan.edits import apply

    edits = dict(_edits(checkout, mends))
    if not edits:
        return Path(checkout.folder), mends
    copy = folder / Path(checkout.folder).name
    copy_source(Path(checkout.folder), copy)
    for name, keys in edits.items():
        text = (copy / name).read_text(encoding="utf-8", errors="surrogateescape")
        for key in keys:
            text = apply(breakage(key), text)
        write_text(copy / name, text)
    records = [breakage(key) for keys in edits.values() for key in keys]
    codes = {record.check.code for record in records if record.check}
    return copy, tuple(replace(item, edited=item.code in codes) for item in mends)


def _edits(checkout: Checkout, mends: tuple[Mend, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """By file of the checkout: the known breakages whose edits mend what was found in it."""
    from splatfix.knowledge.breakages import breakage

    codes = {item.code for item in mends}
    files: dict[str, dict[str, None]] = {}
    for match in checkout.python_matches:
        record = breakage(match.breakage)
        if record.check and record.check.code in codes and record.edits:
            files.setdefault(match.file, {})[match.breakage] = None
    yield from ((name, tuple(keys)) for name, keys in files.items())


def _scene(asked: RehearseRequest, folder: Path, *, rehearsed: bool) -> tuple[Path, str, int | None]:
    """The scene, the name of its folder of images where that is not ``images``, and the resolution.

    Raises:
        SplatfixError: ``no-scene`` (exit code 2).
    """
    from splatfix.certify.scenes import export_sample, find_samples

    if asked.scene is None:
        return export_sample(find_samples((SAMPLE,))[0], folder / "scenes"), "", asked.resolution or 1
    scene = asked.scene.absolute()
    if not scene.is_dir():
        raise usage_error(
            "no-scene", f"There is no folder {asked.scene}.", say("Give the folder of a scene with --scene.")
        )
    others = sorted(path.name for path in scene.glob("images_*") if path.is_dir())
    images = "" if (scene / "images").is_dir() or not others else others[-1]
    return scene, images, asked.resolution or (RESOLUTION if rehearsed else None)
