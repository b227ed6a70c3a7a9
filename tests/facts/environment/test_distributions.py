"""What the metadata folder of a wheel that splatfix made says about it, damaged or not, and what older records lack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from splatfix.core.codec import from_json, to_json
from splatfix.facts import BuildRecord, Distribution, LiveSystem
from splatfix.facts.environment.packages import read_distributions

MANIFEST = {
    "schema_version": 1,
    "kind": "built",
    "targets": ["sm_120"],
    "edits": ["type-is-cuda"],
    "built_with": {"torch": "2.11.0+cu130 13.0", "toolkit": "12.8.93"},
    "cuda_mismatch": "toolkit 12.8, torch 13.0",
}


def read(site: Path, manifest: str) -> Distribution:
    info = site / "tiny-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "splatfix.json").write_text(manifest)
    (found,) = read_distributions(LiveSystem(), (str(site),))
    return found


def test_how_it_was_built(tmp_path: Path) -> None:
    found = read(tmp_path, json.dumps(MANIFEST))
    assert found.made_by_splatfix == "built"
    assert found.built == BuildRecord(
        ("sm_120",),
        "toolkit 12.8, torch 13.0",
        ("type-is-cuda",),
        (("torch", "2.11.0+cu130 13.0"), ("toolkit", "12.8.93")),
    )
    assert found.built.torch == "2.11.0+cu130 13.0"
    assert from_json(Distribution, json.loads(json.dumps(to_json(found)))) == found


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"built_with": "torch"}', '{"targets": 3}', '{"built_with": [1]}']
)
def test_a_damaged_manifest_still_says_whose_it_is(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, text)
    assert (found.made_by_splatfix, found.built) == ("built", None)


def test_a_drop_in_is_not_built(tmp_path: Path) -> None:
    found = read(tmp_path, '{"kind": "swap"}')
    assert (found.made_by_splatfix, found.built) == ("swap", None)


def test_facts_saved_before_there_was_such_a_record_still_load() -> None:
    document = to_json(Distribution("tiny", "1.0", "/site", made_by_splatfix="built"))
    del document["built"]
    assert from_json(Distribution, document) == Distribution("tiny", "1.0", "/site", made_by_splatfix="built")
