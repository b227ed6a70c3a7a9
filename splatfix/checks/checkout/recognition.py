"""Which stack a checkout is, or was made from, and on what evidence: addresses, files, and its own render call."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from splatfix.checks.checkout.rasterizer_calls import OF_MODULES, alternatives, differences
from splatfix.core.words import counted
from splatfix.knowledge.dropins import Face
from splatfix.knowledge.stacks import Stack, stack, stacks, variant
from splatfix.model import Checkout

# What a piece of evidence weighs. A repository says itself what it is; a file that only one stack has says more than one
# that every fork keeps.
_ITS_REMOTE, _ITS_README, _ITS_CALL, _ITS_SUBMODULE, _ITS_FILE = 8, 6, 3, 2, 2


# Calls that are compared with each stack's, and differences that are told: nobody reads more of them.
_MOST_COMPARED, _MOST_TOLD = 50, 5


class Recognition(Struct, frozen=True):
    """What a checkout is taken for."""

    stack: Stack
    own: bool
    """It is the stack's own; False: it was made from it, and ``against`` says in what it differs."""
    evidence: tuple[str, ...]
    against: tuple[str, ...]
    call_fits: bool | None
    """The stack's rasterizer answers the checkout's calls; None where there is none to compare."""
    difference: str = ""
    """In what the first call that does not fit differs."""

    @property
    def words(self) -> str:
        """``Mip-Splatting``, or ``made from Mip-Splatting``."""
        if self.own:
            return self.stack.name
        return f"made from {self.stack.name}"


@lru_cache(maxsize=4)
def recognise(checkout: Checkout) -> Recognition | None:
    """The stack that the evidence speaks for most; None where it carries no claim at all.

    A claim needs the repository's own address, or all the files by which the stack is known; failing these, half of the
    files with an address (in its README, among its submodules) or a call of the stack's module, or a submodule's address
    with a call that fits. A README that clones another stack may do so for its rasterizer alone.
    """
    best, best_rank = None, (0, False)
    for row in stacks():
        claim = _weigh(checkout, row)
        # of equal weight the one that is the stack's own: what was made from it has something against it
        if claim is not None and (claim[0], claim[1].own) > best_rank:
            best, best_rank = claim[1], (claim[0], claim[1].own)
    return best


def _weigh(checkout: Checkout, row: Stack) -> tuple[int, Recognition] | None:
    """How much speaks for a stack, and what; None where it is too little for a claim."""
    # GitHub makes no difference between capitals and small letters
    repositories = {name.lower() for name in row.repositories}
    remote = repository_of(checkout.remote)
    clones = map(repository_of, checkout.clones)
    readme = next((name for name in clones if name in repositories), "")
    submodules = {item.path: repository_of(item.url) for item in checkout.submodules}
    addresses = [name for name in row.addresses if name.lower() in submodules.values()]
    base, paths = stack("inria-v1"), set(checkout.paths)
    common = set(base.recognise) if base else set()  # files of Inria's that most forks kept
    for path in checkout.paths:
        paths.update(str(folder) for folder in PurePosixPath(path).parents)
    # those that every fork keeps tell nothing, unless the stack has no others
    own_files = [path for path in row.recognise if path not in common] or row.recognise
    files = [path for path in own_files if path in paths]
    missing_files = [path for path in row.recognise if path not in paths]
    calls = _compare_calls(checkout, row)

    itself = remote in repositories
    half_of_files = len(files) >= max(len(missing_files), 1)
    by_parts = half_of_files and (readme or addresses or calls.compared)
    if not (itself or not missing_files or by_parts or (addresses and calls.fitting)):
        return None

    weighed: list[tuple[int, str]] = []
    if itself:
        weighed.append((_ITS_REMOTE, f"cloned from {remote}"))
    if readme:
        weighed.append((_ITS_README, f"its README clones {readme}"))
    if not missing_files:
        weight = _ITS_FILE * (1 + len(set(files) - common))
        weighed.append((weight, f"it has {', '.join(files)}"))
    elif half_of_files:
        weighed.append((1, f"it has {', '.join(files)}"))
    if addresses:
        weighed.append((_ITS_SUBMODULE * len(addresses), f"submodules from {', '.join(addresses)}"))
    if calls.fitting:
        weighed.append((_ITS_CALL, f"it calls the rasterizer as {row.name} does: {calls.fitting}"))

    against = list(calls.differing)
    if not itself:
        own = {needed.module for needed in map(variant, row.needs) if needed}
        others = _modules_called(checkout) - own
        if calls.fitting and others:
            against.append(f"it calls {', '.join(sorted(others))} besides")
        if missing_files:
            against.append(f"it lacks {', '.join(missing_files)}")
        against = [*_other_addresses(checkout, row, readme, submodules), *against]
    fits = None
    if calls.fitting or calls.differing:
        fits = bool(calls.fitting)
    weights, evidence = zip(*weighed, strict=True)
    recognition = Recognition(row, not against, evidence, tuple(against), fits, "".join(calls.differing[:1]))
    return sum(weights), recognition


def _other_addresses(
    checkout: Checkout, row: Stack, readme: str, submodules: dict[str, str]
) -> Iterator[str]:
    remote = repository_of(checkout.remote)
    if remote:
        yield f"cloned from {remote}"
    for name in map(repository_of, checkout.clones):
        # a README may clone the submodules one by one, where git did not
        if name and not readme and name not in submodules.values():
            yield f"its README clones {name}"
            break
    expected = {name.lower().rpartition("/")[2]: name.lower() for name in row.addresses}
    for path, name in submodules.items():
        upstream = expected.get(path.rpartition("/")[2].lower())
        if upstream and name and name != upstream:
            yield f"{path} is from {name}"


class _ComparedCalls(Struct, frozen=True):
    """A checkout's calls beside what a stack's rasterizer answers."""

    fitting: str = ""
    """The functions whose calls it answers; "" as soon as one differs."""
    differing: tuple[str, ...] = ()
    compared: bool = False
    """Some call is of the stack's module."""


def _compare_calls(checkout: Checkout, row: Stack) -> _ComparedCalls:
    variants = [needed for needed in map(variant, row.needs) if needed and needed.kind == "rasterizer"]
    if not variants or not checkout.calls:
        return _ComparedCalls()
    fitting: dict[str, None] = {}
    differing: list[str] = []
    for (file, function, module), calls in islice(alternatives(checkout.calls).items(), _MOST_COMPARED):
        rows = [one for one in variants if one.module == module]
        faces = [Face(one.settings, 0, one.forward, 0, len(one.returns or ()) or None) for one in rows]
        if not faces:
            continue
        problems = min((differences(call, face) for call in calls for face in faces), key=len)
        if problems:
            location = f"{function or 'a call'}() in {file}:{calls[0].line}"
            differing.append(f"{location}: {'; '.join(problems)}")
        else:
            fitting[f"{function}()"] = None
    # methods and classes that are called of a rasterizer and that no variant of it here has
    guarded = {name for item in checkout.guarded for name in item.names}
    for call in checkout.extension_calls:
        rows = [one for one in variants if one.module == call.module]
        if not rows or call.name in guarded:
            continue
        known = {*OF_MODULES, *(name for one in rows for name in (*one.methods, *one.extra_classes))}
        owner, _, method = call.name.rpartition(".")
        # a lower-case name without an owner is a function, of which the tables say nothing
        is_class = not owner and call.name[:1].isupper()
        if (owner and method not in known) or (is_class and call.name not in known):
            differing.append(f"{call.file}:{call.line}: it calls {call.name}")
    hidden = len(differing) - _MOST_TOLD
    if hidden > 0:
        differing[_MOST_TOLD:] = [f"and {counted(hidden, 'call')} more"]
    if differing:
        return _ComparedCalls("", tuple(differing), compared=True)
    if fitting:
        return _ComparedCalls(", ".join(fitting), compared=True)
    modules = ", ".join(sorted(_modules_called(checkout)))
    return _ComparedCalls("", (f"it calls {modules}, not {variants[0].module}",))


def _modules_called(checkout: Checkout) -> set[str]:
    return {call.module for call in checkout.calls}


def repository_of(address: str) -> str:
    """``owner/name`` in lower case, of an address at some host; "" for a path on a disk and for anything else."""
    match = re.fullmatch(
        r"(?:git\+)?(?:\w+://|[\w.-]+@)(?P<rest>[^?#]+?)(?:\.git)?/*", address.strip().strip("\"'")
    )
    if match is None or address.startswith("file:"):
        return ""
    parts = re.findall(r"[^:/]+", match["rest"])
    # host, owner, name: a host that serves one repository has no owner in its path, and nothing to compare
    if len(parts) < 3:
        return ""
    return "/".join(parts[-2:]).lower()


def stack_of(checkout: Checkout) -> Stack | None:
    """The stack whose extensions a checkout needs: the one that it is or was made from, unless its own call differs. Of one
    that was made from it, the commits of the submodules are not known."""
    recognition = recognise(checkout)
    if recognition is None or recognition.call_fits is False:
        return None
    if recognition.own:
        return recognition.stack
    return replace(recognition.stack, submodules={})


def commits_of(checkout: Checkout) -> Mapping[str, str]:
    """The commits of a checkout's submodules by their paths, as far as its stack tells; git's own links come before them."""
    needed = stack_of(checkout)
    if needed is None:
        return {}
    return needed.submodules
