"""Variants that share a module name: each is found by its own facts, and a mismatch is told in words."""

from __future__ import annotations

import itertools

import pytest

from splatfix.knowledge.variants import Variant, explain_mismatch, identify, variant, variants

RASTERIZERS = [row for row in variants() if row.kind == "rasterizer"]


def keys(row: Variant, *facts: str) -> list[str]:
    known = {
        "settings": row.settings,
        "exports": row.exports or None,
        "returns": len(row.returns or ()),
        "forward": row.forward,
        "classes": {str(row.rasterizer_class), *row.extra_classes},
    }
    chosen = {name: known[name] for name in (facts or known)}
    return [match.variant.key for match in identify(row.module, **chosen)]  # type: ignore[arg-type]


@pytest.mark.parametrize("row", RASTERIZERS, ids=lambda row: row.key)
def test_each_rasterizer_is_found_by_its_own_facts(row: Variant) -> None:
    found = keys(row)
    assert found[0] == row.key or (found[0], row.key) == ("inria-v1", "sugar")  # one source, two homes
    assert set(found) <= {row.key, "inria-v1", "sugar"}


@pytest.mark.parametrize("row", RASTERIZERS, ids=lambda row: row.key)
def test_any_facts_leave_the_right_one_among_the_candidates(row: Variant) -> None:
    facts = ("settings", "exports", "returns", "forward", "classes")
    for size in range(1, 5):
        for chosen in itertools.combinations(facts, size):
            assert row.key in keys(row, *chosen)


def test_no_facts_leave_all_and_strange_facts_leave_none() -> None:
    assert len(identify("diff_gaussian_rasterization")) == len(variants("diff_gaussian_rasterization")) >= 9
    assert identify("diff_gaussian_rasterization", returns=99) == ()
    assert identify("no_such_module") == ()


def test_mismatch_in_words() -> None:
    installed, wanted = variant("inria-v1"), variant("inria-2024-dr_aa")
    assert installed is not None and installed.settings is not None and wanted is not None
    assert explain_mismatch("inria-2024-dr_aa", settings=installed.settings, returns=2) == (
        "settings: lacks antialiasing",
        "returns: 2 values, not 3",
    )
    assert explain_mismatch("inria-v1", settings=installed.settings, exports=installed.exports) == ()
    swapped = (*installed.settings[1:], installed.settings[0])
    reordered = explain_mismatch("inria-v1", settings=swapped)
    assert reordered is not None and reordered[0].startswith("settings: another order")
    assert explain_mismatch("nothing", returns=1) is None


def test_functions_keep_their_parameters() -> None:
    classic, taming, ssim = variant("inria-v1"), variant("taming"), variant("fused-ssim")
    assert classic is not None and taming is not None and ssim is not None
    assert classic.functions["rasterize_gaussians"] == (
        "means3D",
        "means2D",
        "sh",
        "colors_precomp",
        "opacities",
        "scales",
        "rotations",
        "cov3Ds_precomp",
        "raster_settings",
    )
    assert len(taming.functions["rasterize_gaussians"]) == len(classic.functions["rasterize_gaussians"]) + 1
    assert ssim.functions["fused_ssim"][:2] == ("img1", "img2")
    assert all(row.functions for row in RASTERIZERS if row.verified), "read sources name their functions"
