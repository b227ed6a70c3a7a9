"""Checks of whether a checkout is complete: its submodules, headers and the files that are compiled."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from splatfix.checks.checkout.recognition import stack_of
from splatfix.checks.extension.packages import installed_modules
from splatfix.checks.model import Evidence, Finding
from splatfix.checks.registry import Check, check
from splatfix.context import Context
from splatfix.context.submodules import holds, how_to_fetch, let_splatfix_fetch, module_of, public_address
from splatfix.core.step import Step, say
from splatfix.core.words import few
from splatfix.facts import Checkout, Submodule
from splatfix.knowledge import stacks


@check("submodules-missing", family="checkout", title="Submodules of the checkout were fetched")
def submodules_missing(context: Context, this: Check) -> Iterator[Finding]:
    """A plain `git clone`, or the ZIP from GitHub, leaves the folders of submodules empty; pip then finds no setup.py, or
    "does not appear to be a Python project", and imports fail. Named are those that a Python file imports, a build file or a
    list of requirements names, or the stack is known to need; viewers and the like are only mentioned, and so are extensions
    that are installed already. In a clone git fetches them; in an unpacked ZIP each is cloned at the commit that is known to
    belong there. Addresses that need an SSH key are replaced by those over https."""
    found = context.checkout
    if found is None or not found.submodules:
        return
    have = installed_modules(context) or set()
    empty = [item for item in found.submodules if item.empty]
    reasons = {item.path: next(_needed_by(item, found), "") for item in empty}
    needed = [item for item in empty if reasons[item.path] and module_of(item, found) not in have]
    others = [item for item in empty if item not in needed]
    if needed:
        names = [f"{item.path} ({reasons[item.path]})" for item in needed]
        yield this.fail(
            f"Empty in {found.folder}: {'; '.join(names)}.",
            evidence=tuple(_empty_evidence(item) for item in needed),
            remedy=(
                *fetching(context, needed),
                *([let_splatfix_fetch(context.install(found.folder))] if _to_build(needed, found) else []),
            ),
        )
    elif len(others) < len(found.submodules):
        yield this.ok(
            "All submodules that anything needs are there or installed.",
            evidence=Evidence(".gitmodules", ", ".join(item.path for item in found.submodules)),
        )
    if others:
        yield this.skip(
            f"Empty, and not needed: {', '.join(item.path for item in others)}.",
            evidence=tuple(_empty_evidence(item) for item in others),
        )


def _to_build(needed: Sequence[Submodule], found: Checkout) -> bool:
    """``splatfix install`` finds an extension in the checkout, at the latest once these were fetched."""
    return bool(found.sources) or any(
        module_of(item, found) in found.imports or re.search(r"(^|/)submodules/", item.path)
        for item in needed
    )


def _needed_by(item: Submodule, found: Checkout) -> Iterator[str]:
    """What needs a submodule, in words, the surest only."""
    stack = stack_of(found)
    known = stacks.recipe(stack.key) if stack else None
    users = [
        source.source.label
        for source in found.sources
        if any(
            holds(item, posixpath.normpath(posixpath.join(source.path, lost)))
            for lost in source.source.lacking
        )
    ]
    if users:
        yield f"{users[0]} needs it"
    elif known and any(part.path == item.path for part in known.parts):
        yield f"{known.name} needs it"
    elif item.named_in:
        yield f"{item.named_in[0]} needs it"
    elif module_of(item, found) in found.imports or re.search(r"(^|/)submodules/", item.path):
        yield "an extension"


@dataclass(frozen=True)
class Needed:
    """An empty submodule that something needs, with what must be known to fetch it."""

    submodule: Submodule
    """Its path is relative to the checkout."""
    remote: str
    """From which a relative address is seen."""
    commit: str
    """What belongs there; "" where nothing tells."""

    @property
    def address(self) -> str:
        """Where it is fetched from; "" where .gitmodules names nothing at https or ssh."""
        return public_address(self.submodule.url, self.remote)

    @property
    def words(self) -> str:
        """``submodules/simple-knn from https://... at 86710c2d4b``."""
        at = f"at {self.commit[:10]}" if self.commit else "at its newest commit"
        return (
            f"{self.submodule.path} from {self.address or 'an address that .gitmodules does not name'} {at}"
        )


def needed_submodules(found: Checkout) -> tuple[Needed, ...]:
    """The empty submodules of a checkout and of the extensions in it, without those that nothing needs."""
    stack = stack_of(found)
    commits = stack.submodules if stack else {}
    needed = {
        item.path: Needed(item, found.remote, item.recorded or commits.get(item.path, ""))
        for item in found.submodules
        if item.empty and any(_needed_by(item, found))
    }
    for source in found.sources:
        for own in source.source.submodules:
            path = posixpath.normpath(posixpath.join(source.path, own.path))
            needed.setdefault(path, Needed(replace(own, path=path), "", own.recorded or ""))
    return tuple(needed.values())


def _empty_evidence(item: Submodule) -> Evidence:
    commit = f" at {item.recorded[:10]}" if item.recorded else ""
    return Evidence(
        item.path, f"empty; from {item.url or 'nowhere that .gitmodules names'}{commit}", ".gitmodules"
    )


def fetching(context: Context, empty: Sequence[Submodule]) -> tuple[Step, ...]:
    """How these submodules of the checkout are fetched; see :func:`how_to_fetch`."""
    found = context.checkout
    assert found is not None, "its submodules are known"
    stack = stack_of(found)
    clone = found.commit is not None
    return how_to_fetch(
        found.folder, empty, clone=clone, remote=found.remote, commits=stack.submodules if stack else None
    )


@check("glm-missing", family="checkout", title="Headers that the extensions include are there")
def glm_missing(context: Context, this: Check) -> Iterator[Finding]:
    """The rasterizers of Inria's family include glm from a submodule of their own, `third_party/glm`. Without `--recursive`
    it stays empty and the build ends in "glm/glm.hpp: No such file or directory"."""
    found = context.checkout
    for item in found.sources if found else ():
        lost = [
            name
            for name in item.source.missing_folders
            if not _in_empty_submodule(found, posixpath.join(item.path, name))
        ]
        if lost:
            own = [one for one in item.source.submodules if one.path in lost]
            unknown_of = [name for name in lost if name not in {one.path for one in own}]
            restore = say(f"Restore {', '.join(unknown_of)} from the repository that the source is of.")
            yield this.fail(
                f"{item.source.label} lacks {few(lost)}.",
                subject=item.path,
                evidence=Evidence(
                    item.path, "missing or empty: " + ", ".join(lost), "setup.py and .gitmodules"
                ),
                remedy=(
                    *how_to_fetch(item.source.folder, own, clone=item.source.clone),
                    *((restore,) if unknown_of else ()),
                ),
            )


def _in_empty_submodule(found: Checkout | None, path: str) -> bool:
    """submodules-missing tells of it."""
    empty = [item for item in found.submodules if item.empty] if found else []
    return any(holds(item, posixpath.normpath(path)) for item in empty)


@check("source-incomplete", family="checkout", title="Files that setup.py compiles are there")
def source_incomplete(context: Context, this: Check) -> Iterator[Finding]:
    """setup.py names the files that it compiles. Where one of them is missing (an interrupted download, a commit that moved
    it, a file that .gitignore swallowed) the build ends in "No such file or directory" or "no rule to make"."""
    found = context.checkout
    for item in found.sources if found else ():
        lost = [
            name
            for module in item.source.modules
            for name in module.missing
            if not _in_empty_submodule(found, posixpath.join(item.path, name))
        ]
        if lost:
            yield this.fail(
                f"{item.source.label} lacks {few(lost)}.",
                subject=item.path,
                evidence=Evidence(item.path, "named in setup.py, not there: " + ", ".join(lost), "setup.py"),
                remedy="Restore the commit's files with git checkout, or clone again.",
            )
