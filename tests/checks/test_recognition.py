"""What a checkout is taken for: by addresses, files and its own call, from facts of our own making."""

from typing import Any

import pytest

from splatfix.checks.checkout.recognition import Recognition, recognise, repository_of
from splatfix.knowledge.stacks import Stack, stack, stacks, variant
from splatfix.model import Checkout, CheckoutSource, ExtensionCall, GuardedImport, Source, Submodule
from tests.tables import data

from .conftest import call

HUB = "https://github.com/"


def row(key: str) -> Stack:
    known = stack(key)
    assert known is not None
    return known


def modules(*addresses: str) -> tuple[Submodule, ...]:
    return tuple(
        Submodule(f"submodules/{address.rpartition('/')[2]}", f"{HUB}{address}.git", True)
        for address in addresses
    )


def checkout(*keys: str, **values: Any) -> Checkout:
    """With the files of these stacks."""
    paths = tuple(path for key in keys for path in row(key).recognise)
    return Checkout(**{"folder": "/home/u/gs", "paths": paths, **values})


def recognised(checkout: Checkout) -> Recognition:
    answer = recognise(checkout)
    assert answer is not None
    return answer


@pytest.mark.parametrize("known", stacks(), ids=lambda known: known.key)
def test_a_stack_as_it_is_published(known: Stack) -> None:
    """With its files and its call, also among those of Inria's that forks keep; by whichever address it has."""
    rasterizer = next((key for key in known.needs if (one := variant(key)) and one.kind == "rasterizer"), "")
    calls = (call(rasterizer),) if rasterizer else ()
    for name in known.repositories:
        for address in ({"remote": f"git@github.com:{name}.git"}, {"clones": (HUB + name,)}, {}):
            taken_for = recognised(checkout(known.key, "inria-v1", calls=calls, **address))
            assert (taken_for.stack.key, taken_for.own, taken_for.against) == (known.key, True, ()), address
            assert taken_for.call_fits is (True if calls else None)


V1_CALL, FORK = {"calls": (call(),)}, "me/diff-gaussian-rasterization"
SCORES = {"calls": (call(forward=("means3D", "scores"), unpacks=3),)}
MODULE = "diff_gaussian_rasterization"
FILTER = ExtensionCall("r.py", 9, "prefilter", MODULE, "GaussianRasterizer.visible_filter")


@pytest.mark.parametrize(
    ("keys", "values", "key", "fits", "against"),
    [
        # all of Inria's files, and another rasterizer
        ("inria-v1", SCORES, "inria-v1", False, "gives scores"),
        ("inria-v1", {**V1_CALL, "extension_calls": (FILTER,)}, "inria-v1", False, "visible_filter"),
        ("inria-v1", {**V1_CALL, "submodules": modules(FORK)}, "inria-v1", True, FORK),
        # all files and the very call of Scaffold-GS; only its own address says that it is another
        ("scaffold", {"calls": (call("scaffold"),), "clones": (HUB + "me/Tree-GS",)}, "scaffold", True, "me/tree-gs"),
        # the files of Mip-Splatting, which calls the rasterizer as Inria's does
        ("mip", V1_CALL, "mip", False, "kernel_size"),
        ("inria-v1", {**V1_CALL, "remote": HUB + "me/gaussian-splatting"}, "inria-v1", True, "cloned from me/"),
        # some files and what the rasterizer's address and call say
        ("", {**V1_CALL, "submodules": modules(*row("inria-v1").addresses)}, "inria-v1", True, "lacks train.py"),
        # another module beside the stack's own, and in its place
        ("inria-v1", {"calls": (call(), call("diff-gauss", function="f"))}, "inria-v1", True, "diff_gauss besides"),
        ("inria-v1", {"calls": (call("diff-gauss"),)}, "inria-v1", False, "diff_gauss"),
        # the repository itself, at a commit with another call
        ("inria-v1", {**SCORES, "remote": HUB + "graphdeco-inria/gaussian-splatting"}, "inria-v1", False, "scores"),
    ],
    ids=["call", "method", "submodule", "readme", "back-to-the-base", "fork", "few-files", "beside", "module", "newer"],
)  # fmt: skip
def test_what_was_made_from_a_stack(
    keys: str, values: dict[str, Any], key: str, fits: bool, against: str
) -> None:
    taken_for = recognised(checkout(*filter(None, [keys]), **values))
    assert (taken_for.stack.key, taken_for.own, taken_for.call_fits) == (key, False, fits)
    assert any(against in text for text in taken_for.against), taken_for.against
    assert taken_for.words == f"made from {row(key).name}"


def test_half_of_the_files_and_a_call() -> None:
    paths = ("train.py", "arguments", "scene", "gaussian_renderer", "mine.py")
    taken_for = recognised(checkout(paths=paths, calls=(call(forward=("means3D", "mine")),)))
    assert (taken_for.stack.key, taken_for.own) == ("inria-v1", False)
    assert recognise(checkout(paths=paths)) is None, "files alone carry no claim"


@pytest.mark.parametrize(
    "values",
    [
        {"paths": ("setup.py", "src")},
        {"paths": ("train.py", "scene")},
        {"paths": (), "calls": (call(),)},
        {"paths": ("train.py",), "clones": (HUB + "NVlabs/nvdiffrast",)},
        {"paths": ("gaussian_renderer",), "clones": (HUB + "graphdeco-inria/gaussian-splatting",), **V1_CALL},
        {"paths": (), "submodules": modules("graphdeco-inria/diff-gaussian-rasterization"), **SCORES},
    ],
    ids=["nothing", "names", "call", "dependency", "rasterizer-of-another", "submodule"],
)
def test_too_little_is_no_claim(values: dict[str, Any]) -> None:
    assert recognise(Checkout("/home/u/gs", **values)) is None


def test_the_call_tells_two_releases_apart() -> None:
    """Inria's repository is one; the files and the call say which of its releases it is."""
    remote = {"remote": HUB + "graphdeco-inria/gaussian-splatting"}
    fast = call("3dgs-accel", line=90)
    adam = ExtensionCall("train.py", 9, "", MODULE, "SparseGaussianAdam")
    hidden = GuardedImport("train.py", 1, MODULE, ("SparseGaussianAdam",), "everything")
    newer = {"calls": (fast, call("inria-2024-dr_aa")), "extension_calls": (adam,), "guarded": (hidden,)}
    assert recognised(checkout("inria-2024", "inria-v1", **remote, **newer)).stack.key == "inria-2024"
    assert recognised(checkout("inria-v1", **remote, **V1_CALL)).stack.key == "inria-v1"


@pytest.mark.parametrize(("address", "name"), data(__file__)["addresses"])
def test_addresses(address: str, name: str) -> None:
    assert repository_of(address) == name


def test_many_calls_are_told_in_few_words() -> None:
    many = tuple(call(line=line, function=f"f{line}", forward=(f"k{line}",)) for line in range(1000))
    taken_for = recognised(checkout("inria-v1", calls=many))
    assert taken_for.call_fits is False and len(taken_for.against) < 10 and "more" in taken_for.against[-1]


def test_a_checkout_is_weighed_once() -> None:
    """Many checks ask; a checkout with sources, which hold mappings, is known again."""
    source = CheckoutSource("x", Source("/x", ("setup.py",), sets={"A": "1"}))
    assert recognise(checkout("mip", sources=(source,))) is recognise(checkout("mip", sources=(source,)))
