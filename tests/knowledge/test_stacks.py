"""Stacks: recognition of checkouts, identification of installed variants, lookalikes."""

import itertools

import pytest

from splatfix.knowledge.stacks import (
    Traits,
    Variant,
    best_matches,
    explain_mismatch,
    lookalike,
    stacks,
    variant,
    variants,
)


def test_stacks_name_variants_that_exist() -> None:
    known = {row.key for row in variants()} | {"gsplat"}
    for row in stacks():
        assert set(row.needs) <= known, row.key


RASTERIZERS = [row for row in variants() if row.kind == "rasterizer"]


def traits(row: Variant, *facts: str) -> Traits:
    known = {
        "settings": row.settings,
        "exports": row.exports or None,
        "returns": len(row.returns or ()),
        "forward": row.forward,
        "classes": {str(row.rasterizer_class), *row.extra_classes},
    }
    return Traits(**{name: known[name] for name in (facts or known)})  # type: ignore[arg-type]


@pytest.mark.parametrize("row", RASTERIZERS, ids=lambda row: row.key)
def test_each_rasterizer_is_found_by_its_own_facts(row: Variant) -> None:
    found = best_matches(row.module, traits(row))
    assert found[0] == row.key or (found[0], row.key) == ("inria-v1", "sugar")  # one source, two homes
    assert set(found) <= {row.key, "inria-v1", "sugar"}


@pytest.mark.parametrize("row", RASTERIZERS, ids=lambda row: row.key)
def test_any_facts_leave_the_right_one_among_the_candidates(row: Variant) -> None:
    facts = ("settings", "exports", "returns", "forward", "classes")
    for size in range(1, 5):
        for chosen in itertools.combinations(facts, size):
            assert not explain_mismatch(row.key, traits(row, *chosen))


def test_no_facts_leave_all_and_strange_facts_leave_none() -> None:
    module = "diff_gaussian_rasterization"
    assert len(best_matches(module, Traits())) == len(variants(module)) >= 9
    assert best_matches(module, Traits(returns=99)) == ()
    assert best_matches("no_such_module", Traits()) == ()


def test_mismatch_in_words() -> None:
    installed, wanted = variant("inria-v1"), variant("inria-2024-dr_aa")
    assert installed.settings is not None and wanted is not None
    assert explain_mismatch("inria-2024-dr_aa", Traits(settings=installed.settings, returns=2)) == [
        "settings: lacks antialiasing",
        "returns: 2 values, not 3",
    ]
    assert explain_mismatch("inria-v1", Traits(settings=installed.settings, exports=installed.exports)) == []
    swapped = (*installed.settings[1:], installed.settings[0])
    reordered = explain_mismatch("inria-v1", Traits(settings=swapped))
    assert reordered[0].startswith("settings: another order")


def test_lookalikes() -> None:
    row = lookalike("simple_knn")
    assert row.found == "2.0.1" and "classifier" in row.really
    assert lookalike("gsplat") is None
