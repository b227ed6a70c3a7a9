"""Which drop-ins replace what is meant, and what must be built natively, each with the reason; and the summary of sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.checks.checkout.faces import Usage, derive_face, usage_of
from splatfix.checks.checkout.rasterizer_calls import unanswered
from splatfix.checks.checkout.recognition import stack_of
from splatfix.context import Context
from splatfix.context.commands import pip
from splatfix.context.hosts import compiled_module, imported_by_host, other_releases, release_served
from splatfix.core.errors import Rejected
from splatfix.core.step import PlainStep, Step, run, say, target_options
from splatfix.knowledge import dropins as tables
from splatfix.knowledge.dropins import DROPINS, Dropin
from splatfix.knowledge.faces import NotReadable
from splatfix.knowledge.stacks import stacks, variant, variants
from splatfix.model import Checkout, Distribution, Source
from splatfix.model.option import Native, Replacement, Request, SourceSummary
from splatfix.model.steps import InstallDependencies, Reason
from splatfix.plan.case import Case, not_applicable
from splatfix.plan.checkout import (
    Incomplete,
    NoFolder,
    NothingToBuild,
    checkout_to_replace,
    expected_extensions,
    install_name,
    is_source,
    read_sources,
)
from splatfix.plan.parts import NativePart, native_parts, variants_of_face
from splatfix.plan.wheel_build import waits_for_gpu

_SHARED_NAME = "diff-gaussian-rasterization"
_ASSUMED_DEPTH = "its depth map is taken for the sum of z alpha T: its CUDA source is not there"
_NOTHING_ASKED = Request(sources=(), backend="pure")


def choose_dropins(
    sources: Iterable[str], checkout: Checkout | None = None, request: Request = _NOTHING_ASKED
) -> Replacement | Rejected:
    """Choose the drop-ins for names, source folders or whole checkouts, each once, and name what they cannot replace."""
    named = list(dict.fromkeys(sources))
    if named == ["."] and not is_source(Path.cwd()):
        return Rejected.of("plan.nothing-named-to-replace", known=tables.known_names())
    dropins: dict[str, Dropin] = {}
    native: dict[Native, None] = {}
    for text in named:
        read = checkout_to_replace(text, checkout, request)
        if isinstance(read, NoFolder):
            replacement = _by_name(text, request)
        elif isinstance(read, Rejected):
            return read
        else:
            replacement = _of_checkout(text, read, request)
        if isinstance(replacement, Rejected):
            return replacement
        native.update(dict.fromkeys(replacement.native))
        for dropin in replacement.dropins:
            other = dropins.setdefault(dropin.distribution, dropin)
            if other != dropin:
                return Rejected.of("plan.two-of-one-name", other=other.name, dropin=dropin.name)
    return Replacement(tuple(dropins.values()), tuple(native))


def _of_checkout(text: str, checkout: Checkout, request: Request) -> Replacement | Rejected:
    replacement = _of_a_host(checkout) or replacement_for(checkout)
    if replacement.dropins and not replacement.useless:
        return replacement
    for_targets = Request(sources=(), targets=request.targets)
    sources = read_sources((text,), checkout=checkout, request=for_targets)
    if not replacement.native:
        # the reason that install gives for having nothing to build, where it knows a better one
        if isinstance(sources, NothingToBuild):
            return sources
        return Rejected.of("plan.nothing-to-replace", folder=checkout.folder, known=tables.known_names())
    # what builds a source: itself, or where install rejects it, what that says to build in its place
    build: tuple[Step, ...] = (request.install(text, sources=(text,)),)
    if isinstance(sources, Rejected) and not isinstance(sources, Incomplete):
        build = sources.todo
    module, beside = replacement.native[0].module, list(filter(tables.dropin_named, replacement.names))
    return _nothing_replaces(replacement.refused, module, "", build, beside, request)


def _of_a_host(checkout: Checkout) -> Replacement | None:
    """Choose the drop-in for a source that is itself its host (gsplat's own), beside one of its release; None for others."""
    source = next((item.source for item in checkout.sources if item.path == "."), None)
    dropin = next((item for item in DROPINS if source and item.host and item.host == source.name), None)
    if source is None or dropin is None:
        return None
    releases = dropin.host_releases
    if source.version and source.version not in releases:
        reason = f"the drop-in for its compiled module was made for {' and '.join(releases)}"
        return Replacement(native=(Native(f"{source.name} {source.version}", reason),))
    if source.version:
        releases = {source.version: releases[source.version]}
    return Replacement((replace(dropin, host_releases=releases),))


def _by_name(text: str, request: Request) -> Replacement | Rejected:
    """Choose the drop-in of a name, such as ``simple_knn``, ``gsplat``, ``diff_gaussian_rasterization@mip``."""
    typed, _, kind = text.partition("@")
    name: str = canonicalize_name(typed)
    for dropin in DROPINS:
        by_kind = dropin.variant and name == dropin.distribution and kind in (dropin.variant, *dropin.serves)
        if by_kind or (not dropin.variant and not kind and name in (dropin.host, dropin.distribution)):
            return Replacement((dropin,))
    kinds = ", ".join(dropin.name for dropin in DROPINS if dropin.variant)
    if name == _SHARED_NAME and not kind:
        named = ("CHECKOUT", "--backend", request.backend)
        checkout = request.install(*named, text="Or give the trainer's checkout")
        steps = (say(f"Name it: {kinds}"), checkout)
        return Rejected.of("plan.variant-not-said", text=text, todo=steps)
    extension, reason, row = name, tables.IRREPLACEABLE.get(name), variant(kind)
    if name == _SHARED_NAME:
        reason = tables.IRREPLACEABLE_VARIANTS.get(kind)
        if row is None or reason is None:
            return Rejected.of("plan.unknown-variant", text=text, variants=kinds)
        extension, text = row.module, f"{row.module} ({kind})"
    elif reason is None:
        return Rejected.of("plan.unknown-drop-in", text=text, known=tables.known_names())
    build = run("splatfix", "install", install_name(extension) or "SOURCE", "--target", "sm_120")
    return _nothing_replaces(f"{text}: {reason}", extension, kind, (build,), (), request)


def _nothing_replaces(
    subject: str, extension: str, kind: str, build: Sequence[Step], beside: Sequence[str], request: Request
) -> Rejected:
    """Reject what must be built natively (of a shared name its ``kind``), with the drop-ins for what is called ``beside`` it, or
    without any named for what the stacks that call the extension call too."""
    module, keys = extension.replace("-", "_"), {kind}
    if not kind:
        keys = {row.key for row in variants(module)} | {extension}
    needs = ({*stack.needs, *stack.also_needs} for stack in stacks())
    needed = set().union(*(names for names in needs if keys & names))
    companions = set()
    for dropin in DROPINS:
        own = {*dropin.serves, dropin.module, dropin.distribution, dropin.host}
        if dropin.module != module and own & needed:
            companions.add(dropin.name)
    todo = list(build)
    if names := beside or sorted(companions):
        text = "What is called beside it can be replaced"
        todo.append(request.install(*names, "--backend", request.backend, text=text))
    return Rejected.of("plan.nothing-replaces-it", subject=subject, todo=tuple(todo))


def replacement_for(checkout: Checkout, order: Sequence[str] = ()) -> Replacement:
    """Decide for every extension that a checkout brings or calls. The one place that decides; reads nothing but the facts.

    A drop-in stands in where it answers every call of the checkout, and where the extension's own source, if it is there, is a
    variant that the drop-in was made for. A rasterizer that no table lists gets a drop-in with the face by which it is called,
    where all of that face has a meaning; the user may say in which ``order`` its results come back.
    """
    dropins: list[Dropin] = []
    native: list[Native] = []
    imported = {*checkout.imports, *(item.module for item in checkout.guarded)}
    imported.update(item.name for item in checkout.needs)
    own = [name for item in checkout.sources if item.path == "." for name in _modules_of(item.source)]
    tops = {name.partition(".")[0] for name in (*imported, *own)}
    built = [module for item in checkout.sources for module in _modules_of(item.source)]
    for module in dict.fromkeys((*built, *_modules_beside(built, checkout))):
        # where imports of its code are known, what none imports and it does not bring along is not meant
        is_imported = not imported or module.partition(".")[0] in tops
        if not is_imported and module not in built:
            continue
        usage = usage_of(module, checkout)
        chosen: Dropin | Native | str = _by_tables(usage, checkout)
        if isinstance(chosen, str):
            chosen = _by_face(chosen, usage, checkout, order)
        if isinstance(chosen, Native):
            native.append(chosen)
        elif is_imported:
            face, depth_was_read = chosen.declared, usage.known or (usage.source and usage.source.depth)
            if face and "depth" in face.results and not depth_was_read:
                note = f"{chosen.note}; {_ASSUMED_DEPTH}"
                chosen = replace(chosen, declared=replace(face, assumed=_ASSUMED_DEPTH), note=note)
            dropins.append(chosen)
    return Replacement(tuple(dropins), tuple(native))


def _modules_beside(built: Sequence[str], checkout: Checkout) -> Iterator[str]:
    """Yield the import names of what is meant beside what was brought along: imported, in a submodule, or needed by the stack."""
    brought = {*built, *(item.module for item in checkout.shadows)}
    for name in checkout.imports:
        if name not in brought and name.removesuffix("_cuda") not in brought:
            yield name
    served = {dropin.host or dropin.module for dropin in DROPINS}
    # what a submodule is named after, where there is a drop-in for it or it is known to have none
    folders = {item.path.rpartition("/")[2].lower().replace("-", "_") for item in checkout.submodules}
    known = served | {name.replace("-", "_") for name in tables.IRREPLACEABLE}
    yield from sorted((folders & known) - {name.rpartition(".")[2] for name in built})
    stack = stack_of(checkout)
    for key in (*stack.needs, *stack.also_needs) if stack else ():
        row = variant(key)
        if row:
            yield row.module
        elif key in served:
            yield key


def _modules_of(source: Source) -> tuple[str, ...]:
    """Return the import names of what a source builds: ``simple_knn`` of ``simple_knn._C``."""
    modules: dict[str, None] = {}
    for module in filter(None, source.modules):
        name, beside = module.removesuffix("._C"), module.removesuffix("_cuda")
        if beside in source.packages:
            name = beside
        modules[name] = None
    tops = tuple(dict.fromkeys(name.partition(".")[0] for name in source.packages))
    return tuple(modules) or tops or (source.label.replace("-", "_"),)


def _by_tables(usage: Usage, checkout: Checkout) -> Dropin | str:
    """Return the drop-in that was made for a module, else why there is none; "" where its face may tell."""
    module, face = usage.module, usage.source
    candidates = [dropin for dropin in DROPINS if module in (dropin.module, dropin.host)]
    package, _, last = module.rpartition(".")
    if package and any(dropin.module == last for dropin in DROPINS):
        return f"it is compiled as a part of {package}; a drop-in would be a package of its own"
    if not candidates or usage.obstacle:
        return tables.IRREPLACEABLE.get(canonicalize_name(module), "")
    host = candidates[0].host
    published = [item.path for item in checkout.submodules if f"/nerfstudio-project/{host}" in item.url]
    for item in checkout.sources:
        if host and item.source.name == host and item.path not in (".", *published):
            return f"the checkout has its own in {item.path}, and no drop-in was made for that"
    stack, keys = stack_of(checkout), tuple[str, ...]()
    if face:
        keys = variants_of_face(face)
    elif stack:
        rows = map(variant, stack.needs)
        keys = tuple(row.key for row in rows if row and row.module == module)
    # its own source says which variant it is; without it whatever answers the calls will do
    fitting = [dropin for dropin in map(tables.dropin_for_variant, keys) if dropin]
    if not face:
        fitting += candidates
    answering = next((dropin for dropin in fitting if not any(unanswered(checkout, dropin))), None)
    if answering and (usage.calls or keys or len(candidates) == 1):
        return answering
    refused = next(filter(None, map(tables.IRREPLACEABLE_VARIANTS.get, keys)), "")
    if usage.calls and not face:
        return ""
    if refused or face:
        return refused
    if len(candidates) > 1:
        return "which of the packages of that name is called cannot be read"
    location, problems = next(unanswered(checkout, candidates[0]))
    return f"{candidates[0].name} comes nearest, and does not answer {location}: {'; '.join(problems)}"


def _by_face(reason: str, usage: Usage, checkout: Checkout, order: Sequence[str]) -> Dropin | Native:
    """Return a drop-in with the face by which a rasterizer is called, else why there is none; the ``reason`` is the tables'."""
    module = usage.module
    # what is neither called nor there shows no face
    shows_face = usage.obstacle or usage.calls or usage.source
    if canonicalize_name(module) in tables.IRREPLACEABLE or not shows_face:
        return Native(module, reason)
    face = derive_face(usage, order)
    if isinstance(face, NotReadable):
        # what a table says of it is more than what was read
        if reason in tables.refusals():
            return Native(module, reason)
        return Native(module, face.reason, undetermined=face.undetermined)
    dropin = tables.declared_dropin(face)
    for location, problems in unanswered(checkout, dropin):
        lacks = f"a drop-in with its face does not answer {location}: {'; '.join(problems)}"
        return Native(module, lacks)
    return dropin


def usable_dropins(case: Case) -> Replacement | Rejected:
    """Choose the drop-ins for what is meant, without those that are installed."""
    if case.kept:
        return not_applicable(f"{', '.join(case.kept)} must not change (--keep)")
    checkout, replacement = case.context.checkout, case.sources.replacement
    parts = case.parts or native_parts(case.context, case.sources)  # none is judged without a target
    installed = {name for part in parts if part.dropin and not part.unfit for name in part.names}
    # where the sources themselves have not told, by how they call it
    if not replacement.dropins and not replacement.native:
        if checkout and not case.sources.variants:
            replacement = replacement_for(checkout)
        else:
            replacement = _by_parts(case.parts, installed)
    missing: list[Dropin] = []
    native = list(replacement.native)
    for dropin in replacement.dropins:
        if dropin.distribution in installed:
            continue
        # its host is not here or is none that it serves: that must be built natively
        if obstacle := host_obstacle(case.context, dropin):
            native.append(Native(dropin.name, obstacle.what.rstrip(".")))
        else:
            missing.append(dropin)
    replacement = Replacement(tuple(missing), tuple(native))
    if not missing and not native and (case.parts or (parts and all(part.dropin for part in parts))):
        return not_applicable("every extension is one of splatfix's drop-ins already")
    if not replacement.useless:
        return replacement
    # without a name the reason is about all of them, and a sentence of its own
    obstacles = [f"nothing replaces {item.text}" if item.module else item.reason for item in native]
    if missing:
        obstacles.append(f"of the others {', '.join(replacement.names)} can be replaced")
    return not_applicable("; ".join(obstacles))


def _by_parts(parts: Iterable[NativePart], installed: set[str]) -> Replacement:
    """Choose what replaces extensions of which no more than the variant or the name is known."""
    chosen: list[Dropin] = []
    native: list[Native] = []
    for part in parts:
        if canonicalize_name(part.name) in installed:
            continue
        names = (canonicalize_name(part.name), *part.names)
        fitting = [dropin for dropin in DROPINS if (dropin.host or dropin.distribution) in names]
        reason = "it has no drop-in"
        if part.variant:
            fitting = [dropin for dropin in DROPINS if part.variant in dropin.serves][:1]
            reason = tables.IRREPLACEABLE_VARIANTS.get(part.variant) or "no drop-in was made for it"
        elif fitting:
            reason = "several packages share this name, and which one it is cannot be determined here"
        if len(fitting) == 1:
            chosen += fitting
        else:
            native.append(Native(part.name, reason))
    return Replacement(tuple(chosen), tuple(native))


# The sources that were named


def summarise(
    sources: Sequence[str],
    context: Context | None = None,
    *,
    named: tuple[str, ...] = (),
    fetch: tuple[Step, ...] = (),
) -> SourceSummary:
    """Say what sources are, whether they can be built or not, and what stands in for them; ``named`` is what commands name as
    SOURCE, ``fetch`` what ``--fetch-submodules`` fetches first."""
    facts = checkout = None
    if context:
        facts, checkout = context.facts, context.checkout
    replacement = choose_dropins(sources, checkout)
    if isinstance(replacement, Rejected):
        replacement = Replacement(native=(Native("", replacement.what.rstrip(".")),))
    read = read_sources(sources, facts, request=Request(sources=tuple(sources)))
    if isinstance(read, Incomplete):
        # what completes the sources: the commands of git, the first with what is lacking; else what is lacking alone
        first, *others = [step for step in read.todo if step.command and step.kind != "fetch"] or [say("")]
        return SourceSummary(
            named=named,
            variants=expected_extensions(sources, checkout),
            replacement=replacement,
            prepare=fetch or (PlainStep(read.what, first.command), *others),
            fetch=bool(fetch),
        )
    if isinstance(read, Rejected):
        return SourceSummary(replacement=replacement, refused=read)
    for source in read.built_from.values():
        waits = context and waits_for_gpu(source, context)
        if isinstance(waits, Rejected):
            return SourceSummary(replacement=replacement, refused=waits)
    return replace(read, named=named, replacement=replacement)


# Hosts: the packages that stay, whose compiled module a drop-in replaces


def host_obstacle(context: Context, dropin: Dropin) -> Rejected | None:
    """Reject a drop-in beside a host that is not here, is of another release, lies elsewhere, or is compiled."""
    if not dropin.host:
        return None
    host = served_host(context, dropin)
    if isinstance(host, Rejected):
        return host
    name, python = f"{host.name} {host.version}", context.interpreter
    if host.editable or (python and not host.location.startswith(python.prefix)):
        todo, folder = other_releases(context, dropin)[:1], host.origin or host.location
        return Rejected.of("plan.host-elsewhere", todo=todo, name=name, folder=folder)
    if compiled := compiled_module(context, dropin):
        check = run("splatfix", "diagnose", text="See whether it fits this torch and GPU")
        remove = pip(context.facts, "uninstall", host.name, text="To use the drop-in in its place, first")
        return Rejected.of("plan.host-compiled", todo=(check, remove), name=name, compiled=compiled)
    return None


def imports_of_hosts(
    context: Context, dropins: Sequence[Dropin], *, installing: bool
) -> tuple[InstallDependencies, ...] | Rejected:
    """Return the step that brings what hosts import without asking pip for it, where it may; () where all of it is installed."""
    reasons = {}
    for dropin in dropins:
        for name in imported_by_host(dropin, context.version_of(dropin.host)):
            if not context.version_of(name):
                reasons[name] = f"{dropin.host} imports {name}, which its wheel does not ask for"
    if not reasons:
        return ()
    names = tuple(reasons)
    if not installing:
        install = pip(context.facts, "install", *names)
        too = say("Or add --with-dependencies: then splatfix installs it too, in the same journal.")
        why = "; ".join(reasons.values())
        return Rejected.of("plan.host-import-missing", todo=(install, too), reasons=why)
    texts = tuple(map(Reason, reasons.values()))
    return (InstallDependencies(requirements=names, modules=names, reasons=texts),)


def served_host(context: Context, dropin: Dropin) -> Distribution | Rejected:
    """Return the installed host, where it is of a release that the drop-in was made for."""
    host = context.distribution(dropin.host)
    others = other_releases(context, dropin)
    if host is None:
        return Rejected.of("plan.host-not-installed", todo=others, host=dropin.host)
    if release_served(dropin, host.version):
        return host
    again = (f"{host.name}=={host.version}", *target_options(context.goal.targets))
    compile_it = run("splatfix", "install", *again, text="Or compile what is installed")
    return Rejected.of(
        "plan.host-release-not-served",
        todo=(*others, compile_it),
        name=f"{host.name} {host.version}",
        made_for=" and ".join(dropin.host_releases),
    )
