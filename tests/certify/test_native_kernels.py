"""Installed extensions, as stand-ins with the public signatures: every variant is called rightly, and no fault hits another."""

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from splatfix.certify import KernelCheck, Outcome, kernel_probe, kernels, verify
from splatfix.certify.levels import computes
from splatfix.certify.staging import stage
from splatfix.core.codec import from_json
from splatfix.model import Facts
from tests import standins
from tests.tables import data

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(standins.missing()), reason=standins.missing())]


TABLES: dict[str, Any] = data(__file__)
KERNELS = {"fused-ssim": "ssim", "simple-knn": "knn"}


def probed(site: Path, variant: str, sabotage: str = "") -> dict[str, Any]:
    """What the probe says of one stand-in, in this process."""
    standins.put(site, variant, sabotage)
    name = {"fused-ssim": "fused_ssim", "simple-knn": "simple_knn._C"}.get(variant)
    kernel = KERNELS.get(variant, "rasterizer")
    name = name or standins.module_of(variant)
    with standins.imported(site, variant):
        assert kernel_probe.described(name)["kind"] == "native"
        return kernel_probe.run_check(kernel, name, "native", "cpu")


@pytest.mark.parametrize("variant", TABLES["right"])
def test_right_kernels_reach_computes(tmp_path: Path, variant: str) -> None:
    row = probed(tmp_path, variant)
    assert (row["outcome"], row["detail"]) == ("met", "")
    assert row["value_error"] is not None


@pytest.mark.parametrize(("variant", "why"), data(__file__)["without_a_reference_nothing_is_judged"])
def test_without_a_reference_nothing_is_judged(tmp_path: Path, variant: str, why: str) -> None:
    """And the certificate says so, in words."""
    row = probed(tmp_path, variant)
    assert row["outcome"] == "not-measured" and "value_error" not in row
    ran = variant != "stopthepop"
    assert why in row["detail"] and row["detail"].startswith("it ran, ") is ran
    module = standins.module_of(variant)
    found = from_json(KernelCheck, {"name": "rasterizer", "implementation": module, "kind": "native", **row})
    ours = KernelCheck("ssim", "splatfix.kernels.ssim", Outcome.MET, 1e-7, 1e-5, kind="ours")
    rung = computes((ours, found))
    assert rung.reached and f"not measured: {module} ({row['detail']})" in rung.shown_by


@pytest.mark.parametrize(
    ("sabotage", "variant"), [(kind, one) for kind, names in TABLES["wrong"].items() for one in names]
)
def test_what_the_kernel_does_wrong_is_found(tmp_path: Path, variant: str, sabotage: str) -> None:
    assert probed(tmp_path, variant, sabotage)["outcome"] == "failed"


@pytest.mark.parametrize("variant", ["inria-v1", "gof"])
def test_refused_call_is_no_failure(tmp_path: Path, variant: str) -> None:
    row = probed(tmp_path, variant, "refuses")
    assert row["outcome"] == "not-measured" and "must have dimensions" in row["detail"]


@pytest.mark.parametrize("sabotage", ["illegal-address", "segfault", "hang"])
def test_a_broken_extension_blames_no_other(
    known: Facts, monkeypatch: pytest.MonkeyPatch, sabotage: str
) -> None:
    """Each runs in a process of its own; a crash and a hang are results of the one that crashed or hung."""
    monkeypatch.setattr(kernels, "KERNEL_TIMEOUT", 40.0 if sabotage == "hang" else 120.0)

    def with_standins(folder: Path) -> Path:
        path = stage(folder)
        standins.put(path, "fused-ssim", sabotage)
        standins.put(path, "simple-knn")
        return path

    found = {item.implementation: item for item in verify(sys.executable, "cpu", stage_files=with_standins)}
    assert {name for name, item in found.items() if item.outcome is Outcome.FAILED} == {"fused_ssim"}
    assert found["fused_ssim"].kind == "native"
    words = {"illegal-address": "illegal memory access", "segfault": "SIGSEGV", "hang": "no answer within"}
    assert words[sabotage] in found["fused_ssim"].detail
    assert found["simple_knn._C"].outcome is Outcome.MET
