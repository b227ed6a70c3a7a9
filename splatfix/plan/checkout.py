"""From the folders a user named to extension sources: a source folder itself, or all those inside a stack's checkout."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from packaging.utils import canonicalize_name

from splatfix.checks.checkout.recognition import Recognition, recognise
from splatfix.context.commands import BY_RELEASE
from splatfix.context.imports import brought_by
from splatfix.context.submodules import holds, how_to_fetch, let_splatfix_fetch, module_of
from splatfix.core.errors import Problem, usage_problem
from splatfix.core.step import Step, fill_in, run, say
from splatfix.core.versions import release
from splatfix.core.words import counted, few
from splatfix.facts import (
    MOST_FOLDERS,
    Checkout,
    Facts,
    FirstUse,
    Source,
    as_typed,
    checkout_around,
    compiled_at_first_use,
    git_folder,
    has_build_file,
    holds_everything,
    is_clone,
    is_file,
    photos_alone,
    read_identity,
    read_source,
    read_submodules,
    remote_of,
    resolved_folder,
    subfolders,
    telling_paths,
    walk_extensions,
)
from splatfix.knowledge.dropins import known_names
from splatfix.knowledge.stacks import (
    ProgramNeeds,
    Recipe,
    Stack,
    recipe,
    recognise_checkout,
    variant,
    variants,
)
from splatfix.plan.parts import variants_of_source

# A folder of clones has some dozens; the temporary folder of a server has thousands, and none is looked for there.
_LOOKED_AT = 300
_NAMED = 6

_ADDRESS = re.compile(r"(?:git\+)?(?:https?|ssh|git)://|git@[\w.-]+:")


def sources_in(
    named: Iterable[str], facts: Facts | None = None, checkout: Checkout | None = None
) -> tuple[tuple[Source, ...], tuple[str, ...]] | Problem:
    """Every extension source that these folders stand for, each once, and notes for the user.

    Args:
        facts: of the machine; with them a refused program (LichtFeld, OpenSplat, brush) says what it would find here.
        checkout: as it was read already, if one of the folders is one; that of the facts otherwise.

    Refused: ``not-a-folder``, ``not-an-extension``, ``not-a-checkout``, ``source-unreadable`` (exit 2);
    ``source-incomplete``, ``same-name-twice``, ``no-extension-of-its-own``, ``not-a-python-extension``.
    """
    found: dict[str, Source] = {}
    notes: list[str] = []
    checkout = checkout or (facts.checkout.value if facts else None)
    for text in named:
        inside = _sources_of(text, facts, checkout, notes)
        if isinstance(inside, Problem):
            return inside
        for path in inside:
            source = read_source(path)
            if problem := _problem_of(source):
                return problem
            found[str(path)] = source
    return _same_names(found.values()) or (tuple(found.values()), tuple(notes))


def _sources_of(
    text: str, facts: Facts | None, checkout: Checkout | None, notes: list[str]
) -> list[Path] | Problem:
    """The extension folders of one SOURCE; what the user should know goes to ``notes``."""
    folder = resolved_folder(text)
    if folder is None:
        return _no_folder(text)
    if problem := whole_disk(folder):
        return problem
    seen = stack_in(folder, checkout)
    known = recipe(seen.stack.key) if seen else None
    if known and known.needs:
        return _program(folder, known, known.needs, facts) if facts else _no_extension(folder, known)
    if known is None and has_build_file(folder):
        return _with_what_it_hides(folder, notes)
    if known is None and not is_checkout(folder):
        around = checkout_around(folder)
        path = folder.relative_to(around).as_posix()
        empty = any(item.empty and item.path == path for item in read_submodules(around))
        return _incomplete(around, around, [path]) if empty else no_checkout(folder)
    inside = _extensions_of(folder, known)
    if isinstance(inside, Problem):
        return inside
    extensions, unreadable = inside
    notes += _what_it_is(folder, extensions, known, seen.words if seen else "")
    notes += [f"{path} cannot be read and was not looked into" for path in unreadable]
    return extensions


def _with_what_it_hides(folder: Path, notes: list[str]) -> list[Path]:
    """A package; before it the extensions below it that it imports, or all of them where it compiles nothing itself."""
    below = walk_extensions(folder, below=True).found if is_checkout(folder) else ()
    if below and walk_extensions(folder, depth=0).found:
        wanted = {item.name for item in read_source(folder).needs}
        below = tuple(path for path in below if brought_by([read_source(path)]) & wanted)
    if not below:
        return [folder]
    names = ", ".join(path.relative_to(folder).as_posix() for path in below)
    notes.append(f"{folder.name} needs extensions that lie below it ({names}); they are built first")
    return [*below, folder]


def _no_folder(text: str) -> Problem:
    if other := _other_spellings(text):
        return usage_problem(
            "not-a-folder", f"{text} is not a folder; splatfix installs from source folders.", *other
        )
    todo = [say("Name the folder with the extension's setup.py, or a checkout.")]
    if text.replace("-", "_") in known_names():
        todo.append(
            run("splatfix", "install", text, "--backend", "pure", text="For the drop-in of that name")
        )
    what = "is a file, not a folder" if is_file(text) else "does not exist"
    return usage_problem("not-a-folder", f"{text} {what}.", *todo)


def _other_spellings(text: str) -> tuple[Step, ...]:
    """What to do with a SOURCE that is not a folder: a package by name, the address of a repository."""
    name = re.split(r"[=<>~!\[ ]", text)[0].lower()
    if name in BY_RELEASE:
        return (
            fill_in(
                *("splatfix", "install", install_name(name), "--target", "ARCH"),
                text="Name the release to build",
            ),
        )
    if not _ADDRESS.match(text):
        return ()
    address = text.removeprefix("git+").partition("#")[0]
    commit = ""
    if "@" in address.rpartition("/")[2]:
        address, _, commit = address.rpartition("@")
    folder = address.rpartition("/")[2].removesuffix(".git") or "FOLDER"
    checkout = run("git", "-C", folder, "checkout", commit, "--recurse-submodules")
    return (
        run("git", "clone", "--recursive", address, text="Clone it first, then name the folder"),
        *((checkout,) if commit else ()),
        fill_in("splatfix", "install", folder, "--target", "ARCH"),
    )


def install_name(extension: str) -> str:
    """What ``splatfix install`` takes for an extension of this name where no folder of it is known; "": nothing does."""
    name = extension.lower()
    return f"{name}=={BY_RELEASE[name]}" if name in BY_RELEASE else ""


def whole_disk(folder: Path) -> Problem | None:
    """``splatfix install`` typed where a terminal opens: whatever is below is many things, not one."""
    what = holds_everything(folder)
    if not what or "setup.py" in telling_paths(folder):
        return None
    return usage_problem(
        "not-a-checkout",
        f"{folder} is {what}, not a checkout.",
        fill_in(
            *("splatfix", "install", "CHECKOUT", "--target", "ARCH"),
            text="Go into the checkout first, or name it",
        ),
    )


def stacks_of(folder: Path) -> tuple[Stack, ...]:
    """The stacks whose checkout this can be by its files alone, the most telling first."""
    return recognise_checkout(telling_paths(folder))


def stack_in(folder: Path, checkout: Checkout | None = None) -> Recognition | None:
    """The stack that a checkout is or was made from, by all that tells; None also where its own call is another.

    Args:
        checkout: as it was read already.
    """
    found = _read(folder, checkout)
    seen = recognise(found) if found else None
    return seen if seen and seen.call_fits is not False else None


def _read(folder: Path, checkout: Checkout | None) -> Checkout | None:
    return checkout if checkout and checkout.folder == str(folder) else read_identity(folder).value


def is_checkout(folder: Path) -> bool:
    """Of a stack that splatfix knows, or a clone, or what has its extensions where stacks have them."""
    return is_clone(folder) or bool(stacks_of(folder))


def no_checkout(folder: Path, *options: str) -> Problem:
    """That this folder is neither a checkout nor an extension, with what below it could be meant.

    Args:
        options: of ``splatfix install``, to be given with each.
    """
    if photos := _photos(folder):
        return photos
    below = list(islice(_candidates(folder), _NAMED + 1))
    what = f"{folder} is neither a checkout of a stack nor an extension's source folder"
    if not below:
        return usage_problem(
            "not-an-extension",
            f"{what}, and none was found in it.",
            say("Name the folder with the extension's setup.py, or a checkout."),
        )
    commands = [run("splatfix", "install", as_typed(path), *options) for path in below[:_NAMED]]
    more = (say("There are more of them."),) if len(below) > _NAMED else ()
    return usage_problem(
        "not-a-checkout", f"{what}.", say("Name one of those that it holds:"), *commands, *more
    )


def _photos(folder: Path) -> Problem | None:
    """A folder of photos was named in the place of a trainer's checkout."""
    number = photos_alone(folder)
    if not number:
        return None
    return usage_problem(
        "no-code",
        f"{folder} holds {counted(number, 'photo')} and no code, so there is nothing to build.",
        run("splatfix", "scenes", "check", folder, text="To see whether a trainer can load them"),
        fill_in(
            *("splatfix", "install", "CHECKOUT", "--target", "ARCH"),
            text="To install the trainer that is to be trained on them",
        ),
    )


def _candidates(folder: Path) -> Iterator[Path]:
    """Checkouts and extensions one or two levels below, in order of name; nothing inside one of them."""
    budget = _LOOKED_AT
    pending = [(path, 1) for path in subfolders(folder)]
    while pending and budget:
        path, level = pending.pop(0)
        budget -= 1
        try:
            if stacks_of(path) or walk_extensions(path, depth=0).found:
                yield path
            elif level == 1:
                pending[:0] = [(inner, 2) for inner in subfolders(path)]
        except OSError:  # a folder of another user's holds nothing that could be meant
            continue


def _extensions_of(folder: Path, known: Recipe | None) -> tuple[list[Path], tuple[Path, ...]] | Problem:
    """The extensions of a checkout, in the recipe's order, then all others by name; and folders that cannot be read."""
    empty = [item for item in read_submodules(folder) if item.empty]
    # viewers and the like, outside of submodules, are not needed here
    if lacking := [item.path for item in empty if re.match(r"(.*/)?submodules/", item.path)]:
        return _incomplete(folder, folder, lacking)
    parts = [part for part in known.parts if part.path] if known else []
    # a fork may have left a part out; a folder that is there and holds no source is what a plain clone or a zip leaves
    there = [(part.builder, path) for part in parts if (path := resolved_folder(folder / part.path))]
    ours = [path for builder, path in there if builder == "setup.py"]
    others = {path for builder, path in there if builder != "setup.py"}
    if gone := [os.path.relpath(path, folder) for path in ours if not has_build_file(path)]:
        return _incomplete(folder, folder, gone)
    if folder in ours:
        return ours, ()
    walk = walk_extensions(folder)
    if not walk.complete:
        return usage_problem(
            "not-a-checkout",
            f"{folder} is not a checkout: it has more than {MOST_FOLDERS} folders.",
            say("Name the checkout, or the folder with the extension's setup.py."),
        )
    found = [path for path in walk.found if path not in others]
    if not found and known:
        return _no_extension(folder, known)
    if not found and empty:
        return _incomplete(folder, folder, [item.path for item in empty])
    if not found and (photos := _photos(folder)):
        return photos
    if not found and (at := compiled_at_first_use(folder)):
        return _nothing_beforehand(folder, at)
    if not found:
        return usage_problem(
            "not-an-extension",
            f"{folder} has neither setup.py nor pyproject.toml, and contains no extension that has one.",
            say("Name the folder with the extension's setup.py, or a checkout."),
            *(say(f"Not looked into, because it cannot be read: {path}") for path in walk.unreadable),
        )
    return [*ours, *(path for path in found if path not in ours)], walk.unreadable


def _nothing_beforehand(folder: Path, at: Sequence[FirstUse]) -> Problem:
    places = few([f"{item.file}:{item.line}" + (f" ({item.name})" if item.name else "") for item in at])
    return Problem(
        "compiled-at-first-use",
        f"{folder} has nothing to build beforehand: torch compiles its code when it first runs, in {places}.",
        meaning="torch does that with CUDA_HOME, CC and CXX, for the GPUs of TORCH_CUDA_ARCH_LIST or those that it sees, and "
        "needs ninja.",
        todo=(
            run(
                "splatfix", "diagnose", "--repo", folder, text="See whether this machine has what that needs"
            ),
            say("Then run it on the machine with the GPU; the result is kept in TORCH_EXTENSIONS_DIR."),
        ),
    )


def _incomplete(what: str | Path, folder: Path, lacking: Sequence[str]) -> Problem:
    """That a folder lacks submodules, or files of its own, with what fills them: in the checkout around it, where it is one.

    Args:
        lacking: relative to ``folder``; what is above it may be meant.
    """
    root = checkout_around(folder)
    git = git_folder(root)
    paths = [Path(os.path.relpath(folder / path, root)).as_posix() for path in lacking]
    empty = [item for item in read_submodules(root) if item.empty]
    wanted = [item for item in empty if any(holds(item, path) for path in paths)]
    others = [path for path in paths if not any(holds(item, path) for item in wanted)]
    seen = (
        None if all(item.recorded for item in wanted) else stack_in(root)
    )  # slow, and asked for commits alone
    fetch = how_to_fetch(
        str(root),
        wanted,
        clone=git is not None,
        remote=remote_of(git),
        commits=seen.stack.submodules if seen and seen.own else None,
    )
    restore = run("git", "-C", root, "checkout", "--", *others, text="Restore them from git") if git else None
    clone_again = say(f"Clone it again with --recursive: {', '.join(others)} came with the repository.")
    todo = [*fetch, *((let_splatfix_fetch(run("splatfix", "install", folder)),) if fetch else ())]
    todo += [restore or clone_again] if others else []
    names = [*(item.path for item in wanted), *others]
    return Problem(
        "source-incomplete",
        f"{what} is incomplete: {few(names)} {'is' if len(names) == 1 else 'are'} missing or empty.",
        todo=(*todo, say("Or name the extensions to build one by one.")),
        details={"folder": str(root), "lacking": names},
    )


def expected_extensions(named: Iterable[str], read: Checkout | None = None) -> dict[str, tuple[str, ...]]:
    """By name, variants of the extensions of incomplete folders: those that are there, and what is known of the empty ones.

    Args:
        read: a checkout as it was read already, if one of the folders is one.
    """
    found: dict[str, tuple[str, ...]] = {}
    for folder in filter(None, map(resolved_folder, named)):
        for path in [folder] if has_build_file(folder) else walk_extensions(folder).found:
            found.setdefault(read_source(path).label, variants_of_source(str(path)))
        if (checkout := _read(folder, read)) is None:
            continue
        seen = recognise(checkout)
        known = recipe(seen.stack.key) if seen and seen.call_fits is not False else None
        keys = (
            {part.path: part.variant for part in known.parts if part.builder == "setup.py"} if known else {}
        )
        for item in checkout.submodules:
            row, name = variant(keys.get(item.path, "")), module_of(item, checkout)
            if item.empty and (row or variants(name) or name in checkout.imports):
                found.setdefault(row.module if row else name, (row.key,) if row else ())
    return found


def _no_extension(folder: Path, known: Recipe) -> Problem:
    said = [part.note for part in known.parts if part.note] or [known.note]
    steps: list[Step] = []
    for part in known.parts:
        steps += [run("git", "clone", "--recursive", part.clone)] if part.clone else []
        steps += [fill_in("splatfix", "install", part.install, "--target", "ARCH")] if part.install else []
    return Problem(
        "no-extension-of-its-own",
        f"{folder} is a checkout of {known.name}, which has no native Python extension of its own to build.",
        meaning=f"What is known of it: {'; '.join(filter(None, said))}." if any(said) else "",
        todo=(*steps, run("splatfix", "diagnose", "--repo", folder, text="See what this machine has for it")),
    )


def _what_it_is(folder: Path, inside: list[Path], known: Recipe | None, words: str) -> list[str]:
    of = words if words.startswith("made from") else f"of {words or 'an unknown stack'}"
    name = f"a checkout {of}"
    notes = [f"{folder} is {name}; its extensions: {few([path.name for path in inside], 8)}"]
    for part in known.parts if known else ():
        if part.path and part.builder == "setup.py" and not resolved_folder(folder / part.path):
            notes.append(
                f"{part.path} is not in this checkout, although {known.name if known else name} has it; it is left out"
            )
        elif part.note:
            notes.append(f"{part.path}: {part.note}" if part.path not in ("", ".") else part.note)
    return notes


def _problem_of(source: Source) -> Problem | None:
    if source.error:
        return usage_problem(
            "source-unreadable",
            f"{source.folder}: {source.error}.",
            say("Repair that file, then run this again."),
        )
    if source.lacking:
        return _incomplete(source.label, Path(source.folder), source.lacking)
    return None


def _same_names(sources: Iterable[Source]) -> Problem | None:
    by_name: dict[str, str] = {}
    for source in sources:
        other = by_name.setdefault(canonicalize_name(source.label), source.folder)
        if other != source.folder:
            return Problem(
                "same-name-twice",
                f"{other} and {source.folder} are both called {source.label}.",
                meaning="An environment can have only one of them; the second would replace the first.",
                todo=(say("Name the one you want."),),
            )
    return None


def _program(folder: Path, known: Recipe, needs: ProgramNeeds, facts: Facts) -> Problem:
    """For a program that splatfix does not build (LichtFeld, OpenSplat, brush): what this machine has of what it needs.

    The details hold each need with ``met`` true, false or null (not known).
    """
    checked = list(_needs_met(needs, facts))
    marks = {True: "✓", False: "✗", None: "?"}
    lines = [f"{marks[met]} {text}" for met, text in checked]
    return Problem(
        "not-a-python-extension",
        f"{folder} is a checkout of {known.name}: {known.note}.",
        meaning="\n  ".join(["splatfix does not build it; what it needs of this machine:", *lines]),
        todo=(run("splatfix", "diagnose", "--repo", folder, text="See what else this machine lacks"),),
        details={"needs": [{"met": met, "text": text} for met, text in checked]},
    )


def _needs_met(needs: ProgramNeeds, facts: Facts) -> Iterator[tuple[bool | None, str]]:
    machine = facts.machine
    if needs.cuda:
        wanted = ".".join(map(str, needs.cuda))
        toolkits = machine.toolkits.value
        if toolkits is None:
            yield None, f"CUDA toolkit {wanted} or newer: not known ({machine.toolkits.error})"
        else:
            found = [item for item in toolkits if item.nvcc and release(item.version or "")[:2] >= needs.cuda]
            best = f"{found[0].version} in {found[0].root}" if found else "none found"
            yield bool(found), f"CUDA toolkit {wanted} or newer: {best}"
    for tool in needs.tools:
        yield tool in machine.tools, f"{tool}: {machine.tools.get(tool, 'not found on PATH')}"
    if needs.adapters:
        adapters = machine.adapters.value
        if adapters is None:
            yield None, f"a graphics adapter through {needs.adapters}: not known ({machine.adapters.error})"
        else:
            names = ", ".join(item.name for item in adapters) or "none found"
            yield bool(adapters), f"a graphics adapter through {needs.adapters} or Metal: {names}"
