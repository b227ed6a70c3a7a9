"""Makes a checkout ready for its own trainer to be certified: drop-ins for a CPU, and a mended copy where it needs one."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path

from msgspec.structs import replace

from splatfix import __version__
from splatfix.app.result import show_message, target_python
from splatfix.certify import Mend, RehearseRequest, device_for
from splatfix.certify.prerequisites import CERTIFY_NEEDS, gpu_obstacle, packages_obstacle
from splatfix.certify.stacks import prepare
from splatfix.certify.stacks.entry import choose_script, not_called_by, reached_by
from splatfix.certify.stacks.subject import StackSubject
from splatfix.certify.stacks.threads import threads_for
from splatfix.context import Context, Goal, make_context
from splatfix.context.submodules import module_of
from splatfix.core.errors import Exit, Rejected, SplatfixError, require
from splatfix.core.files import write_text
from splatfix.facts import gather
from splatfix.facts.checkout import Reach, with_checkout
from splatfix.facts.source.copying import copy_source, missed
from splatfix.install.dropins import make_dropin_wheel
from splatfix.knowledge.breakages import breakage, source_patterns
from splatfix.knowledge.dropins import DROPINS
from splatfix.model import Checkout, Distribution, Facts
from splatfix.model.option import Replacement
from splatfix.plan.checkout import incomplete
from splatfix.plan.edits import apply
from splatfix.plan.faces import order_of
from splatfix.plan.hosts import served_host
from splatfix.plan.replacement import replacement_for


def stack_subject(request: RehearseRequest, folder: Path) -> tuple[StackSubject, Facts]:
    """What is to be run, and the facts of the machine with the checkout's.

    Args:
        folder: for what is made; it must outlast the run.

    Raises:
        SplatfixError: wrong options (exit code 2), missing prerequisites (3), or ``nothing-replaces-it`` (1).
    """
    if not request.checkout.is_dir():
        raise SplatfixError.of("app.not-a-folder", folder=request.checkout)
    python = target_python(request.python)
    facts = with_checkout(gather(python), request.checkout, source_patterns())
    device = require(usable_device(request, python, facts))
    return prepared(request, python, device, facts, folder), facts


def usable_device(request: RehearseRequest, python: str, facts: Facts) -> str | Rejected:
    """Return the device that a checkout's trainer is run on, in an environment that can run it, with the scene that was named."""
    device = device_for(request.device, facts)
    if obstacle := packages_obstacle(facts, python, CERTIFY_NEEDS) or gpu_obstacle(device, facts):
        return obstacle
    if request.scene and not request.scene.is_dir():
        return Rejected.of("app.no-scene", scene=request.scene)
    return device


def hosts_of(replacement: Replacement, context: Context) -> dict[str, Distribution] | Rejected:
    """Return the packages that drop-ins are a part of, by the names of these."""
    hosts = {}
    for dropin in replacement.dropins:
        if dropin.host:
            host = served_host(context, dropin)
            if isinstance(host, Rejected):
                return host
            hosts[dropin.name] = host
    return hosts


def prepared(request: RehearseRequest, python: str, device: str, facts: Facts, folder: Path) -> StackSubject:
    """The checkout with what stands in for its extensions on this device.

    Raises:
        SplatfixError: ``not-a-checkout`` (exit code 2), ``nothing-replaces-it`` (1); as ``served_host``.
    """
    checkout = facts.checkout.value
    if checkout is None:
        raise SplatfixError.of("app.not-a-checkout", checkout=request.checkout, error=facts.checkout.error)
    script = choose_script(request, checkout)
    checkout, reach = reached_by(checkout, script)
    facts = replace(facts, checkout=replace(facts.checkout, value=checkout))
    context = make_context(facts, Goal())
    rehearsed = device == "cpu"
    replacement = replacement_of(request, checkout, reach)
    hosts = require(hosts_of(replacement, context))
    if rehearsed and replacement.useless:
        exit_code = Exit.FAILURE
        if any(item.undetermined for item in replacement.native):
            exit_code = Exit.UNDETERMINED
        raise SplatfixError.of(
            "app.nothing-replaces-it",
            exit_code=exit_code,
            script=script,
            refused=replacement.refused,
            folder=request.checkout,
        )
    gaps = prepare.find_gaps(context, checkout, rehearsed=rehearsed)
    require_imported_submodules(checkout, gaps.placeholders)
    source, mends = mended_copy(checkout, gaps.mends, folder)
    work = folder / "work"
    _copy(source, work)
    key, name = prepare.recognised_stack(checkout)
    uncalled = not_called_by(checkout, script)
    served = [item.module for item in replacement.dropins]
    served += [item.module for item in replacement.native]
    subject = StackSubject(
        request=request,
        python=python,
        device=device,
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
        gaps=replace(gaps, mends=mends),
        needed=tuple(item.name for item in checkout.needs if not item.beside),
        resumes=prepare.checkpoint_loads(context),
    )
    if not rehearsed:
        return subject
    return replace(
        subject,
        dropins=_unpacked(replacement, hosts, folder),
        dropin_names=(*(item.name for item in replacement.dropins), *gaps.standins),
        assumed=tuple(
            f"{item.module}: {item.declared.assumed}"
            for item in replacement.dropins
            if item.declared and item.declared.assumed
        ),
        threads=threads_for(facts),
    )


def require_imported_submodules(checkout: Checkout, missing: Collection[str]) -> None:
    """Refuse a trainer that imports what an empty submodule holds: a renderer of another name than any extension's.

    Args:
        checkout: as far as it is reached.
        missing: modules that it imports and that are not there.

    Raises:
        SplatfixError: ``source-incomplete``.
    """
    empty = [item for item in checkout.submodules if item.empty]
    if paths := [item.path for item in empty if module_of(item, checkout) in missing]:
        raise incomplete(checkout.folder, Path(checkout.folder), paths).error()


def replacement_of(request: RehearseRequest, checkout: Checkout, reach: Reach) -> Replacement:
    """The drop-ins for what the trainer reaches, and what of that has none.

    Args:
        checkout: as far as it is reached.

    Raises:
        SplatfixError: ``wrong-face`` (exit code 2).
    """
    replacement = replacement_for(checkout, order_of(request.face) if request.face else ())
    if not reach.everything:
        native = [item for item in replacement.native if item.module.partition(".")[0] in reach.modules]
        replacement = replace(replacement, native=tuple(native))
    # what an import in a try asks for is no need of the checkout, and yet what runs where it is installed
    guarded = {item.module for item in checkout.guarded} - {item.module for item in replacement.dropins}
    beside = tuple(item for item in DROPINS if item.module in guarded and not item.variant)
    return replace(replacement, dropins=(*replacement.dropins, *beside))


def _unpacked(replacement: Replacement, hosts: Mapping[str, Distribution], folder: Path) -> Path:
    """A folder with the drop-ins as they would be in site-packages, beside the Python of those that they are a part of."""
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


def mended_copy(checkout: Checkout, mends: tuple[Mend, ...], folder: Path) -> tuple[Path, tuple[Mend, ...]]:
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
