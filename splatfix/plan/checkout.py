"""Read the SOURCEs that a user named: each is a name, an address, a package, a checkout, many things, or nothing.

What a SOURCE is decides what is read of it, so that reading and rejecting go together. The makers of options get what was
read here, and read nothing themselves.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.checks.checkout.recognition import commits_of, recipe_of, recognise, repository_of, stack_of
from splatfix.checks.checkout.submodules import needed_submodules
from splatfix.context.commands import BY_RELEASE
from splatfix.context.imports import brought_by
from splatfix.context.submodules import holds, how_to_fetch, let_splatfix_fetch, module_of
from splatfix.core.errors import Rejected
from splatfix.core.reading import resolved_folder
from splatfix.core.redact import without_credentials
from splatfix.core.step import Step, run, say, target_options
from splatfix.core.versions import dotted, release
from splatfix.core.words import counted, few
from splatfix.facts.checkout import (
    MOST_FOLDERS,
    as_typed,
    checkout_around,
    compiled_at_first_use,
    git_folder,
    has_build_file,
    has_nothing_below,
    holds_everything,
    is_clone,
    is_file,
    packages_in,
    packed_sources,
    photos_alone,
    read_checkout,
    read_identity,
    read_package,
    read_pins,
    read_scripts,
    read_source,
    read_submodules,
    remote_of,
    subfolders,
    telling_paths,
    trainer_around,
    walk_extensions,
)
from splatfix.knowledge.dropins import DROPINS
from splatfix.knowledge.stacks import ProgramNeeds, Stack, StackRecipe, variant, variants
from splatfix.model import Checkout, Fact, Facts, ImportedModule, Pin, Source
from splatfix.model.option import Request
from splatfix.plan.parts import variants_of_face

# A folder of clones has some dozens; the temporary folder of a server has thousands, and none is looked for there.
_MOST_CANDIDATES = 300
_MOST_NAMED = 6

_ADDRESS = re.compile(r"(?:git\+)?(?:https?|ssh|git)://|git@[\w.-]+:")
_NOTHING_ASKED = Request(sources=())


class Sources(Struct, frozen=True):
    """What the SOURCEs stand for."""

    sources: tuple[Source, ...]
    """Every extension source, each once, in the order of their builds."""
    notes: tuple[str, ...] = ()
    """What the user should know of them."""
    stack: Stack | None = None
    """What the last of the checkouts among them is, or was made from."""


class NoFolder(Rejected, frozen=True, kw_only=True):
    """A SOURCE is no folder: it may be the name of a package or of a drop-in, an address, or nothing that is there."""


class NoExtension(Rejected, frozen=True, kw_only=True):
    """A folder has nothing that could be built, as far as is seen: another one may be meant."""


class NothingToBuild(Rejected, frozen=True, kw_only=True):
    """It is known what a folder is, and that it has no extension of its own."""


class Incomplete(Rejected, frozen=True, kw_only=True):
    """Submodules or files of a folder are missing or empty."""

    fetch: tuple[Step, ...] = ()
    """The commands of git that complete it; () where a person has to."""


def read_sources(
    named: Iterable[str],
    facts: Facts | None = None,
    checkout: Checkout | None = None,
    request: Request = _NOTHING_ASKED,
) -> Sources | Rejected:
    """Read every extension source that these SOURCEs stand for.

    Args:
        facts: of the machine; with them a rejected program (LichtFeld, OpenSplat, brush) says what it would find here.
        checkout: as it was read already, if a SOURCE is one; that of the facts otherwise.
        request: what the commands of a rejection go on with.
    """
    if checkout is None and facts is not None:
        checkout = facts.checkout.value
    sources: dict[str, Source] = {}
    notes: list[str] = []
    stack: Stack | None = None
    for text in named:
        answer = _folders_of(text, facts, checkout, request)
        if isinstance(answer, Rejected):
            return answer
        folders, notes_of_it, read = answer
        notes += notes_of_it
        stack = stack_of(read)
        for path in folders:
            source = _source(path, read)
            if source.error:
                return Rejected.of("plan.source-unreadable", source_folder=source.folder, error=source.error)
            if source.missing_folders:
                return incomplete(source.label, path, source.missing_folders, request)
            apart = source.packages_apart
            if not apart:
                return _several_setups(path, source, request)
            sources |= {f"{path} {package.name}": package for package in apart}
    of_one_name: dict[str, list[Source]] = {}
    for source in sources.values():
        of_one_name.setdefault(canonicalize_name(source.label), []).append(source)
    for twins in of_one_name.values():
        if len(twins) > 1:
            others = [item.folder for item in sources.values() if item not in twins]
            todo = [run("splatfix", "install", twin.folder, *others, *request.options) for twin in twins]
            return Rejected.of(
                "plan.same-name-twice",
                todo=(say("Name the one you want:"), *todo),
                folders=" and ".join(twin.folder for twin in twins),
                label=twins[0].label,
            )
    return Sources(tuple(sources.values()), tuple(notes), stack)


def _folders_of(
    text: str, facts: Facts | None, checkout: Checkout | None, request: Request
) -> tuple[Sequence[Path], Sequence[str], Checkout] | Rejected:
    """Return the folders to build for one SOURCE, in order, notes for the user, and what was read of it."""
    folder = resolved_folder(text)
    if folder is None:
        return _no_folder(text, request)
    if opened_here := many_things(folder):
        return opened_here
    read = _identity(folder, checkout)
    known = recipe_of(read)
    if known and known.needs and facts:
        return _program(folder, known, known.needs, facts)
    if known and known.needs:
        return _no_extension(folder, known, request)
    empty = [item.path for item in read.submodules if item.empty]
    if empty:
        read = _whole_checkout(folder, checkout)
        # viewers and the like are needed by nothing here
        needed = [item.submodule.path for item in needed_submodules(read)]
        if lacking := [path for path in needed if path in empty]:
            return incomplete(folder, folder, lacking, request)
    if known is None and has_build_file(folder):
        return (*_package(folder, read), read)
    if known is None and not is_source(folder):
        around = checkout_around(folder)
        path = folder.relative_to(around).as_posix()
        # empty because it is a submodule that was never fetched
        if any(item.empty and item.path == path for item in read_submodules(around)):
            return incomplete(around, around, [path], request)
        return _no_checkout(folder, *request.options)
    notes = []
    recognition = recognise(read)
    if recognition and stack_of(read):
        origin = recognition.words
        if recognition.own:
            origin = f"of {recognition.words}"
        notes.append(f"{folder} is a checkout {origin}")
    # the folders of its recipe that setup.py builds, and those that something else does
    ours: list[Path] = []
    others: set[Path] = set()
    for part in known.parts if known else ():
        path_of_part, by_setup = resolved_folder(folder / part.path), part.builder == "setup.py"
        if path_of_part and part.path and by_setup:
            ours.append(path_of_part)
        elif path_of_part and part.path:
            others.add(path_of_part)
        if known and part.path and by_setup and not path_of_part:
            notes.append(f"{part.path} is not in this checkout, although {known.name} has it; it is left out")
        elif part.note and part.path in ("", "."):
            notes.append(part.note)
        elif part.note:
            notes.append(f"{part.path}: {part.note}")
    # a folder that is there and holds no source is what a plain clone or a zip leaves
    if gone := [os.path.relpath(path, folder) for path in ours if not has_build_file(path)]:
        return incomplete(folder, folder, gone, request)
    if folder in ours:
        return ours, notes, read
    walk = walk_extensions(folder)
    if not walk.complete:
        return NoExtension.of("plan.not-a-checkout", folder=folder, most_folders=MOST_FOLDERS)
    extensions = [path for path in walk.found if path not in others]
    if extensions:
        notes += [f"{path} cannot be read and was not looked into" for path in walk.unreadable]
        return list(dict.fromkeys([*ours, *extensions])), notes, read
    # why it has none; what is most certain comes first
    if known:
        return _no_extension(folder, known, request)
    if empty:
        return incomplete(folder, folder, empty, request)
    if problem := _other_kind(folder):
        return problem
    if uses := compiled_at_first_use(folder):
        lines, newest = few([item.place for item in uses]), max(uses, key=lambda use: release(use.cmake))
        builder = newest.builder
        return Rejected.of("plan.compiled-at-first-use", folder=folder, lines=lines, builder=builder)
    return _nothing_found(folder, read, walk.unreadable)


def _package(folder: Path, read: Checkout) -> tuple[Sequence[Path], Sequence[str]]:
    """Return a package; before it the extensions below it that it or the checkout's scripts import, or all of them where it
    compiles nothing itself."""
    below: tuple[Path, ...] = ()
    if is_checkout(folder):
        below = walk_extensions(folder, below=True).found
    if below and walk_extensions(folder, depth=0).found:
        needs = (*_source(folder, read).needs, *read_scripts(folder)[0].imports)
        imported = {*read.imports, *(module.name for module in needs)}
        below = tuple(path for path in below if brought_by([_source(path, read)]) & imported)
    if not below:
        return [folder], ()
    names = ", ".join(path.relative_to(folder).as_posix() for path in below)
    note = f"{folder.name} needs extensions that lie below it ({names}); they are built first"
    return [*below, folder], (note,)


def _several_setups(folder: Path, source: Source, request: Request) -> Rejected:
    """Build the rejection for a setup.py of several packages, of which pip builds one."""
    todo: list[Step] = []
    for inner in walk_extensions(folder, below=True).found:
        if read_source(inner).packages_apart:
            todo.append(run("splatfix", "install", as_typed(inner), *request.options))
    if todo:
        todo.insert(0, say("Name what below it has a setup.py of its own:"))
    todo.append(say("For its own packages do what its README says, or give each a folder and a setup.py."))
    names = ", ".join(name or "a computed name" for name in source.setups)
    return Rejected.of("plan.several-setups", todo=tuple(todo), folder=folder, names=names)


def _no_folder(text: str, request: Request) -> NoFolder:
    """Say what to do with a package by name, the address of a repository, and what does not exist."""
    text = without_credentials(text)
    name = re.split(r"[=<>~!\[ ]", text)[0].lower()
    module = text.replace("-", "_")
    todo: list[Step] = []
    if named := install_name(name):
        todo.append(request.install(named, text="Name the release to build", sources=(named,)))
        todo.append(request.install(name, "--backend", "nvrtc", text="Or without a compiler"))
    elif _ADDRESS.match(text):
        address = text.removeprefix("git+").partition("#")[0]
        commit = ""
        if "@" in address.rpartition("/")[2]:
            address, _, commit = address.rpartition("@")
        folder = address.rpartition("/")[2].removesuffix(".git") or "FOLDER"
        todo.append(run("git", "clone", "--recursive", address, text="Clone it first, then name the folder"))
        if commit:
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
    if is_file(text):
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
    kind = holds_everything(folder)
    if not kind or "setup.py" in telling_paths(folder):
        return None
    return NoExtension.of("plan.many-things", folder=folder, kind=kind)


def absolute(named: Iterable[str]) -> tuple[str, ...]:
    """Return the same sources, folders by their absolute paths."""
    return tuple(str(resolved_folder(text) or text) for text in named)


def variants_of_source(folder: str) -> tuple[str, ...]:
    """Return the variants that an extension's source folder can be, by its own ``__init__.py``; () where none is known."""
    keys: list[str] = []
    for module in packages_in(Path(folder)):
        if not variants(module):
            continue
        try:
            face = read_package(Path(folder), module)
        except ValueError:  # what is wrong with the source is for the build to say
            continue
        keys += variants_of_face(face)
    return tuple(keys)


def modules_of_scripts(text: str) -> tuple[tuple[ImportedModule, ...], tuple[Pin, ...]]:
    """Return what the scripts of a SOURCE import and cannot do without, and what it declares; nothing for no folder."""
    folder = resolved_folder(text)
    if folder is None:
        return (), ()
    scripts, _ = read_scripts(folder)
    return tuple(item for item in scripts.imports if not item.beside), declared_by(folder)


def not_around(source: Source, modules: Iterable[str]) -> tuple[str, ...]:
    """Return those modules that do not lie in the checkout around an extension, in which its trainer runs."""
    root = trainer_around(Path(source.folder))
    return tuple(name for name in modules if root is None or not resolved_folder(root / name))


def declared_by(folder: Path) -> tuple[Pin, ...]:
    """Return the requirements that a folder writes down."""
    return tuple(read_pins(folder))


def checkout_to_replace(text: str, checkout: Checkout | None, request: Request) -> Checkout | Rejected:
    """Return what is known of a SOURCE whose extensions drop-ins are to take the place of.

    Args:
        checkout: as it was read already, if it is that folder.
        request: what the commands of a rejection go on with.
    """
    folder = resolved_folder(text)
    if folder is None:
        return _no_folder(text, request)
    if opened_here := many_things(folder):
        return opened_here
    if not is_source(folder):
        return _no_checkout(folder, "--backend", request.backend, *target_options(request.targets))
    return _whole_checkout(folder, checkout)


def _whole_checkout(folder: Path, checkout: Checkout | None) -> Checkout:
    """Return all that is known of a folder, read now where it is not the checkout that was read already."""
    read = _identity(folder, checkout)
    if read is checkout:
        return read
    return read_checkout(folder, ()).value or read


def is_source(folder: Path) -> bool:
    """Tell whether something can be built or replaced in it."""
    return has_build_file(folder) or is_checkout(folder)


def is_checkout(folder: Path) -> bool:
    """Tell whether it is of a stack that splatfix knows, or a clone, or has its extensions where stacks have them."""
    return is_clone(folder) or has_stack_files(folder)


def has_stack_files(folder: Path) -> bool:
    """Tell whether by its files alone the folder can be a checkout of some stack."""
    return recognise(Checkout(str(folder), telling_paths(folder))) is not None


def _identity(folder: Path, checkout: Checkout | None) -> Checkout:
    """Return what was read of that very folder, or what tells which stack it is."""
    if checkout and checkout.folder == str(folder):
        return checkout
    return read_identity(folder).value or Checkout(str(folder), ())


def _source(folder: Path, read: Checkout) -> Source:
    """Return what was read of an extension's folder with its checkout, else read it."""
    known = (item.source for item in read.sources if item.source.folder == str(folder))
    return next(known, None) or read_source(folder)


def _no_checkout(folder: Path, *options: str) -> Rejected:
    """Reject a folder that is neither a checkout nor an extension, with what below it could be meant.

    Args:
        options: of ``splatfix install``, to be given with each.
    """
    below = list(islice(_candidates(folder), _MOST_NAMED + 1))
    if not below:
        return _other_kind(folder) or NoExtension.of("plan.not-an-extension", folder=folder)
    todo = [say("Name one of those that it holds:")]
    todo += [run("splatfix", "install", as_typed(path), *options) for path in below[:_MOST_NAMED]]
    if len(below) > _MOST_NAMED:
        todo.append(say("There are more of them."))
    return NoExtension.of("plan.holds-checkouts", folder=folder, todo=tuple(todo))


def _candidates(folder: Path) -> Iterator[Path]:
    """Yield checkouts and extensions one or two levels below, in order of name; nothing inside one of them."""
    budget = _MOST_CANDIDATES
    pending = [(path, 1) for path in subfolders(folder)]
    while pending and budget:
        path, level = pending.pop(0)
        budget -= 1
        try:
            if has_stack_files(path) or walk_extensions(path, depth=0).found:
                yield path
            elif level == 1:
                pending[:0] = [(inner, 2) for inner in subfolders(path)]
        except OSError:  # a folder of another user's holds nothing that could be meant
            continue


def _other_kind(folder: Path) -> Rejected | None:
    """Reject a folder of photos, or a program in Rust, that was named in the place of a trainer's checkout."""
    if number := photos_alone(folder):
        return NothingToBuild.of("plan.no-code", folder=folder, photos=counted(number, "photo"))
    if "Cargo.toml" in telling_paths(folder):
        return Rejected.of("plan.rust-program", folder=folder)
    return None


def _nothing_found(folder: Path, read: Checkout, unreadable: Sequence[Path]) -> NoExtension:
    """Reject a checkout without extensions, with how they come into one that keeps them in archives, or clones them."""
    todo: list[Step] = []
    for archive in packed_sources(folder):
        unpack = ("python", "-m", "zipfile", "-e", archive, archive.parent)
        todo.append(run(*unpack, text="Unpack what it keeps, then run this again"))
    for address in read.clones:
        name = repository_of(address)
        if name != repository_of(read.remote) and Path(name).name != folder.name.lower():
            clone = ("git", "clone", "--recursive", address)
            todo.append(run(*clone, text="Its README clones this; install its folder"))
    todo.append(say("Name the folder with the extension's setup.py, or a checkout."))
    todo += [say(f"Not looked into, because it cannot be read: {path}") for path in unreadable]
    return NoExtension.of("plan.holds-no-extension", folder=folder, todo=tuple(todo))


def incomplete(
    subject: str | Path, folder: Path, lacking: Sequence[str], request: Request = _NOTHING_ASKED
) -> Incomplete:
    """Reject a folder that lacks submodules, or files of its own, with what fills them: in the checkout around it, if any.

    Args:
        lacking: relative to ``folder``; what is above it may be meant.
        request: what goes on once the submodules were fetched; the folder alone where it names nothing.
    """
    root = checkout_around(folder)
    paths = [Path(os.path.relpath(folder / path, root)).as_posix() for path in lacking]
    empty = [item for item in read_submodules(root) if item.empty]
    submodules = [item for item in empty if any(holds(item, path) for path in paths)]
    others = [path for path in paths if not any(holds(item, path) for item in submodules)]
    names = [*(item.path for item in submodules), *others]
    git = git_folder(root)
    commits: Mapping[str, str] = {}
    # slow, and asked for commits alone, where git has not recorded them
    if not all(item.recorded for item in submodules):
        commits = commits_of(_identity(root, None))
    clone = git is not None
    todo = list(how_to_fetch(str(root), submodules, clone=clone, remote=remote_of(git), commits=commits))
    fetch = [step for step in todo if step.command]
    if todo:
        again = run("splatfix", "install", *(request.sources or (folder,)), *request.options)
        todo.append(let_splatfix_fetch(again))
    foreign = [path for path in others if git and has_nothing_below(git, path)]
    deleted = [path for path in others if path not in foreign]
    if foreign:
        todo.append(say(f"Its README may say where it is from: git has nothing of {few(foreign)}."))
    if deleted and git:
        restore = run("git", "-C", root, "checkout", "--", *deleted, text="Restore them from git")
        todo.append(restore)
        fetch.append(restore)
    elif deleted:
        todo.append(say(f"Clone it again with --recursive: {few(deleted)} came with the repository."))
    todo.append(say("Or name the extensions to build one by one."))
    are = "are"
    if len(names) == 1:
        are = "is"
    rejection = Incomplete.of(
        "plan.source-incomplete",
        subject=subject,
        missing=f"{few(names)} {are}",
        todo=tuple(todo),
        details={"folder": str(root), "lacking": names},
    )
    return replace(rejection, fetch=tuple(fetch))


def expected_extensions(named: Iterable[str], checkout: Checkout | None = None) -> dict[str, tuple[str, ...]]:
    """Return by name the variants of the extensions of incomplete folders: those there, and what is known of the empty ones.

    Args:
        checkout: as it was read already, if one of the folders is one.
    """
    extensions: dict[str, tuple[str, ...]] = {}
    for folder in filter(None, map(resolved_folder, named)):
        read = _identity(folder, checkout)
        paths: tuple[Path, ...] = (folder,)
        if not has_build_file(folder):
            paths = walk_extensions(folder).found
        for path in paths:
            extensions.setdefault(_source(path, read).label, variants_of_source(str(path)))
        keys: dict[str, str] = {}
        if known := recipe_of(read):
            keys = {part.path: part.variant for part in known.parts if part.builder == "setup.py"}
        for item in read.submodules:
            if not item.empty:
                continue
            row, name = variant(keys.get(item.path, "")), module_of(item, read)
            if row:
                extensions.setdefault(row.module, (row.key,))
            elif variants(name) or name in read.imports:
                extensions.setdefault(name, ())
    return extensions


def _no_extension(folder: Path, known: StackRecipe, request: Request) -> NothingToBuild:
    """Reject a checkout whose stack has no extension of its own, with what its recipe says instead."""
    notes = [part.note for part in known.parts if part.note] or [known.note]
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


def _program(folder: Path, known: StackRecipe, needs: ProgramNeeds, facts: Facts) -> Rejected:
    """Reject a program that splatfix does not build (LichtFeld, OpenSplat, brush), with what this machine has for it.

    The details hold each need with ``met`` true, false or null (not known).
    """
    machine = facts.machine
    checked: list[tuple[bool | None, str]] = []
    if needs.cuda:
        fitting = []
        for item in machine.toolkits.value or ():
            if item.nvcc and release(item.version)[:2] >= needs.cuda:
                fitting.append(f"{item.version} in {item.root}")
        checked.append(_checked(f"CUDA toolkit {dotted(needs.cuda)} or newer", machine.toolkits, fitting[:1]))
    for tool in needs.tools:
        checked.append((tool in machine.tools, f"{tool}: {machine.tools.get(tool, 'not found on PATH')}"))
    if needs.adapters:
        need = f"a graphics adapter through {needs.adapters}"
        if machine.adapters.value is not None:
            need += " or Metal"
        names = [item.name for item in machine.adapters.value or ()]
        checked.append(_checked(need, machine.adapters, names))
    marks = {True: "✓", False: "✗", None: "?"}
    return Rejected.of(
        "plan.not-a-python-extension",
        folder=folder,
        name=known.name,
        note=known.note,
        needs="\n  ".join(f"{marks[met]} {text}" for met, text in checked),
        details={"needs": [{"met": met, "text": text} for met, text in checked]},
    )


def _checked(need: str, fact: Fact[Any], fitting: Sequence[str]) -> tuple[bool | None, str]:
    if fact.value is None:
        return None, f"{need}: not known ({fact.error})"
    return bool(fitting), f"{need}: {', '.join(fitting) or 'none found'}"
