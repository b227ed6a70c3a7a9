"""Stacks: recognition of checkouts, identification of installed variants, breakages and lookalikes."""

from __future__ import annotations

import pytest

from splatfix.knowledge.stacks import (
    breakage,
    pure_torch_substitute,
    recognise_checkout,
    stack,
    stacks,
    variants,
)


def test_stacks_name_variants_that_exist() -> None:
    known = {row.key for row in variants()} | {"gsplat"}
    for row in stacks():
        assert set(row.needs) <= known, row.key
    for item in variants():
        for trap in item.traps:
            assert breakage(trap) is not None or trap == "ignores_torch_cuda_arch_list", trap


@pytest.mark.parametrize("row", [row for row in stacks() if row.recognise], ids=lambda row: row.key)
def test_a_checkout_with_its_files_is_recognised_first(row: object) -> None:
    from splatfix.knowledge.stacks import Stack

    assert isinstance(row, Stack)
    inria = stack("inria-v1")
    assert inria is not None
    paths = [f"{path}/x.py" if "." not in path.split("/")[-1] else path for path in row.recognise]
    assert recognise_checkout(paths)[0] == row
    # Most forks keep Inria's files.
    assert recognise_checkout([*paths, *inria.recognise])[0] == row


def test_an_unknown_checkout_is_none_of_ours() -> None:
    assert recognise_checkout(["setup.py", "src/main.cpp"]) == ()
    assert recognise_checkout([]) == ()
    assert recognise_checkout(["train.py", "scene/__init__.py"]) == ()


def test_substitutes() -> None:
    assert pure_torch_substitute("simple_knn") == "exact"
    assert pure_torch_substitute("diff_surfel_rasterization") is None


def test_two_stacks_that_spell_one_folder_differently() -> None:
    common = ["train.py", "arguments/__init__.py", "scene/__init__.py", "gaussian_renderer/__init__.py"]
    found = recognise_checkout([*common, "submodules/tetra_triangulation/setup.py"])
    assert found[0].key == "rade", (
        "RaDe-GS writes the folder with an underscore, Gaussian Opacity Fields with a hyphen"
    )
    hyphen = recognise_checkout([*common, "extract_mesh.py", "submodules/tetra-triangulation/setup.py"])
    assert hyphen[0].key == "gof"
