"""The notes beside the options: what is not here, what else is served, and what --keep really keeps."""

from __future__ import annotations

import dataclasses

from splatfix.context import Goal
from splatfix.facts import Fact, Facts, Gpu
from splatfix.plan import OptionKind, SourceSummary
from splatfix.plan.steps import Keep, Rebuild
from tests.archs import goal
from tests.plan.machines import CUDA_12, find_options, machine, step_of
from tests.plan.test_options import (
    RTX_4090,
    RTX_5080,
    TORCH_128,
    code,
    healthy,
    kinds,
    plan,
    why_not,
    with_driver,
    with_extension,
)

OLD = Gpu(1, "NVIDIA GeForce GTX 1080 Ti", cc="6.1")
STILL_SERVED = "to keep this machine's own"


def notes(facts: Facts, *targets: str) -> str:
    return "\n".join(find_options(goal(*targets), facts).notes)


def test_a_gpu_that_runs_the_code_for_a_target_loses_nothing() -> None:
    """sm_86 code runs on an RTX 4090; sm_120 code does not."""
    facts = with_driver(machine(torch=TORCH_128, gpus=(RTX_4090,), toolkits=(CUDA_12,)), "580.95.05", "13.0")
    facts = with_extension(facts, "simple_knn", code("sm_89"))
    assert STILL_SERVED not in notes(facts, "sm_86")
    assert f"{STILL_SERVED} sm_89" in notes(facts, "sm_120")


def test_gpus_nothing_serves_at_once_are_named_singly() -> None:
    facts = with_driver(
        machine(torch=TORCH_128, gpus=(RTX_5080, OLD), toolkits=(CUDA_12,)), "580.95.05", "13.0"
    )
    assert "no native option covers sm_120, sm_61 together" in notes(facts)
    assert "at once" not in notes(facts, "sm_120") and "at once" not in notes(healthy())


def test_what_is_kept_is_known_under_either_spelling() -> None:
    facts = with_extension(
        with_extension(healthy(), "simple_knn", code("sm_120")), "fused_ssim", code("sm_90")
    )
    options = find_options(Goal(), facts, sources=SourceSummary(named=("./gs",)), keep=("Simple-KNN",))
    step = step_of(plan(options, OptionKind.REBUILD), Rebuild)
    assert step.subjects == ("fused_ssim",)
    assert "simple_knn must not change" in why_not(options, "another build")
    assert options.notes == ("./gs may hold simple_knn too: name the folders of the others in its place",)


def test_drop_ins_are_kept_for_what_they_are() -> None:
    facts = with_extension(healthy(), "fused_ssim", code("sm_120"))
    (package,) = facts.environment.packages.value or ()
    (distribution,) = (d for d in facts.environment.distributions.value or () if d.name == "fused_ssim")
    others = tuple(d for d in facts.environment.distributions.value or () if d.name != "fused_ssim")
    replaced = dataclasses.replace(
        facts.environment,
        extensions=Fact((), "test"),
        packages=Fact((dataclasses.replace(package, native=()),), "test"),
        distributions=Fact((*others, dataclasses.replace(distribution, made_by_splatfix="drop-in")), "test"),
    )
    options = find_options(Goal(), dataclasses.replace(facts, environment=replaced))
    assert kinds(options)[0] is OptionKind.KEEP
    option = plan(options, OptionKind.KEEP)
    assert option.steps[0] == Keep(subjects=("fused_ssim",))
    assert [reason.text for reason in option.reasons] == [
        "splatfix's drop-ins run wherever torch does: fused_ssim"
    ]


def test_one_target_elsewhere_and_several() -> None:
    assert "sm_90 is not in this machine: it can" in notes(healthy(), "sm_90")
    assert "sm_90, sm_75 are not in this machine: they can" in notes(healthy(), "sm_90", "sm_75")
