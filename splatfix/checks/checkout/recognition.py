"""Which stack a checkout is, or was made from, and on what evidence: addresses, files, and its own render call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice

from splatfix.checks.checkout.rasterizer_calls import OF_MODULES, alternatives, differences
from splatfix.core.words import counted
from splatfix.facts import Checkout
from splatfix.knowledge.dropins import Face
from splatfix.knowledge.stacks import Stack, Variant, stack, stacks, variant

# What a piece of evidence weighs. A repository says itself what it is; a file that only one stack has says more than one
# that every fork keeps.
_ITS_REMOTE, _ITS_README, _ITS_CALL, _ITS_SUBMODULE, _ITS_FILE = 8, 6, 3, 2, 2


_MOST_COMPARED = 50


_MOST_TOLD = 5


@dataclass(frozen=True)
class Recognition:
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
        return self.stack.name if self.own else f"made from {self.stack.name}"


@lru_cache(maxsize=4)
def recognise(found: Checkout) -> Recognition | None:
    """The stack that the evidence speaks for most; None where it carries no claim at all.

    A claim needs the repository's own address, or all the files by which the stack is known; failing these, half of the
    files with an address (in its README, among its submodules) or a call of the stack's module, or a submodule's address
    with a call that fits. A README that clones another stack may do so for its rasterizer alone.
    """
    weighed = [one for row in stacks() if (one := _weigh(found, row))]
    return max(weighed, key=lambda item: (item[0], item[1].own))[1] if weighed else None


def _weigh(found: Checkout, row: Stack) -> tuple[int, Recognition] | None:
    names = {name.lower() for name in row.repositories}
    submodules = {item.path: repository_of(item.url) for item in found.submodules}
    itself = repository_of(found.remote) in names
    readme = next((name for item in found.clones if (name := repository_of(item)) in names), "")
    files, lost = _files_of(row, found)
    addresses = [name for name in row.addresses if name.lower() in submodules.values()]
    fits, differs, compared = _calls(found, row)
    half = len(files) >= max(len(lost), 1)
    by_parts = half and (readme or addresses or compared)
    if not (itself or not lost or by_parts or (addresses and fits)):
        return None
    evidence = (
        (_ITS_REMOTE * itself, f"cloned from {repository_of(found.remote)}"),
        (_ITS_README * bool(readme), f"its README clones {readme}"),
        (
            _ITS_FILE * (1 + len(set(files) - _common_files())) if not lost else half,
            f"it has {', '.join(files)}",
        ),
        (_ITS_SUBMODULE * len(addresses), f"submodules from {', '.join(addresses)}"),
        (_ITS_CALL * bool(fits), f"it calls the rasterizer as {row.name} does: {fits}"),
    )
    against = differs
    if not itself:
        against = (*_elsewhere(found, row, readme, submodules), *against)
        against += _besides(found, row) if fits else ()
        against += (f"it lacks {', '.join(lost)}",) if lost else ()
    seen = Recognition(
        row,
        own=not against,
        evidence=tuple(text for weight, text in evidence if weight),
        against=against,
        call_fits=bool(fits) if fits or differs else None,
        difference=differs[0] if differs else "",
    )
    return sum(weight for weight, _ in evidence), seen


def _elsewhere(found: Checkout, row: Stack, readme: str, submodules: dict[str, str]) -> Iterator[str]:
    """Addresses that are not those of the stack."""
    if remote := repository_of(found.remote):
        yield f"cloned from {remote}"
    clones = [name for item in found.clones if (name := repository_of(item)) not in submodules.values()]
    if clones and not readme:
        yield f"its README clones {clones[0]}"
    expected = {name.lower().rpartition("/")[2]: name.lower() for name in row.addresses}
    for path, name in submodules.items():
        meant = expected.get(path.rpartition("/")[2].lower())
        if meant and name and name != meant:
            yield f"{path} is from {name}"


def _calls(found: Checkout, row: Stack) -> tuple[str, tuple[str, ...], bool]:
    """The functions whose calls the stack's rasterizer answers, in what the others differ, and whether any call is of it."""
    wanted = [one for key in row.needs if (one := variant(key)) and one.kind == "rasterizer"]
    if not wanted or not found.calls:
        return "", (), False
    fitting: dict[str, None] = {}
    differing: list[str] = []
    for (file, function, module), calls in islice(alternatives(found.calls).items(), _MOST_COMPARED):
        faces = [_face(one) for one in wanted if one.module == module]
        where = f"{function or 'a call'}() in {file}:{calls[0].line}"
        problems = min((differences(call, face) for call in calls for face in faces), key=len, default=None)
        if problems:
            differing.append(f"{where}: {'; '.join(problems)}")
        elif problems is not None:
            fitting[f"{function}()"] = None
    differing += _other_calls(found, wanted)
    if len(differing) > _MOST_TOLD:
        differing[_MOST_TOLD:] = [f"and {counted(len(differing) - _MOST_TOLD, 'call')} more"]
    if not fitting and not differing:
        others = ", ".join(sorted({call.module for call in found.calls}))
        return "", (f"it calls {others}, not {wanted[0].module}",), False
    return ("" if differing else ", ".join(fitting)), tuple(differing), True


def _besides(found: Checkout, row: Stack) -> tuple[str, ...]:
    """Rasterizers that are called beside the stack's own."""
    own = {one.module for key in row.needs if (one := variant(key))}
    others = sorted({call.module for call in found.calls} - own)
    return (f"it calls {', '.join(others)} besides",) if others else ()


def _other_calls(found: Checkout, wanted: list[Variant]) -> Iterator[str]:
    """Methods and classes that are called of a rasterizer and that no variant of it here has."""
    hidden = {name for item in found.guarded for name in item.names}
    for call in found.extension_calls:
        rows = [one for one in wanted if one.module == call.module]
        owner, _, method = call.name.rpartition(".")
        known = {name for one in rows for name in (*one.methods, *one.extra_classes, *OF_MODULES)}
        asked = method if owner else call.name if call.name[:1].isupper() else ""
        if rows and asked and asked not in known and call.name not in hidden:
            yield f"{call.file}:{call.line}: it calls {call.name}"


def _face(row: Variant) -> Face:
    returns = None if row.returns is None else len(row.returns)
    return Face(settings=row.settings, forward=row.forward, returns=returns)


def _files_of(row: Stack, found: Checkout) -> tuple[list[str], list[str]]:
    """Files by which a stack is known that are there, without those that every fork keeps, and files that are not."""
    have, common = _all_paths(found), _common_files()
    own = [path for path in row.recognise if path not in common] or row.recognise
    return [path for path in own if path in have], [path for path in row.recognise if path not in have]


def _all_paths(found: Checkout) -> set[str]:
    have = set(found.paths)
    for path in found.paths:
        while "/" in path:
            path = path.rpartition("/")[0]
            have.add(path)
    return have


def _common_files() -> frozenset[str]:
    """Files of Inria's that most forks kept."""
    base = stack("inria-v1")
    return frozenset(base.recognise) if base else frozenset()


def repository_of(address: str) -> str:
    """``owner/name`` in lower case, of an address at some host; "" for a path on a disk and for anything else."""
    match = re.fullmatch(
        r"(?:git\+)?(?:\w+://|[\w.-]+@)(?P<rest>[^?#]+?)(?:\.git)?/*", address.strip().strip("\"'")
    )
    parts = [part for part in re.split(r"[:/]", match["rest"]) if part] if match else []
    return "/".join(parts[-2:]).lower() if len(parts) > 2 and not address.startswith("file:") else ""


def stack_of(found: Checkout) -> Stack | None:
    """The stack whose extensions a checkout needs: the one that it is or was made from, unless its own call differs. Of one
    that was made from it, neither the commits of the submodules nor the memory it takes are known."""
    seen = recognise(found)
    if seen is None or seen.call_fits is False:
        return None
    return seen.stack if seen.own else replace(seen.stack, submodules={}, vram_gb=None)
