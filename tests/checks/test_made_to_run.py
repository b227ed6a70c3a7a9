"""Healthy machines that only run: images without compilers, MIG instances, stacks that do without another's rasterizer."""

from __future__ import annotations

import dataclasses

import pytest

from splatfix.checks import Finding, Status, run_checks
from splatfix.context import Goal, make_context
from splatfix.facts import Distribution, Fact, Facts, Gpu, GuardedImport
from splatfix.knowledge import stacks
from tests.machines import facts_of

from .conftest import Changer, TorchWith, extension, sass
from .test_checkout_checks import source, with_checkout
from .test_checks import loud
from .test_package_checks import package, packages

BUILDERS = {"cuda-toolkit-missing", "host-compiler-missing", "build-tools-missing"}


def of(facts: Facts, code: str) -> list[Finding]:
    return [item for item in run_checks(make_context(facts, Goal())) if item.code == code]


def bare(changed: Changer, **more: object) -> Facts:
    """A runtime image: torch, the extensions, and nothing that could build them."""
    return changed(
        toolkits=Fact((), "PATH"),
        compilers=Fact((), "PATH"),
        tools={},
        distributions=Fact((), "site-packages"),
        toolkit_choice=Fact(None, "", "none"),
        **more,
    )


def test_an_image_that_has_its_extensions_lacks_nothing(changed: Changer) -> None:
    made = bare(changed, packages=packages(package("inria-v1", exports=())))
    assert not loud(made)
    assert {
        item.code for item in run_checks(make_context(made, Goal())) if item.status is Status.SKIP
    } >= BUILDERS
    assert set(loud(bare(changed))) >= BUILDERS, "with no extension yet, they are what is missing"


def test_a_compiled_part_that_is_gone_has_to_be_built(changed: Changer) -> None:
    row = stacks.variant("inria-v1")
    assert row is not None
    lost = package("inria-v1", native_missing=(row.extension,))
    assert set(loud(bare(changed, packages=packages(lost)))) >= BUILDERS


def test_a_checkout_beside_it_wants_to_be_built(changed: Changer) -> None:
    made = bare(changed, packages=packages(package("inria-v1", exports=())))
    assert set(loud(with_checkout(made, sources=(source("other"),)))) >= BUILDERS


def test_what_compiles_at_first_use_wants_a_compiler(changed: Changer) -> None:
    facts = bare(changed, packages=packages(package("inria-v1", exports=())))
    gsplat = Fact((Distribution("gsplat", "1.5.3", "/env"),), "")
    environment = dataclasses.replace(facts.environment, distributions=gsplat)
    assert {"cuda-toolkit-missing", "host-compiler-missing"} <= set(
        loud(dataclasses.replace(facts, environment=environment))
    )


@pytest.mark.parametrize(
    ("instances", "status"),
    [
        (("NVIDIA A100-SXM4-80GB MIG 1g.5gb",), Status.WARN),
        ((), None),
        (("NVIDIA A100-SXM4-80GB MIG 1g.5gb", "NVIDIA A100-SXM4-80GB MIG 3g.40gb"), Status.PASS),
    ],
)
def test_memory_of_a_mig_instance_is_not_the_cards(
    changed: Changer, instances: tuple[str, ...], status: Status | None
) -> None:
    card = Gpu(0, "NVIDIA A100-SXM4-80GB", cc="12.0", memory_total=80 << 30, mig=True, mig_devices=instances)
    found = of(with_checkout(changed(gpus=Fact((card,), "NVML"))), "vram-too-small")
    assert [item.status for item in found] == ([status] if status else [])


def test_a_simulated_mig_machine_with_the_classic_stack() -> None:
    facts = with_checkout(facts_of("a100-mig-kubernetes"))
    (said,) = of(facts, "vram-too-small")
    assert said.status is Status.PASS and "40.0 GB" in said.summary


def test_memory_of_a_gpu_that_is_hidden_does_not_count(changed: Changer) -> None:
    cards = (
        Gpu(0, "big", cc="12.0", memory_total=32 << 30),
        Gpu(1, "small", cc="12.0", memory_total=4 << 30),
    )
    for chosen, status in (("1", Status.WARN), ("0", Status.PASS)):
        facts = changed(
            gpus=Fact(cards, "NVML"),
            variables={"CUDA_VISIBLE_DEVICES": chosen, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        )
        assert of(with_checkout(facts), "vram-too-small")[0].status is status


def guarded(module: str, *names: str) -> tuple[GuardedImport, ...]:
    return (GuardedImport("scene/gaussian_model.py", 25, module, names, "everything"),)


def test_another_stacks_rasterizer_is_no_fallback(changed: Changer) -> None:
    """FastGS tries SparseGaussianAdam of a rasterizer that is not its own and that it does not bring."""
    fastgs = stacks.stack("fastgs")
    assert fastgs is not None
    facts = changed(packages=packages(), extensions=Fact((), ""))
    asked = guarded("diff_gaussian_rasterization", "SparseGaussianAdam")
    (said,) = of(with_checkout(facts, paths=fastgs.recognise, guarded=asked), "silent-fallback")
    assert said.status is Status.SKIP and "FastGS does not bring it" in said.summary
    own = with_checkout(facts, paths=fastgs.recognise, guarded=guarded("fused_ssim", "fused_ssim"))
    assert of(own, "silent-fallback")[0].status is Status.WARN
    brought = with_checkout(
        facts, paths=fastgs.recognise, guarded=asked, sources=(source("diff_gaussian_rasterization"),)
    )
    assert of(brought, "silent-fallback")[0].status is Status.WARN
    unknown = with_checkout(facts, paths=("mine.py",), guarded=asked)
    assert of(unknown, "silent-fallback")[0].status is Status.WARN


@pytest.mark.parametrize(
    ("pin", "torch", "status"),
    [
        ("torch==2.9.0", "2.9.1+cu128", Status.WARN),
        ("torch==2.8.0", "2.9.1+cu128", Status.FAIL),
        ("torch==2.9.1", "2.9.1+cu128", Status.PASS),
        ("torch==2.9.1+cu126", "2.9.1+cu128", Status.FAIL),
    ],
)
def test_a_companion_of_another_patch_is_only_a_conflict(
    changed: Changer, torch_with: TorchWith, pin: str, torch: str, status: Status
) -> None:
    tag = pin.partition("+")[2]
    vision = Distribution("torchvision", "0.24.0" + (f"+{tag}" if tag else ""), "/env", pins=(pin,))
    tools = tuple(
        Distribution(name, version, "/env") for name, version in (("setuptools", "80.9.0"), ("wheel", "0.45"))
    )
    facts = changed(
        torch=torch_with(version=torch),
        distributions=Fact((vision, *tools), ""),
        extensions=Fact((extension("a", sass("sm_120")),), ""),
    )
    assert [item.status for item in of(facts, "torch-companions-mismatch")] == [status]
