"""From the folders a user named to extension sources: a source folder itself, or all those inside a stack's checkout.

What a SOURCE is decides what is read of it, so that reading and refusing go together. The makers of options get what was
read here, and read nothing themselves.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from packaging.utils import canonicalize_name

from splatfix.checks.checkout.recognition import Recognition, commits_of, recipe_of, recognise, repository_of
from splatfix.checks.checkout.submodules import needed_submodules
from splatfix.context.commands import BY_RELEASE
from splatfix.context.imports import brought_by
from splatfix.context.submodules import holds, how_to_fetch, let_splatfix_fetch, module_of
from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.step import Step, fill_in, run, say
from splatfix.core.versions import release
from splatfix.core.words import counted, few
from splatfix.facts import (
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
    resolved_folder,
    subfolders,
    telling_paths,
    trainer_around,
    walk_extensions,
)
from splatfix.knowledge.dropins import DROPINS
from splatfix.knowledge.stacks import (
    ProgramNeeds,
    StackRecipe,
    recipe,
    variant,
    variants,
)
from splatfix.model import Checkout, Facts, ImportedModule, Pin, Source
from splatfix.plan.parts import variants_of_face

# A folder of clones has some dozens; the temporary folder of a server has thousands, and none is looked for there.
_MOST_CANDIDATES = 300
_MOST_NAMED = 6

_ADDRESS = re.compile(r"(?:git\+)?(?:https?|ssh|git)://|git@[\w.-]+:")


def sources_in(
    named: Iterable[str], facts: Facts | None = None, checkout: Checkout | None = None
) -> tuple[tuple[Source, ...], tuple[str, ...]]:
    """Every extension source that these folders stand for, each once, and notes for the user.

    Args:
        facts: of the machine; with them a refused program (LichtFeld, OpenSplat, brush) says what it would find here.
        checkout: as it was read already, if one of the folders is one; that of the facts otherwise.

    Raises:
        SplatfixError: ``not-a-folder``, ``not-an-extension``, ``not-a-checkout``, ``source-unreadable`` (exit 2);
            ``source-incomplete``, ``same-name-twice``, ``no-extension-of-its-own``, ``not-a-python-extension``.
    """
    sources: dict[str, Source] = {}
    notes: list[str] = []
    if checkout is None and facts is not None:
        checkout = facts.checkout.value
    for text in named:
        for path in _extension_folders(text, facts, checkout, notes):
            source = read_source(path)
            if source.error:
                raise SplatfixError.of(
                    "plan.source-unreadable", source_folder=source.folder, error=source.error
                )
            if source.lacking:
                raise incomplete(source.label, Path(source.folder), source.lacking)
            apart = source.packages_apart
            if not apart:
                # pip builds one package of a folder; what below it can be built is named
                below = walk_extensions(path, below=True).found
                buildable = [inner for inner in below if read_source(inner).packages_apart]
                todo = [run("splatfix", "install", as_typed(inner)) for inner in buildable]
                if todo:
                    todo.insert(0, say("Name what below it has a setup.py of its own:"))
                by_hand = (
                    "For its own packages do what its README says, or give each a folder and a setup.py."
                )
                names = ", ".join(name or "a computed name" for name in source.setups)
                raise SplatfixError.of(
                    "plan.several-setups", todo=(*todo, say(by_hand)), folder=path, names=names
                )
            sources |= {f"{path} {package.name}": package for package in apart}
    for label in dict.fromkeys(source.label for source in sources.values()):
        of_one_name = canonicalize_name(label)
        twins = [item for item in sources.values() if canonicalize_name(item.label) == of_one_name]
        if len(twins) > 1:
            others = [item.folder for item in sources.values() if item not in twins]
            todo = [run("splatfix", "install", twin.folder, *others) for twin in twins]
            folders = " and ".join(twin.folder for twin in twins)
            raise SplatfixError.of(
                "plan.same-name-twice",
                todo=(say("Name the one you want:"), *todo),
                folders=folders,
                label=twins[0].label,
            )
    return tuple(sources.values()), tuple(notes)


def _extension_folders(
    text: str, facts: Facts | None, checkout: Checkout | None, notes: list[str]
) -> list[Path]:
    """The extension folders of one SOURCE; what the user should know goes to ``notes``."""
    folder = resolved_folder(text)
    if folder is None:
        raise _no_folder(text)
    require_one_thing(folder)
    recognition = stack_in(folder, checkout)
    known = None
    if recognition:
        known = recipe(recognition.stack.key)
    if known and known.needs and facts:
        raise _program(folder, known, known.needs, facts)
    if known and known.needs:
        raise _no_extension(folder, known)
    if known is None and has_build_file(folder):
        return _with_extensions_below(folder, checkout, notes)
    if known is None and not is_checkout(folder):
        around = checkout_around(folder)
        path = folder.relative_to(around).as_posix()
        # empty because it is a submodule that was never fetched
        if any(item.empty and item.path == path for item in read_submodules(around)):
            raise incomplete(around, around, [path])
        raise no_checkout(folder)
    extensions, unreadable = _extensions_of(folder, known, checkout)
    if recognition:
        origin = recognition.words
        if recognition.own:
            origin = f"of {recognition.words}"
        notes.append(f"{folder} is a checkout {origin}")
    if known:
        for part in known.parts:
            if part.path and part.builder == "setup.py" and not resolved_folder(folder / part.path):
                missing = f"{part.path} is not in this checkout, although {known.name} has it"
                notes.append(f"{missing}; it is left out")
            elif part.note and part.path in ("", "."):
                notes.append(part.note)
            elif part.note:
                notes.append(f"{part.path}: {part.note}")
    notes += [f"{path} cannot be read and was not looked into" for path in unreadable]
    return extensions


def _with_extensions_below(folder: Path, checkout: Checkout | None, notes: list[str]) -> list[Path]:
    """A package; before it the extensions below it that it or the checkout's scripts import, or all of them where it compiles
    nothing itself."""
    below: tuple[Path, ...] = ()
    if is_checkout(folder):
        below = walk_extensions(folder, below=True).found
        require_fetched(folder, checkout)
    if below and walk_extensions(folder, depth=0).found:
        imported = {module.name for module in (*read_source(folder).needs, *read_scripts(folder)[0].imports)}
        identity = _identity(folder, checkout)
        if identity:
            imported.update(identity.imports)
        below = tuple(path for path in below if brought_by([read_source(path)]) & imported)
    if not below:
        return [folder]
    names = ", ".join(path.relative_to(folder).as_posix() for path in below)
    notes.append(f"{folder.name} needs extensions that lie below it ({names}); they are built first")
    return [*below, folder]


def _no_folder(text: str) -> SplatfixError:
    """What to do with a SOURCE that is not a folder: a package by name, the address of a repository, what does not exist."""
    name = re.split(r"[=<>~!\[ ]", text)[0].lower()
    todo: list[Step] = []
    if name in BY_RELEASE:
        release_of_it = ("splatfix", "install", install_name(name), "--target", "ARCH")
        todo.append(fill_in(*release_of_it, text="Name the release to build"))
        todo.append(run("splatfix", "install", name, "--backend", "nvrtc", text="Or without a compiler"))
    elif _ADDRESS.match(text):
        address = text.removeprefix("git+").partition("#")[0]
        commit = ""
        if "@" in address.rpartition("/")[2]:
            address, _, commit = address.rpartition("@")
        folder = address.rpartition("/")[2].removesuffix(".git") or "FOLDER"
        todo.append(run("git", "clone", "--recursive", address, text="Clone it first, then name the folder"))
        if commit:
            todo.append(run("git", "-C", folder, "checkout", commit, "--recurse-submodules"))
        todo.append(fill_in("splatfix", "install", folder, "--target", "ARCH"))
    if todo:
        return SplatfixError.of("plan.not-a-source-folder", text=text, todo=tuple(todo))
    todo.append(say("Name the folder with the extension's setup.py, or a checkout."))
    name = text.replace("-", "_")
    if any(name in (dropin.module, dropin.name) for dropin in DROPINS):
        by_name = run("splatfix", "install", text, "--backend", "pure", text="For the drop-in of that name")
        todo.append(by_name)
    if name.isidentifier():
        argv = ("splatfix", "install", text, "--backend", "wheels", "--dry-run")
        todo.append(run(*argv, text="For a prebuilt wheel of that name"))
    problem = "does not exist"
    if is_file(text):
        problem = "is a file, not a folder"
    return usage_error("not-a-folder", f"{text} {problem}.", *todo)


def install_name(extension: str) -> str:
    """What ``splatfix install`` takes for an extension of this name where no folder of it is known; "": nothing does."""
    name = extension.lower()
    if name not in BY_RELEASE:
        return ""
    return f"{name}=={BY_RELEASE[name]}"


def require_one_thing(folder: Path) -> None:
    """Refuse ``splatfix install`` typed where a terminal opens: whatever is below is many things, not one.

    Raises:
        SplatfixError: ``not-a-checkout`` (exit 2).
    """
    if not is_one_thing(folder):
        raise SplatfixError.of("plan.many-things", folder=folder, kind=holds_everything(folder))


def absolute(named: Iterable[str]) -> tuple[str, ...]:
    """The same sources, folders by their absolute paths."""
    return tuple(str(resolved_folder(text) or text) for text in named)


def variants_of_source(folder: str) -> tuple[str, ...]:
    """Keys of the variants that an extension's source folder can be, by its own ``__init__.py``; () where none is known."""
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
    """What the scripts of a SOURCE import and cannot do without, and what it declares; nothing where it is no folder."""
    folder = resolved_folder(text)
    if folder is None:
        return (), ()
    scripts, _ = read_scripts(folder)
    imports = tuple(item for item in scripts.imports if not item.beside)
    return imports, declared_by(folder)


def not_around(source: Source, modules: Iterable[str]) -> tuple[str, ...]:
    """Those modules that do not lie in the checkout around an extension, in which its trainer runs."""
    root = trainer_around(Path(source.folder))
    return tuple(name for name in modules if root is None or not resolved_folder(root / name))


def declared_by(folder: Path) -> tuple[Pin, ...]:
    """The requirements that a folder writes down."""
    return tuple(read_pins(folder))


def checkout_to_replace(text: str, checkout: Checkout | None, backend: str) -> Checkout | None:
    """What is known of a SOURCE whose extensions drop-ins are to take the place of; None where it is no folder.

    Args:
        checkout: as it was read already, if it is that folder.

    Raises:
        SplatfixError: ``not-a-checkout``, ``not-an-extension``, ``no-code`` (exit 2).
    """
    folder = resolved_folder(text)
    if folder is None:
        return None
    require_one_thing(folder)
    if not is_source(folder):
        raise no_checkout(folder, "--backend", backend)
    if checkout and checkout.folder == str(folder):
        return checkout
    return read_checkout(folder, ()).value


def is_source(folder: Path) -> bool:
    """Something can be built or replaced in it."""
    return has_build_file(folder) or is_checkout(folder)


def is_one_thing(folder: Path) -> bool:
    """The folder is not one where a terminal opens; see :func:`require_one_thing`."""
    return not holds_everything(folder) or "setup.py" in telling_paths(folder)


def has_stack_files(folder: Path) -> bool:
    """By its files alone the folder can be a checkout of some stack."""
    return recognise(Checkout(str(folder), telling_paths(folder))) is not None


def stack_in(folder: Path, checkout: Checkout | None = None) -> Recognition | None:
    """The stack that a checkout is or was made from, by all that tells; None also where its own call is another.

    Args:
        checkout: as it was read already.
    """
    identity = _identity(folder, checkout)
    if identity is None:
        return None
    recognition = recognise(identity)
    if recognition and recognition.call_fits is False:
        return None
    return recognition


def _identity(folder: Path, checkout: Checkout | None) -> Checkout | None:
    if checkout and checkout.folder == str(folder):
        return checkout
    return read_identity(folder).value


def is_checkout(folder: Path) -> bool:
    """Of a stack that splatfix knows, or a clone, or what has its extensions where stacks have them."""
    return is_clone(folder) or has_stack_files(folder)


def no_checkout(folder: Path, *options: str) -> SplatfixError:
    """That this folder is neither a checkout nor an extension, with what below it could be meant.

    Args:
        options: of ``splatfix install``, to be given with each.
    """
    problem = f"{folder} is neither a checkout of a stack nor an extension's source folder"
    below = list(islice(_candidates(folder), _MOST_NAMED + 1))
    if not below and (other := _other_kind(folder)):
        return other
    if not below:
        return SplatfixError.of("plan.not-an-extension", problem=problem)
    todo = [say("Name one of those that it holds:")]
    todo += [run("splatfix", "install", as_typed(path), *options) for path in below[:_MOST_NAMED]]
    if len(below) > _MOST_NAMED:
        todo.append(say("There are more of them."))
    return usage_error("not-a-checkout", f"{problem}.", *todo)


def _other_kind(folder: Path) -> SplatfixError | None:
    """Give the problem where a folder of photos, or a program in Rust, was named in the place of a trainer's checkout."""
    if number := photos_alone(folder):
        return SplatfixError.of("plan.no-code", folder=folder, photos=counted(number, "photo"))
    if "Cargo.toml" in telling_paths(folder):
        return SplatfixError.of("plan.rust-program", folder=folder)
    return None


def _candidates(folder: Path) -> Iterator[Path]:
    """Checkouts and extensions one or two levels below, in order of name; nothing inside one of them."""
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


def _extensions_of(
    folder: Path, known: StackRecipe | None, checkout: Checkout | None
) -> tuple[list[Path], tuple[Path, ...]]:
    """The extensions of a checkout, in the recipe's order, then all others by name; and folders that cannot be read."""
    empty = require_fetched(folder, checkout)
    # the folders of its recipe that setup.py builds, and those that something else does; a fork may have left a part out
    ours: list[Path] = []
    others: set[Path] = set()
    for part in known.parts if known else ():
        path = resolved_folder(folder / part.path)
        if path and part.path and part.builder == "setup.py":
            ours.append(path)
        elif path and part.path:
            others.add(path)
    # a folder that is there and holds no source is what a plain clone or a zip leaves
    if gone := [os.path.relpath(path, folder) for path in ours if not has_build_file(path)]:
        raise incomplete(folder, folder, gone)
    if folder in ours:
        return ours, ()
    walk = walk_extensions(folder)
    if not walk.complete:
        raise SplatfixError.of("plan.not-a-checkout", folder=folder, most_folders=MOST_FOLDERS)
    extensions = [path for path in walk.found if path not in others]
    if not extensions:
        raise _nothing_to_build(folder, known, empty, walk.unreadable)
    return [*ours, *(path for path in extensions if path not in ours)], walk.unreadable


def require_fetched(folder: Path, checkout: Checkout | None = None) -> tuple[str, ...]:
    """Refuse a checkout with an empty submodule that something needs, as ``diagnose`` does; the other empty ones come back.

    Raises:
        SplatfixError: ``source-incomplete``.
    """
    empty = tuple(item.path for item in read_submodules(folder) if item.empty)
    read = checkout
    if empty and (read is None or read.folder != str(folder)):
        read = read_checkout(folder, ()).value
    # viewers and the like are needed by nothing here
    needed = [item.submodule.path for item in needed_submodules(read)] if empty and read else []
    if of_it := [path for path in needed if path in empty]:
        raise incomplete(folder, folder, of_it)
    return empty


def _nothing_to_build(
    folder: Path, known: StackRecipe | None, empty: Sequence[str], unreadable: Sequence[Path]
) -> SplatfixError:
    """Why a checkout has no extension; what is most certain comes first."""
    if known:
        return _no_extension(folder, known)
    if empty:
        return incomplete(folder, folder, empty)
    if problem := _other_kind(folder):
        return problem
    if at := compiled_at_first_use(folder):
        lines, newest = few([item.place for item in at]), max(at, key=lambda use: release(use.cmake))
        return SplatfixError.of(
            "plan.compiled-at-first-use", folder=folder, lines=lines, builder=newest.builder
        )
    # how extensions come into a checkout that keeps them in archives, or whose README clones them
    todo: list[Step] = []
    for archive in packed_sources(folder):
        unpack = ("python", "-m", "zipfile", "-e", archive, archive.parent)
        todo.append(run(*unpack, text="Unpack what it keeps, then run this again"))
    identity = read_identity(folder).value
    for address in identity.clones if identity else ():
        name = repository_of(address)
        if identity and name != repository_of(identity.remote) and Path(name).name != folder.name.lower():
            clone = ("git", "clone", "--recursive", address)
            todo.append(run(*clone, text="Its README clones this; install its folder"))
    return usage_error(
        "not-an-extension",
        f"{folder} has neither setup.py nor pyproject.toml, and contains no extension that has one.",
        *todo,
        say("Name the folder with the extension's setup.py, or a checkout."),
        *(say(f"Not looked into, because it cannot be read: {path}") for path in unreadable),
    )


def incomplete(subject: str | Path, folder: Path, lacking: Sequence[str]) -> SplatfixError:
    """That a folder lacks submodules, or files of its own, with what fills them: in the checkout around it, where it is one.

    Args:
        lacking: relative to ``folder``; what is above it may be meant.
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
        identity = read_identity(root).value
        if identity:
            commits = commits_of(identity)
    clone = git is not None
    todo = list(how_to_fetch(str(root), submodules, clone=clone, remote=remote_of(git), commits=commits))
    if todo:
        todo.append(let_splatfix_fetch(run("splatfix", "install", folder)))
    foreign = [path for path in others if git and has_nothing_below(git, path)]
    deleted = [path for path in others if path not in foreign]
    if foreign:
        todo.append(say(f"Its README may say where it is from: git has nothing of {few(foreign)}."))
    if deleted and git:
        todo.append(run("git", "-C", root, "checkout", "--", *deleted, text="Restore them from git"))
    elif deleted:
        todo.append(say(f"Clone it again with --recursive: {few(deleted)} came with the repository."))
    todo.append(say("Or name the extensions to build one by one."))
    are = "are"
    if len(names) == 1:
        are = "is"
    details = {"folder": str(root), "lacking": names}
    return SplatfixError.of(
        "plan.source-incomplete",
        subject=subject,
        missing=f"{few(names)} {are}",
        todo=tuple(todo),
        details=details,
    )


def expected_extensions(named: Iterable[str], read: Checkout | None = None) -> dict[str, tuple[str, ...]]:
    """By name, variants of the extensions of incomplete folders: those that are there, and what is known of the empty ones.

    Args:
        read: a checkout as it was read already, if one of the folders is one.
    """
    extensions: dict[str, tuple[str, ...]] = {}
    for folder in filter(None, map(resolved_folder, named)):
        paths: tuple[Path, ...] = (folder,)
        if not has_build_file(folder):
            paths = walk_extensions(folder).found
        for path in paths:
            extensions.setdefault(read_source(path).label, variants_of_source(str(path)))
        checkout = _identity(folder, read)
        if checkout is None:
            continue
        keys: dict[str, str] = {}
        known = recipe_of(checkout)
        if known:
            keys = {part.path: part.variant for part in known.parts if part.builder == "setup.py"}
        for item in checkout.submodules:
            if not item.empty:
                continue
            row, name = variant(keys.get(item.path, "")), module_of(item, checkout)
            if row:
                extensions.setdefault(row.module, (row.key,))
            elif variants(name) or name in checkout.imports:
                extensions.setdefault(name, ())
    return extensions


def _no_extension(folder: Path, known: StackRecipe) -> SplatfixError:
    notes = [part.note for part in known.parts if part.note] or [known.note]
    meaning = ""
    if any(notes):
        meaning = f"What is known of it: {'; '.join(notes)}."
    steps: list[Step] = []
    for part in known.parts:
        if part.clone:
            steps.append(run("git", "clone", "--recursive", part.clone))
        if part.install:
            steps.append(fill_in("splatfix", "install", part.install, "--target", "ARCH"))
    steps.append(run("splatfix", "diagnose", "--repo", folder, text="See what this machine has for it"))
    return SplatfixError.of(
        "plan.no-extension-of-its-own",
        folder=folder,
        name=known.name,
        meaning=meaning,
        todo=tuple(steps),
    )


def _program(folder: Path, known: StackRecipe, needs: ProgramNeeds, facts: Facts) -> SplatfixError:
    """For a program that splatfix does not build (LichtFeld, OpenSplat, brush): what this machine has of what it needs.

    The details hold each need with ``met`` true, false or null (not known).
    """
    machine = facts.machine
    checked: list[tuple[bool | None, str]] = []
    if needs.cuda:
        need = f"CUDA toolkit {'.'.join(map(str, needs.cuda))} or newer"
        toolkits = machine.toolkits.value
        if toolkits is None:
            checked.append((None, f"{need}: not known ({machine.toolkits.error})"))
        else:
            fitting = [item for item in toolkits if item.nvcc and release(item.version)[:2] >= needs.cuda]
            best = "none found"
            if fitting:
                best = f"{fitting[0].version} in {fitting[0].root}"
            checked.append((bool(fitting), f"{need}: {best}"))
    for tool in needs.tools:
        checked.append((tool in machine.tools, f"{tool}: {machine.tools.get(tool, 'not found on PATH')}"))
    if needs.adapters:
        need = f"a graphics adapter through {needs.adapters}"
        adapters = machine.adapters.value
        if adapters is None:
            checked.append((None, f"{need}: not known ({machine.adapters.error})"))
        else:
            names = ", ".join(item.name for item in adapters) or "none found"
            checked.append((bool(adapters), f"{need} or Metal: {names}"))
    marks = {True: "✓", False: "✗", None: "?"}
    lines = [f"{marks[met]} {text}" for met, text in checked]
    return SplatfixError(
        "not-a-python-extension",
        f"{folder} is a checkout of {known.name}: {known.note}.",
        meaning="\n  ".join(["splatfix does not build it; what it needs of this machine:", *lines]),
        todo=(run("splatfix", "diagnose", "--repo", folder, text="See what else this machine lacks"),),
        details={"needs": [{"met": met, "text": text} for met, text in checked]},
    )
