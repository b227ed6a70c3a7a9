"""Checks of whether a checkout is complete: its submodules, headers and the files that are compiled."""

import posixpath
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from splatfix.checks.checkout.recognition import commits_of, stack_of
from splatfix.checks.extension.packages import installed_modules
from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.context.submodules import holds, how_to_fetch, let_splatfix_fetch, module_of, public_address
from splatfix.core.step import Step, say
from splatfix.core.words import few
from splatfix.model import Checkout, Evidence, Finding, Submodule

check = checks_of("checkout")


@check("submodules-missing")
def submodules_missing(context: Context, this: Check) -> Iterator[Finding]:
    checkout = context.checkout
    if checkout is None or not checkout.submodules:
        return
    installed = installed_modules(context) or set()
    needed: list[Submodule] = []
    optional: list[Submodule] = []
    paths_by_reason: dict[str, list[str]] = {}
    for submodule in checkout.submodules:
        if not submodule.empty:
            continue
        reason = _needed_by(submodule, checkout)
        if reason and module_of(submodule, checkout) not in installed:
            needed.append(submodule)
            paths_by_reason.setdefault(reason, []).append(submodule.path)
        else:
            optional.append(submodule)
    if needed:
        remedy = list(fetching(context, needed))
        # install finds an extension in the checkout, at the latest once these were fetched
        if checkout.sources or any(_is_extension(submodule, checkout) for submodule in needed):
            remedy.append(let_splatfix_fetch(context.install(checkout.folder)))
        yield this.fail(
            evidence=[_empty_evidence(submodule) for submodule in needed],
            remedy=remedy,
            checkout=checkout,
            names="; ".join(f"{', '.join(paths)} ({reason})" for reason, paths in paths_by_reason.items()),
        )
    elif len(optional) < len(checkout.submodules):
        paths = ", ".join(submodule.path for submodule in checkout.submodules)
        yield this.ok(evidence=Evidence(".gitmodules", paths))
    if optional:
        evidence = [_empty_evidence(submodule) for submodule in optional]
        yield this.skip(evidence=evidence, paths=", ".join(submodule.path for submodule in optional))


def _is_extension(submodule: Submodule, checkout: Checkout) -> bool:
    # every stack of Inria's family keeps its extensions, and nothing else, in a folder of this name
    in_folder = re.search(r"(^|/)submodules/", submodule.path) is not None
    return in_folder or module_of(submodule, checkout) in checkout.imports


def _needed_by(submodule: Submodule, checkout: Checkout) -> str:
    """What needs a submodule, as a reason for people, the surest only; "" where nothing does."""
    for source in checkout.sources:
        paths = (
            posixpath.normpath(posixpath.join(source.path, name)) for name in source.source.missing_folders
        )
        if any(holds(submodule, path) for path in paths):
            return f"{source.source.label} needs it"
    stack = stack_of(checkout)
    if stack and any(part.path == submodule.path for part in stack.parts):
        return f"{stack.name} needs it"
    if submodule.named_in:
        return f"{submodule.named_in[0]} needs it"
    if _is_extension(submodule, checkout):
        return "an extension"
    return ""


class Needed(Struct, frozen=True):
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
        address = self.address or "an address that .gitmodules does not name"
        commit = self.commit[:10] or "its newest commit"
        return f"{self.submodule.path} from {address} at {commit}"


def needed_submodules(checkout: Checkout) -> tuple[Needed, ...]:
    """The empty submodules of a checkout and of the extensions in it, without those that nothing needs."""
    commits = commits_of(checkout)
    needed: dict[str, Needed] = {}
    for submodule in checkout.submodules:
        if submodule.empty and _needed_by(submodule, checkout):
            commit = submodule.recorded or commits.get(submodule.path, "")
            needed[submodule.path] = Needed(submodule, checkout.remote, commit)
    for source in checkout.sources:
        for nested in source.source.submodules:
            path = posixpath.normpath(posixpath.join(source.path, nested.path))
            needed.setdefault(path, Needed(replace(nested, path=path), "", nested.recorded or ""))
    return tuple(needed.values())


def _empty_evidence(item: Submodule) -> Evidence:
    origin = item.url or "nowhere that .gitmodules names"
    if item.recorded:
        origin += f" at {item.recorded[:10]}"
    return Evidence(item.path, f"empty; from {origin}", ".gitmodules")


def fetching(context: Context, empty: Sequence[Submodule]) -> tuple[Step, ...]:
    """How these submodules of the context's checkout are fetched; see :func:`how_to_fetch`."""
    checkout = context.checkout
    if checkout is None:
        return ()
    # an archive of GitHub's has no .git, and with it no link of a submodule to its commit
    clone, commits = checkout.commit is not None, commits_of(checkout)
    return how_to_fetch(checkout.folder, empty, clone=clone, remote=checkout.remote, commits=commits)


@check("glm-missing")
def glm_missing(context: Context, this: Check) -> Iterator[Finding]:
    # of what lies in an empty submodule of the checkout submodules-missing tells
    of_checkout = context.checkout.submodules if context.checkout else ()
    empty = [submodule for submodule in of_checkout if submodule.empty]
    for item in context.sources:
        missing = []
        for name in item.source.missing_folders:
            path = posixpath.normpath(posixpath.join(item.path, name))
            if not any(holds(submodule, path) for submodule in empty):
                missing.append(name)
        if not missing:
            continue
        fetchable = [submodule for submodule in item.source.submodules if submodule.path in missing]
        remedy = list(how_to_fetch(item.source.folder, fetchable, clone=item.source.clone))
        paths = {submodule.path for submodule in fetchable}
        others = [name for name in missing if name not in paths]
        if others:
            remedy.append(say(f"Restore {', '.join(others)} from the repository that the source is of."))
        folders = "missing or empty: " + ", ".join(missing)
        yield this.fail(
            subject=item.path,
            evidence=Evidence(item.path, folders, "setup.py and .gitmodules"),
            remedy=remedy,
            label=item.source.label,
            folders=few(missing),
        )
