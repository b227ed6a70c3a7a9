"""COLMAP: there or not, with the option names that convert.py uses or not, with CUDA or not."""

from __future__ import annotations

import pytest

from splatfix.checks import Finding, Status, run_checks
from splatfix.context import Goal, make_context
from splatfix.facts import Colmap, Fact, Facts

from .conftest import Changer
from .test_checkout_checks import INRIA, with_checkout

OLD = ("SiftExtraction.use_gpu", "SiftMatching.use_gpu")
NEW = ("FeatureExtraction.use_gpu", "FeatureMatching.use_gpu")


def of(facts: Facts, code: str) -> list[Finding]:
    return [item for item in run_checks(make_context(facts, Goal())) if item.code == code]


def stack(changed: Changer, colmap: Fact[Colmap] | None, options: tuple[str, ...] = OLD) -> Facts:
    assert INRIA is not None
    facts = changed(colmap=colmap) if colmap else changed()
    return with_checkout(facts, paths=(*INRIA.recognise, "convert.py"), colmap_options=options)


def test_no_colmap_is_only_named(changed: Changer) -> None:
    absent: Fact[Colmap] = Fact(None, "PATH", "no colmap on PATH", absent=True)
    assert of(stack(changed, absent), "colmap-missing")[0].status is Status.SKIP
    assert (
        of(stack(changed, Fact(Colmap("3.9", True), "colmap help")), "colmap-missing")[0].status
        is Status.PASS
    )
    assert not of(stack(changed, None), "colmap-missing"), "facts of an older splatfix"
    assert not of(changed(colmap=absent), "colmap-missing"), "no checkout that calls it"


@pytest.mark.parametrize(
    ("version", "options", "warns"),
    [
        ("3.7", OLD, False),
        ("3.12.6", OLD, False),
        ("3.13.0", OLD, True),
        ("3.14.0", OLD, True),
        ("3.7", NEW, True),
        ("3.13.0", NEW, False),
        ("3.13.0", OLD + NEW, False),
        ("3.13.0", (), False),
    ],
)
def test_options_that_changed_their_names(
    changed: Changer, version: str, options: tuple[str, ...], warns: bool
) -> None:
    found = of(stack(changed, Fact(Colmap(version, True), "colmap help"), options), "colmap-option-mismatch")
    assert bool(found) is warns


@pytest.mark.parametrize(("cuda", "said"), [(False, True), (True, False), (None, False)])
def test_colmap_without_cuda(changed: Changer, cuda: bool | None, said: bool) -> None:
    found = of(stack(changed, Fact(Colmap("3.8", cuda), "colmap help")), "colmap-no-gpu")
    assert [item.status for item in found] == ([Status.SKIP] if said else [])
