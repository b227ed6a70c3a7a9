"""The environment: wheels for its Python, and images made to run rather than to build."""

from __future__ import annotations

import dataclasses

import pytest

from splatfix.checks import Status, run_checks
from splatfix.context import Goal, make_context
from splatfix.facts import Distribution, Fact, Facts, Gpu, GuardedImport, Installer, Pin
from splatfix.knowledge import stacks, torch_releases
from splatfix.knowledge.archs import Arch
from tests.machines import facts_of

from .conftest import Changer, TorchWith, extension, loud, of, sass
from .test_checkout import source, with_checkout
from .test_packages import package, packages


def without_torch(changed: Changer, rtx_5080: Facts, python: str = "3.11.9", **values: object) -> Facts:
    own = rtx_5080.environment.interpreter.value
    assert own is not None
    inner = {key: values.pop(key) for key in ("implementation", "platform_tag") if key in values}
    interpreter = dataclasses.replace(own, version=python, **inner)  # type: ignore[arg-type]
    return changed(
        interpreter=Fact(interpreter, "probe"),
        torch_installed=Fact(False, "sys.path"),
        torch=Fact(None, "", "not installed"),
        extensions=Fact((), ""),
        toolkit_choice=Fact(None),
        **values,
    )


@pytest.mark.parametrize(
    ("python", "values", "status"),
    [
        ("3.11.9", {}, Status.PASS),
        ("3.6.9", {}, Status.FAIL),
        ("3.19.0", {}, Status.UNKNOWN),  # newer than the tables
        ("3.11.9", {"platform_tag": "win32"}, Status.FAIL),
        ("3.10.14", {"implementation": "PyPy"}, Status.FAIL),
    ],
)
def test_a_python_for_torch(
    changed: Changer, rtx_5080: Facts, python: str, values: dict[str, object], status: Status
) -> None:
    (finding,) = of(without_torch(changed, rtx_5080, python, **values), "python-version-unsupported")
    assert finding.status is status


def test_the_newest_torch_for_a_python_is_offered(changed: Changer, rtx_5080: Facts) -> None:
    facts = without_torch(changed, rtx_5080, "3.11.7", driver=Fact(None, "", "not asked"))
    (finding,) = of(facts, "python-version-unsupported")
    offered = torch_releases.builds_for_arch(Arch(12, 0), python=(3, 11))[0].build.release
    assert finding.summary == f"torch up to {offered} has wheels for Python 3.11.7."


def test_a_release_with_unknown_pythons_is_kept(
    changed: Changer, rtx_5080: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    *older, last = torch_releases.releases()
    rows = (*older, dataclasses.replace(last, python_max=None))
    monkeypatch.setattr(torch_releases, "releases", lambda: rows)
    (finding,) = of(without_torch(changed, rtx_5080), "python-version-unsupported")
    assert finding.summary == (
        f"torch up to {older[-1].release} has wheels for Python 3.11.9; of {last.release} that is not known."
    )


def test_where_torch_is_installed_its_python_is_no_question(rtx_5080: Facts) -> None:
    assert not of(rtx_5080, "python-version-unsupported")


@pytest.mark.parametrize(
    ("python", "pin", "glibc", "words"),
    [
        ("3.11.9", "1.12.1", "2.35", "not for 3.11"),
        ("3.9.2", "1.12.1", "2.35", ""),
        ("3.11.9", "2.7.1", "2.27", "glibc 2.28"),
        ("3.11.9", "2.7.1", "2.28", ""),
        ("3.11.9", "99.0", "2.28", ""),
    ],
)
def test_what_a_checkout_pins(
    changed: Changer, rtx_5080: Facts, python: str, pin: str, glibc: str, words: str
) -> None:
    facts = without_torch(changed, rtx_5080, python, glibc=glibc, libc=Fact(f"glibc {glibc}", "getconf"))
    found = of(
        with_checkout(facts, pins=(Pin("environment.yml", "pytorch", f"=={pin}"),)), "no-matching-wheel"
    )
    assert bool(found) is bool(words)
    if words:
        assert words in found[0].summary and found[0].status is Status.WARN


def test_musl(changed: Changer, rtx_5080: Facts) -> None:
    facts = without_torch(changed, rtx_5080, libc=Fact("musl 1.2.5", "ldd"))
    assert of(facts, "no-matching-wheel")[0].status is Status.FAIL


BUILDERS = {"cuda-toolkit-missing", "host-compiler-missing", "build-tools-missing"}


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


@pytest.mark.parametrize(
    ("python", "installer", "status", "says"),
    [
        ({}, Installer(), Status.PASS, "own pip"),
        ({"kind": "uv"}, Installer("uv", "uv", "0.13.9"), Status.PASS, "uv 0.13.9"),
        ({}, Installer("pip", "/own/bin/python", "26.3"), Status.PASS, "pip 26.3"),
        ({"lock_file": "/project/uv.lock"}, Installer(), Status.PASS, "`uv sync`"),
        ({"lock_file": "C:\\project\\poetry.lock"}, Installer(), Status.PASS, "`poetry sync`"),
        ({"externally_managed": True}, Installer(), Status.WARN, "PEP 668"),
        ({}, None, Status.WARN, "no pip"),
    ],
)
def test_what_installs_there(
    changed: Changer,
    rtx_5080: Facts,
    python: dict[str, object],
    installer: Installer | None,
    status: Status,
    says: str,
) -> None:
    own = rtx_5080.environment.interpreter.value
    assert own is not None
    without_pip = tuple(
        item for item in rtx_5080.environment.distributions.value or () if item.name.lower() != "pip"
    )
    facts = changed(
        interpreter=Fact(dataclasses.replace(own, **python), "probe"),  # type: ignore[arg-type]
        distributions=Fact(without_pip, "probe"),
        installer=Fact(installer, "test", "" if installer else "nothing found"),
    )
    (finding,) = of(facts, "no-installer")
    assert finding.status is status and says in finding.summary and finding.evidence
    assert bool(finding.remedy) is (status is Status.WARN)
