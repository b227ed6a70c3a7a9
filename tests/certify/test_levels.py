"""Levels of proof: what verifies each, and what fails it; and which GPU a certificate is about."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.certify import Certificate, KernelCheck, Outcome, SceneRun, Suite
from splatfix.certify.baseline import compare
from splatfix.certify.certificate import extensions_built, prove, write_certificate
from splatfix.certify.environment import environment_of
from splatfix.certify.levels import open_of
from splatfix.certify.model import Criterion
from splatfix.certify.subject import SmokeSubject
from splatfix.core.proof import Rung, RungName
from splatfix.knowledge import Arch
from splatfix.model import CudaDevice, Fact, Facts, Finding, Status
from tests.certify.conftest import record_of, subject
from tests.certify.test_baseline import RUN, stored
from tests.certify.test_environment import facts
from tests.machines import facts_of

KNOWN = facts()
SM_120 = (Arch.parse("sm_120"),)
GOOD = KernelCheck("ssim", "splatfix.kernels.ssim", Outcome.MET, 1e-7, 1e-5, 1e-6, 1e-4)


def certificate(asked: SmokeSubject, facts: Facts, runs: tuple[SceneRun, ...] = (RUN,)) -> Certificate:
    """Of runs that were not made."""
    return write_certificate(replace(asked, kernels=(GOOD,)), facts, runs)


def levels(
    findings: tuple[Finding, ...] = (),
    kernels: tuple[KernelCheck, ...] = (GOOD,),
    runs: tuple[SceneRun, ...] = (RUN,),
    baseline: Certificate | None = None,
    renderer: str = "inria",
) -> dict[RungName, Rung]:
    asked = subject(Suite("quick", ("figurine",), 60.0), Path("out"), renderer=renderer, device="cuda")
    asked.kernels = kernels
    comparison = compare(runs, baseline) if baseline else None
    return {rung.name: rung for rung in prove(asked, runs, findings, comparison, open_of(runs))}


@pytest.mark.parametrize("code", ["torch-missing", "driver-too-old", "torch-arch-unsupported"])
def test_failed_version_checks_are_not_resolved(code: str) -> None:
    rung = levels((Finding(Status.FAIL, "no good", code=code),))[RungName.RESOLVED]
    assert (rung.reached, rung.shown_by) == (False, "no good")


def test_extension_for_another_gpu_is_not_built() -> None:
    for status, reached in ((Status.FAIL, False), (Status.PASS, True), (Status.WARN, None)):
        found = levels((Finding(status, "an extension", code="no-kernel-image"),))[RungName.BUILT]
        assert (found.reached, found.shown_by) == (reached, "an extension")
        ours = levels((Finding(status, "an extension", code="no-kernel-image"),), renderer="torch")
        assert ours[RungName.BUILT].reached is (False if reached is False else None), "it did not train"
    for renderer in ("torch", "gsplat"):
        assert levels(renderer=renderer)[RungName.BUILT].reached is None


def test_of_a_stack_only_its_own_extensions_are_judged() -> None:
    known = {"extensions": ("simple_knn",), "kernels": (), "renderer": "", "rehearsed": False}
    asked = SimpleNamespace(device="cuda", **known)
    told = {"simple-knn on sm_86": Status.PASS, "gsplat on sm_86": Status.FAIL}
    findings = [Finding(status, name, code="no-kernel-image", subject=name) for name, status in told.items()]
    built = prove(asked, (RUN,), findings, None, ())[1]  # type: ignore[arg-type]
    assert (built.reached, built.shown_by) == (True, "simple-knn on sm_86")


def test_one_wrong_kernel_fails_computes() -> None:
    wrong = replace(GOOD, outcome=Outcome.FAILED)
    unmeasured = replace(GOOD, outcome=Outcome.NOT_MEASURED)
    assert levels(kernels=(GOOD, wrong))[RungName.COMPUTES].reached is False
    assert levels(kernels=(unmeasured,))[RungName.COMPUTES].reached is False
    assert levels(kernels=(GOOD, unmeasured))[RungName.COMPUTES].reached is True


def test_what_was_not_run_is_not_claimed() -> None:
    assert levels()[RungName.REPRODUCES].reached is None
    assert levels(runs=())[RungName.TRAINS].reached is None


def test_unreadable_scene_is_not_compared() -> None:
    unread = SceneRun("attic", (), 1.0, unreadable="cameras.bin ends too early.")
    alone = levels(runs=(unread,), baseline=stored())
    assert alone[RungName.LOADS].reached is True and alone[RungName.COMPUTES].reached is True
    for name in (RungName.TRAINS, RungName.REPRODUCES):
        assert alone[name].reached is None and "attic" in alone[name].shown_by
    beside = levels(runs=(RUN, unread), baseline=stored())
    assert beside[RungName.TRAINS].reached is None and "figurine" in beside[RungName.TRAINS].shown_by
    assert beside[RungName.REPRODUCES].reached is None
    assert (
        levels(runs=(RUN, unread), baseline=stored(heldout__psnr=1.1))[RungName.REPRODUCES].reached is False
    )


def test_summary_claims_no_more_than_was_verified() -> None:
    asked = subject(Suite("data", ("figurine",), 60.0), Path("out"))
    unread = SceneRun("attic", (), 1.0, unreadable="cameras.bin ends too early.")
    passed, undetermined = certificate(asked, MIXED), certificate(asked, MIXED, (RUN, unread))
    refused = certificate(replace(asked, baseline=stored(heldout__psnr=2.0)), MIXED)
    for made, said in (
        (
            passed,
            "Training 3D Gaussians on the CPU: passed. Levels reached: resolved, loads, computes, trains.",
        ),
        (
            undetermined,
            "undetermined. Levels reached: resolved, loads, computes. Left open: attic cannot be read",
        ),
        (refused, "not certified. Levels reached: resolved, loads, computes, trains."),
    ):
        assert said in made.summary and "Not verified: CUDA and GPUs. Not used: NVIDIA" in made.summary
        assert "Trained with: splatfix.kernels.rasterizer 0.1.0 torch-cpu, " in made.summary
    assert refused.reasons[0].startswith("level: reproduces: figurine: psnr ")


def test_extensions_are_judged_for_a_gpu_that_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one extension lacks the code, it is failed; the level, or where something trained a line apart from it."""

    def told(status: Status) -> Criterion:
        finding = Finding(status, "splat_probe", code="no-kernel-image")
        monkeypatch.setattr("splatfix.certify.certificate.run_checks", lambda context: (finding,))
        return extensions_built(KNOWN, SM_120)

    good, bad, none = told(Status.PASS), told(Status.FAIL), told(Status.SKIP)
    assert good.outcome is Outcome.MET and "splat_probe; for sm_120, not run" in good.measured
    assert bad.outcome is Outcome.FAILED
    assert told(Status.WARN).outcome is Outcome.FAILED, "what is compiled at its first call is not built"
    assert none.outcome is Outcome.NOT_MEASURED and "no CUDA extension" in none.measured
    monkeypatch.setattr("splatfix.certify.certificate.extensions_built", lambda *_: bad)
    asked = subject(Suite("quick", ("figurine",), 60.0), Path("out"), targets=SM_120)
    for runs, reached in (((), False), ((RUN,), None)):
        made = certificate(asked, KNOWN, runs)
        assert made.proof[1].reached is reached
        assert made.reasons == (
            "diagnosis: extensions-built: splat_probe; for sm_120, not run: no GPU was used. "
            "They cannot run there. No GPU was used here: what trained is plain PyTorch.",
        )


MIXED = facts_of("rtx-3090-and-5090")  # its extensions carry code for one of the two


def changed(**values: Any) -> Facts:
    return replace(MIXED, machine=replace(MIXED.machine, **values))


def rungs(device: str, tmp_path: Any, facts: Facts = MIXED) -> dict[RungName, bool | None]:
    asked = subject(Suite("quick", ("figurine",), 60.0), tmp_path, device=device, renderer="inria")
    proof = certificate(asked, facts).proof
    return {rung.name: rung.reached for rung in proof}


def test_a_second_gpu_refuses_no_certificate(tmp_path: Any) -> None:
    built = {device: rungs(device, tmp_path)[RungName.BUILT] for device in ("cuda:0", "cuda:1")}
    assert set(built.values()) == {True, False}
    assert rungs("cpu", tmp_path)[RungName.BUILT] is None


def test_the_gpu_that_trained_is_recorded() -> None:
    found = environment_of(MIXED, (), "cuda:1")
    assert found["GPU"] == "NVIDIA GeForce RTX 3090 (cuda:1)"
    assert found["other GPUs"] == "NVIDIA GeForce RTX 5090"
    assert found["driver"] == "580.95.05"


@pytest.mark.parametrize(("cuda", "name"), [(None, "unknown"), (("5090", "3090"), "NVIDIA GeForce RTX 5090")])
def test_only_a_certain_gpu_is_named(cuda: tuple[str, ...] | None, name: str) -> None:
    devices = tuple(CudaDevice(f"NVIDIA GeForce RTX {name}") for name in cuda) if cuda else None
    without_bus = tuple(replace(gpu, bus_id=None) for gpu in MIXED.machine.gpus.value or ())
    facts = changed(cuda=Fact(devices), gpus=Fact(without_bus))
    assert environment_of(facts, (), "cuda")["GPU"] == f"{name} (cuda)"


def test_the_name_is_torchs_own_and_none_on_the_cpu() -> None:
    told = SceneRun("figurine", (), 7.0, record_of({"machine": {"gpu": "NVIDIA Test"}}))
    assert environment_of(MIXED, (told,), "cuda")["GPU"] == "NVIDIA Test (cuda)"
    assert environment_of(MIXED, (RUN,), "cpu")["GPU"] == "none used"
