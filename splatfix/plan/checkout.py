"""Read the SOURCEs that a user named: each is a name, an address, a package, a checkout, many things, or nothing; and what it
is decides what is read of it, so that reading and rejecting go together."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from splatfix.checks.checkout.recognition import commits_of, recognise, repository_of
from splatfix.checks.checkout.recognition import stack_of as stack_of  # what containers ask of it
from splatfix.checks.checkout.submodules import needed_submodules
from splatfix.context.commands import BY_RELEASE
from splatfix.context.imports import brought_by, missing_modules
from splatfix.context.submodules import holds, how_to_fetch, let_splatfix_fetch, module_of
from splatfix.core.errors import Rejected
from splatfix.core.reading import resolved_folder
from splatfix.core.redact import without_credentials
from splatfix.core.step import Step, run, say
from splatfix.core.versions import dotted, release
from splatfix.core.words import counted, few
from splatfix.facts import checkout as disk
from splatfix.knowledge.dropins import DROPINS
from splatfix.knowledge.stacks import ProgramNeeds, Stack, variant, variants
from splatfix.model import Checkout, Fact, Facts, Source
from splatfix.model.option import Request, SourceSummary
from splatfix.plan.parts import variants_of_face

# A folder of clones has some dozens; the temporary folder of a server has thousands, and not all are looked into.
_MOST_CANDIDATES = 60
_MOST_NAMED = 6

_ADDRESS = re.compile(
    r"(?:git\+)?(?P<address>(?:(?:https?|ssh|git)://|git@[\w.-]+:).*?)(?:@(?P<commit>[^/@#]*))?(?:#.*)?"
)
_NOTHING_ASKED = Request(sources=())


class NoFolder(Rejected, frozen=True, kw_only=True):
    """A SOURCE is no folder: it may be the name of a package or of a drop-in, an address, or nothing that is there."""


class NoExtension(Rejected, frozen=True, kw_only=True):
    """A folder has nothing that could be built, as far as is seen: another one may be meant."""


class NothingToBuild(Rejected, frozen=True, kw_only=True):
    """It is known what a folder is, and that it has no extension of its own."""


class Incomplete(Rejected, frozen=True, kw_only=True):
    """Submodules or files of a folder are missing or empty; the commands that complete it are of no kind ``fetch``."""


def read_sources(
    named: Iterable[str],
    facts: Facts | None = None,
    checkout: Checkout | None = None,
    request: Request = _NOTHING_ASKED,
) -> SourceSummary | Rejected:
    """Read every extension source that these SOURCEs stand for, each once, in the order of their builds; with facts of a machine
    a rejected program (LichtFeld, OpenSplat, brush) says what it would find here."""
    if checkout is None and facts is not None:
        checkout = facts.checkout.value
    by_place: dict[str, Source] = {}
    notes: list[str] = []
    for text in named:
        answer = _folders_of(text, facts, checkout, request)
        if isinstance(answer, Rejected):
            return answer
        folders, notes_of_it, read = answer
        notes += notes_of_it
        for path in folders:
            source = _source(path, read)
            if source.error:
                return Rejected.of("plan.source-unreadable", source_folder=source.folder, error=source.error)
            if source.missing_folders:
                return incomplete(source.label, path, source.missing_folders, request)
            if not source.packages_apart:
                names = ", ".join(name or "a computed name" for name in source.setups)
                return Rejected.of("plan.several-setups", folder=path, names=names)
            by_place |= {f"{path} {package.name}": package for package in source.packages_apart}
    sources = tuple(by_place.values())
    for source in sources:
        name = canonicalize_name(source.label)
        twins = [item for item in sources if canonicalize_name(item.label) == name]
        if len(twins) > 1:
            others = [item.folder for item in sources if item not in twins]
            todo = [request.command(twin.folder, *others) for twin in twins]
            return Rejected.of(
                "plan.same-name-twice",
                todo=(say("Name the one you want:"), *todo),
                folders=" and ".join(twin.folder for twin in twins),
                label=twins[0].label,
            )
        # what an empty submodule of its own brings: it would be built, and taken back at its import
        empty = [item.path for item in source.submodules if item.empty]
        if facts and empty:
            lacking = missing_modules(facts, source.needs, brought=brought_by(sources)).unknown
            if imported := [path for path in empty if Path(path).name in lacking]:
                return incomplete(source.label, Path(source.folder), imported, request)
    return SourceSummary(
        built_from={source.label: source for source in sources},
        variants={source.label: variants_of_source(source.folder) for source in sources},
        notes=tuple(notes),
    )


def _folders_of(
    text: str, facts: Facts | None, checkout: Checkout | None, request: Request
) -> tuple[Sequence[Path], Sequence[str], Checkout] | Rejected:
    """Return the folders to build for one SOURCE, in order, notes for the user, and what was read of it."""
    folder = resolved_folder(text)
    if folder is None:
        return _no_folder(text, request)
    if opened_here := many_things(folder):
        return opened_here
    read = _known(folder, checkout)
    known = stack_of(read)
    if known and known.program and facts:
        return _program(folder, known, known.program, facts)
    if known and known.program:
        return _no_extension(folder, known, request)
    empty = [item.path for item in read.submodules if item.empty]
    if empty:
        read = _known(folder, checkout, whole=True)
        # viewers and the like are needed by nothing here
        needed = [item.submodule.path for item in needed_submodules(read)]
        if lacking := [path for path in needed if path in empty]:
            return incomplete(folder, folder, lacking, request)
    if known is None and disk.has_build_file(folder):
        return (*_package(folder, read), read)
    if known is None and not is_source(folder):
        around = disk.checkout_around(folder)
        path = folder.relative_to(around).as_posix()
        # empty because it is a submodule that was never fetched
        if any(item.empty and item.path == path for item in disk.read_submodules(around)):
            return incomplete(around, around, [path], request)
        return _no_checkout(folder, request)
    return _of_checkout(folder, read, known, empty, request)


def _of_checkout(
    folder: Path, read: Checkout, known: Stack | None, empty: Sequence[str], request: Request
) -> tuple[Sequence[Path], Sequence[str], Checkout] | Rejected:
    """Return the extensions of a checkout: those of its stack, and what else it holds; its ``empty`` submodules serve none."""
    notes = []
    recognition = recognise(read)
    if recognition and stack_of(read):
        origin = recognition.words
        if recognition.own:
            origin = f"of {origin}"
        notes.append(f"{folder} is a checkout {origin}")
    # the folders of its stack that setup.py builds, and those that something else does
    ours: list[Path] = []
    others: list[Path] = []
    for part in known.parts if known else ():
        path, by_setup = resolved_folder(folder / part.path), part.builder == "setup.py"
        if known and part.path and by_setup and not path:
            notes.append(f"{part.path} is not in this checkout, although {known.name} has it; it is left out")
        elif part.note and part.path in ("", "."):
            notes.append(part.note)
        elif part.note:
            notes.append(f"{part.path}: {part.note}")
        if path and part.path and by_setup:
            ours.append(path)
        elif path and part.path:
            others.append(path)
    # a folder that is there and holds no source is what a plain clone or a zip leaves
    if gone := [os.path.relpath(path, folder) for path in ours if not disk.has_build_file(path)]:
        return incomplete(folder, folder, gone, request)
    if folder in ours:
        return ours, notes, read
    walk = disk.walk_extensions(folder)
    if not walk.complete:
        return NoExtension.of("plan.not-a-checkout", folder=folder, most_folders=disk.MOST_FOLDERS)
    if extensions := [path for path in walk.found if path not in others]:
        notes += [f"{path} cannot be read and was not looked into" for path in walk.unreadable]
        return list(dict.fromkeys([*ours, *extensions])), notes, read
    # why it has none; what is most certain comes first
    if known:
        return _no_extension(folder, known, request)
    if empty:
        return incomplete(folder, folder, empty, request)
    if problem := _other_kind(folder):
        return problem
    if uses := disk.compiled_at_first_use(folder):
        lines, newest = few([item.place for item in uses]), max(uses, key=lambda use: release(use.cmake))
        builder = newest.builder
        return Rejected.of("plan.compiled-at-first-use", folder=folder, lines=lines, builder=builder)
    # how extensions come into a checkout that keeps them in archives, or clones them
    todo: list[Step] = []
    for archive in disk.packed_sources(folder):
        unpack = ("python", "-m", "zipfile", "-e", archive, archive.parent)
        todo.append(run(*unpack, text="Unpack what it keeps, then run this again"))
    for address in read.clones:
        name = repository_of(address)
        if name != repository_of(read.remote) and Path(name).name != folder.name.lower():
            clone = ("git", "clone", "--recursive", address)
            todo.append(run(*clone, text="Its README clones this; install its folder"))
    todo.append(say("Name the folder with the extension's setup.py, or a checkout."))
    todo += [say(f"Not looked into, because it cannot be read: {path}") for path in walk.unreadable]
    return NoExtension.of("plan.holds-no-extension", folder=folder, todo=tuple(todo))


def _package(folder: Path, read: Checkout) -> tuple[Sequence[Path], Sequence[str]]:
    """Return a package; before it the extensions below it that are imported, or all of them where it compiles nothing itself."""
    below: tuple[Path, ...] = ()
    if disk.is_clone(folder) or has_stack_files(folder):
        below = disk.walk_extensions(folder, below=True).found
    if below and disk.walk_extensions(folder, depth=0).found:
        needs = (*_source(folder, read).needs, *disk.read_scripts(folder)[0].imports)
        imported = {*read.imports, *(module.name for module in needs)}
        below = tuple(path for path in below if brought_by([_source(path, read)]) & imported)
    if not below:
        return [folder], ()
    names = ", ".join(path.relative_to(folder).as_posix() for path in below)
    note = f"{folder.name} needs extensions that lie below it ({names}); they are built first"
    return [*below, folder], (note,)


def _no_folder(text: str, request: Request) -> NoFolder:
    """Say what to do with a package by name, the address of a repository, and what does not exist."""
    text = without_credentials(text)
    name = re.split(r"[=<>~!\[ ]", text)[0].lower()
    module = text.replace("-", "_")
    todo: list[Step] = []
    if named := install_name(name):
        todo.append(request.install(named, text="Name the release to build", sources=(named,)))
        todo.append(request.install(name, "--backend", "nvrtc", text="Or without a compiler"))
    elif repository := _ADDRESS.fullmatch(text):
        address = repository["address"]
        folder = address.rpartition("/")[2].removesuffix(".git") or "FOLDER"
        todo.append(run("git", "clone", "--recursive", address, text="Clone it first, then name the folder"))
        if commit := repository["commit"]:
            todo.append(run("git", "-C", folder, "checkout", commit, "--recurse-submodules"))
        todo.append(request.install(folder, sources=(folder,)))
    if todo:
        return NoFolder.of("plan.not-a-source-folder", text=text, todo=tuple(todo))
    todo.append(say("Name the folder with the extension's setup.py, or a checkout."))
    if any(module in (dropin.module, dropin.name) for dropin in DROPINS):
        todo.append(request.install(text, "--backend", "pure", text="For the drop-in of that name"))
    if module.isidentifier():
        wheel = (text, "--backend", "wheels", "--dry-run")
        todo.append(request.install(*wheel, text="For a prebuilt wheel of that name"))
    if disk.is_file(text):
        return NoFolder.of("plan.a-file", text=text, todo=tuple(todo))
    return NoFolder.of("plan.nothing-there", text=text, todo=tuple(todo))


def install_name(extension: str) -> str:
    """Return what ``splatfix install`` takes for an extension of this name where no folder of it is known; "" for nothing."""
    name = extension.lower()
    if name not in BY_RELEASE:
        return ""
    return f"{name}=={BY_RELEASE[name]}"


def many_things(folder: Path) -> NoExtension | None:
    """Reject ``splatfix install`` typed where a terminal opens: whatever is below is many things, not one."""
    kind = disk.holds_everything(folder)
    if not kind or "setup.py" in disk.telling_paths(folder):
        return None
    return NoExtension.of("plan.many-things", folder=folder, kind=kind)


def absolute(named: Iterable[str]) -> tuple[str, ...]:
    """Return the same sources, folders by their absolute paths."""
    return tuple(str(resolved_folder(text) or text) for text in named)


def variants_of_source(folder: str) -> tuple[str, ...]:
    """Return the variants that an extension's source folder can be, by its own ``__init__.py``; () where none is known."""
    keys: list[str] = []
    for module in filter(variants, disk.packages_in(Path(folder))):
        with suppress(ValueError):  # what is wrong with the source is for the build to say
            keys += variants_of_face(disk.read_package(Path(folder), module))
    return tuple(keys)


def checkout_to_replace(text: str, checkout: Checkout | None, request: Request) -> Checkout | Rejected:
    """Return what is known of a SOURCE whose extensions drop-ins are to take the place of."""
    folder = resolved_folder(text)
    if folder is None:
        return _no_folder(text, request)
    if opened_here := many_things(folder):
        return opened_here
    if not is_source(folder):
        return _no_checkout(folder, request)
    return _known(folder, checkout, whole=True)


def is_source(folder: Path) -> bool:
    """Tell whether something can be built or replaced in it: a package, a clone, or a checkout of a stack that splatfix knows."""
    return disk.has_build_file(folder) or disk.is_clone(folder) or has_stack_files(folder)


def has_stack_files(folder: Path) -> bool:
    """Tell whether by its files alone the folder can be a checkout of some stack."""
    return recognise(Checkout(str(folder), disk.telling_paths(folder))) is not None


def _known(folder: Path, checkout: Checkout | None, *, whole: bool = False) -> Checkout:
    """Return the checkout that was read already, where it is that folder; else what tells which stack it is, or all of it."""
    if checkout and checkout.folder == str(folder):
        return checkout
    if whole:
        return disk.read_checkout(folder, ()).value or Checkout(str(folder), ())
    return disk.read_identity(folder).value or Checkout(str(folder), ())


def _source(folder: Path, read: Checkout) -> Source:
    """Return what was read of an extension's folder with its checkout, else read it."""
    known = (item.source for item in read.sources if item.source.folder == str(folder))
    return next(known, None) or disk.read_source(folder)


def _no_checkout(folder: Path, request: Request) -> Rejected:
    """Reject a folder that is neither a checkout nor an extension, with what below it could be meant."""
    below = list(islice(_candidates(folder), _MOST_NAMED + 1))
    if not below:
        return _other_kind(folder) or NoExtension.of("plan.not-an-extension", folder=folder)
    todo = [say("Name one of those that it holds:")]
    todo += [request.command(disk.as_typed(path)) for path in below[:_MOST_NAMED]]
    if len(below) > _MOST_NAMED:
        todo.append(say("There are more of them."))
    return NoExtension.of("plan.holds-checkouts", folder=folder, todo=tuple(todo))


def _candidates(folder: Path, levels: int = 2) -> Iterator[Path]:
    """Yield checkouts and extensions up to two levels below, in order of name; nothing inside one of them."""
    for path in disk.subfolders(folder)[:_MOST_CANDIDATES]:
        with suppress(OSError):  # a folder of another user's holds nothing that could be meant
            if has_stack_files(path) or disk.walk_extensions(path, depth=0).found:
                yield path
            elif levels > 1:
                yield from _candidates(path, levels - 1)


def _other_kind(folder: Path) -> Rejected | None:
    """Reject a folder of photos, or a program in Rust, that was named in the place of a trainer's checkout."""
    if number := disk.photos_alone(folder):
        return NothingToBuild.of("plan.no-code", folder=folder, photos=counted(number, "photo"))
    if "Cargo.toml" in disk.telling_paths(folder):
        return Rejected.of("plan.rust-program", folder=folder)
    return None


def incomplete(
    subject: str | Path, folder: Path, lacking: Sequence[str], request: Request = _NOTHING_ASKED
) -> Incomplete:
    """Reject a folder that lacks these submodules or files, with what fills them: in the checkout around it, if any."""
    root = disk.checkout_around(folder)
    paths = [Path(os.path.relpath(folder / path, root)).as_posix() for path in lacking]
    empty = [item for item in disk.read_submodules(root) if item.empty]
    submodules = [item for item in empty if any(holds(item, path) for path in paths)]
    others = [path for path in paths if not any(holds(item, path) for item in submodules)]
    names = [*(item.path for item in submodules), *others]
    git = disk.git_folder(root)
    commits: Mapping[str, str] = {}
    # slow, and asked for commits alone, where git has not recorded them
    if not all(item.recorded for item in submodules):
        commits = commits_of(_known(root, None))
    clone = git is not None
    todo = list(how_to_fetch(str(root), submodules, clone=clone, remote=disk.remote_of(git), commits=commits))
    if todo:
        todo.append(let_splatfix_fetch(request.command(*(request.sources or (str(folder),)))))
    foreign = [path for path in others if git and disk.has_nothing_below(git, path)]
    deleted = [path for path in others if path not in foreign]
    if foreign:
        todo.append(say(f"Its README may say where it is from: git has nothing of {few(foreign)}."))
    if deleted and git:
        todo.append(run("git", "-C", root, "checkout", "--", *deleted, text="Restore them from git"))
    elif deleted:
        todo.append(say(f"Clone it again with --recursive: {few(deleted)} came with the repository."))
    todo.append(say("Or name the extensions to build one by one."))
    details = {"folder": str(root), "lacking": names}
    return Incomplete.of(
        "plan.source-incomplete", subject=subject, names=few(names), todo=tuple(todo), details=details
    )


def expected_extensions(named: Iterable[str], checkout: Checkout | None = None) -> dict[str, tuple[str, ...]]:
    """Return by name the variants of the extensions of incomplete folders: those there, and what is known of the empty ones."""
    extensions: dict[str, tuple[str, ...]] = {}
    for folder in filter(None, map(resolved_folder, named)):
        read = _known(folder, checkout)
        paths: tuple[Path, ...] = (folder,)
        if not disk.has_build_file(folder):
            paths = disk.walk_extensions(folder).found
        for path in paths:
            extensions.setdefault(_source(path, read).label, variants_of_source(str(path)))
        known = stack_of(read)
        by_setup = [part for part in known.parts if part.builder == "setup.py"] if known else []
        keys = {part.path: part.variant for part in by_setup}
        for item in read.submodules:
            if not item.empty:
                continue
            row, name = variant(keys.get(item.path, "")), module_of(item, read)
            if row:
                extensions.setdefault(row.module, (row.key,))
            elif variants(name) or name in read.imports:
                extensions.setdefault(name, ())
    return extensions


def _no_extension(folder: Path, known: Stack, request: Request) -> NothingToBuild:
    """Reject a checkout whose stack has no extension of its own, with what is known instead."""
    notes = [part.note for part in known.parts if part.note] or [known.build_note]
    meaning = ""
    if any(notes):
        meaning = f"What is known of it: {'; '.join(notes)}."
    todo: list[Step] = []
    for part in known.parts:
        if part.clone:
            todo.append(run("git", "clone", "--recursive", part.clone))
        if part.install:
            todo.append(request.install(part.install, sources=(part.install,)))
    text = "See what this machine has for it"
    todo.append(run("splatfix", "diagnose", "--repo", folder, text=text, kind="diagnose"))
    return NothingToBuild.of(
        "plan.no-extension-of-its-own", folder=folder, name=known.name, meaning=meaning, todo=tuple(todo)
    )


def _program(folder: Path, known: Stack, needs: ProgramNeeds, facts: Facts) -> Rejected:
    """Reject a program that splatfix does not build (LichtFeld, OpenSplat, brush), with what this machine has of its needs."""
    machine = facts.machine
    # each need, what was read for it, and what of that fits
    rows: list[tuple[str, Fact[Any], list[str]]] = []
    if needs.cuda:
        fitting = []
        for item in machine.toolkits.value or ():
            if item.nvcc and release(item.version)[:2] >= needs.cuda:
                fitting.append(f"{item.version} in {item.root}")
        rows.append((f"CUDA toolkit {dotted(needs.cuda)} or newer", machine.toolkits, fitting[:1]))
    for tool in needs.tools:
        versions = [version for name, version in machine.tools.items() if name == tool]
        rows.append((f"{tool} on PATH", Fact(versions), versions))
    if needs.adapters:
        names = [item.name for item in machine.adapters.value or ()]
        rows.append((f"a graphics adapter through {needs.adapters}", machine.adapters, names))
    checked: list[tuple[bool | None, str]] = []
    for need, fact, fitting in rows:
        if fact.value is None:
            checked.append((None, f"{need}: not known ({fact.error})"))
        else:
            checked.append((bool(fitting), f"{need}: {', '.join(fitting) or 'none found'}"))
    marks = {True: "✓", False: "✗", None: "?"}
    return Rejected.of(
        "plan.not-a-python-extension",
        folder=folder,
        name=known.name,
        note=known.build_note,
        needs="\n  ".join(f"{marks[met]} {text}" for met, text in checked),
        details={"needs": [{"met": met, "text": text} for met, text in checked]},
    )
