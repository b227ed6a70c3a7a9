"""What a build's environment says beside the person's own."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from splatfix.context.compilers import choose_compilers
from splatfix.plan.build_environment import OWN_TOOLKIT, build_environment
from tests.plan.machines import CUDA_13, TORCH, machine


def test_every_folder_of_headers_is_searched_and_the_persons_own_last(tmp_path: Path) -> None:
    """A toolkit of ours that lacks cublas: its own CCCL and torch's headers, neither in place of the other."""
    lent = tmp_path / "nvidia" / "cu13" / "include"
    lent.mkdir(parents=True)
    (lent / "cublas_v2.h").write_text("")
    torch = dataclasses.replace(TORCH, folder=str(tmp_path / "torch"))
    toolkit = dataclasses.replace(CUDA_13, found_via=OWN_TOOLKIT, missing=("include/cublas_v2.h",))
    facts = machine(torch=torch, toolkits=(toolkit,), variables={"CPATH": "/mine"})
    made = build_environment(
        facts, toolkit, "why", choose_compilers(facts, torch, toolkit, (13, 0, 88)).required(), {}, "why"
    )
    assert made.variables["CPATH"] == f"{toolkit.root}/include/cccl:{lent}:/mine"
    said = [reason.text for reason in made.reasons if reason.text.startswith("CPATH=")]
    assert len(said) == 2 and "include/cublas_v2.h" in said[1]
