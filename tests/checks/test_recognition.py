"""What a checkout is taken for: by addresses, files and its own call, from facts of our own making."""

from typing import Any

import pytest

from splatfix.checks.checkout.recognition import Recognition, recognise, repository_of
from splatfix.knowledge.stacks import Stack, stacks, variant
from splatfix.model import Checkout, CheckoutSource, ExtensionCall, GuardedImport, Source, Submodule
from tests.tables import data

from .conftest import call

HUB = "https://github.com/"


def checkout(*keys: str, **values: Any) -> Checkout:
    """With the files of these stacks."""
    paths = tuple(path for known in stacks() if known.key in keys for path in known.recognise)
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


V1_CALL, MODULE = {"calls": (call(),)}, "diff_gaussian_rasterization"
MADE_FROM, TOO_LITTLE = data(__file__)["made_from"], data(__file__)["too_little"]


def of_row(row: dict[str, Any]) -> Checkout:
    values = {name: row[name] for name in ("paths", "remote", "clones") if name in row}
    values["calls"] = tuple(call(**one) for one in row.get("calls", ()))
    values["extension_calls"] = tuple(ExtensionCall(*one) for one in row.get("methods", ()))
    values["submodules"] = tuple(
        Submodule(f"submodules/{address.rpartition('/')[2]}", f"{HUB}{address}.git", True)
        for address in row.get("submodules", ())
    )
    return checkout(*row.get("files", ()), **values)


@pytest.mark.parametrize("row", MADE_FROM.values(), ids=MADE_FROM)
def test_what_was_made_from_a_stack(row: dict[str, Any]) -> None:
    taken_for = recognised(of_row(row))
    assert (taken_for.stack.key, taken_for.own, taken_for.call_fits) == (row["from"], False, row["fits"])
    assert any(row["against"] in text for text in taken_for.against), taken_for.against
    assert taken_for.words == f"made from {taken_for.stack.name}"


@pytest.mark.parametrize("row", TOO_LITTLE.values(), ids=TOO_LITTLE)
def test_too_little_is_no_claim(row: dict[str, Any]) -> None:
    assert recognise(of_row(row)) is None


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
