"""Breakages and lookalikes: known ones are told, unknown ones are None."""

from __future__ import annotations

from splatfix.knowledge.breakages import breakage, breakages, lookalike


def test_impostors() -> None:
    row = lookalike("simple_knn")
    assert row is not None and row.found == "2.0.1" and "classifier" in row.really
    assert lookalike("gsplat") is None


def test_breakages() -> None:
    row = breakage("cub_max_removed")
    assert row is not None and row.since == {"cuda": (13, 0)} and row.until == {}
    row = breakage("missing_cfloat")
    assert row is not None and (row.since, row.until) == ({"cuda": (12, 5)}, {"cuda": (12, 9)})
    assert breakage("nothing") is None
    row = breakage("colmap_options_renamed")
    assert row is not None and row.since == {"colmap": (3, 13)}
    assert len(breakages()) == 11
