"""What torch and toolkits know by number, what torch builds instead, and the torch that is advised: for all GPUs and Pythons."""

import pytest

from splatfix.core.step import commands
from splatfix.core.versions import major_minor
from splatfix.knowledge import torch_releases
from splatfix.knowledge.archs import Arch, cubin_runs_on, known_archs, toolkit_supports
from splatfix.knowledge.cpp_extension import ArchList, behaviour, visible_gpu_arch_list
from splatfix.model import Fact, Facts, Gpu, Pin, Status

from .conftest import Changer, TorchWith, cuda, of, sass, with_checkout, with_python


@pytest.mark.parametrize(
    "version", ["1.13.1", "2.0.1", "2.1.2", "2.4.1", "2.6.0", "2.7.1", "2.9.1", "2.12.0", "2.15.0"]
)
def test_whatever_torch_would_build_is_said(changed: Changer, torch_with: TorchWith, version: str) -> None:
    """Over all releases and GPUs: never FAIL where the builder itself would compile code that runs, never quiet where not."""
    rules = behaviour(version)
    assert rules is not None
    own = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
    if version > "2.7":
        own += ("sm_100", "sm_120")
    for cc in ("6.1", "7.5", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "12.0", "12.1", "13.0"):
        arch = Arch.parse(cc)
        facts = changed(
            gpus=Fact((Gpu(0, "x", cc=cc),), "NVML"),
            variables={},
            torch=torch_with(version=version, knows_archs=rules.supported_arches, code=(sass(*own),)),
        )
        built = visible_gpu_arch_list([arch], own, version)
        runs = isinstance(built, ArchList) and any(cubin_runs_on(one, arch) for one in built.cubins)
        findings = of(facts, "arch-unknown-to-torch")
        if cc in rules.supported_arches:
            assert not findings, cc
        elif runs:
            assert [item.status for item in findings] == [Status.SKIP], cc
        else:
            # clamped to PTX: arch-clamped says it where torch itself runs there
            expected = {Status.FAIL, Status.WARN} | ({Status.SKIP} if isinstance(built, ArchList) else set())
            assert findings[0].status in expected, cc


def mixed(changed: Changer, torch_with: TorchWith, *cards: Gpu, **torch: object) -> Facts:
    return changed(gpus=Fact(cards, "NVML"), torch=torch_with(**torch), extensions=Fact((), ""))


GTX_1080 = Gpu(0, "NVIDIA GeForce GTX 1080", cc="6.1")
RTX_3090 = Gpu(0, "NVIDIA GeForce RTX 3090", cc="8.6")
RTX_5090 = Gpu(1, "NVIDIA GeForce RTX 5090", cc="12.0")


def test_a_torch_for_one_gpu_is_not_taken_from_the_other(changed: Changer, torch_with: TorchWith) -> None:
    facts = mixed(changed, torch_with, GTX_1080, RTX_5090)
    (finding,) = [item for item in of(facts, "torch-arch-unsupported") if item.status is Status.FAIL]
    assert finding.subject.startswith("sm_61")
    assert not commands(finding.remedy), "every command would take the RTX 5090's torch away"
    assert "No single torch build supports sm_61" in finding.remedy[0].line()


def build_in(command: str) -> torch_releases.TorchBuild:
    """The published build that a command of pip installs."""
    pin = next(part for part in command.split() if "torch==" in part).strip('"').partition("==")[2]
    build = torch_releases.build(pin.replace(".*", ".0"), command.rpartition("/")[2])
    assert build is not None
    return build


def test_a_torch_that_serves_both_is_a_command(changed: Changer, torch_with: TorchWith) -> None:
    old = {"version": "2.5.1+cu124", "cuda": "12.4", "code": (sass("sm_80", "sm_90"),)}
    facts = mixed(changed, torch_with, RTX_3090, RTX_5090, **old)
    (finding,) = [item for item in of(facts, "torch-arch-unsupported") if item.status is Status.FAIL]
    (command,) = [item.shell(windows=False) for item in commands(finding.remedy)]
    build = build_in(command)
    for card in (RTX_3090, RTX_5090):
        assert torch_releases.how_build_runs(build, Arch.parse(card.cc or "")) in ("cubin", "ptx"), (
            command,
            card,
        )


@pytest.mark.parametrize(
    ("python", "pin"), [("3.8.20", "1.12.1"), ("3.11.9", "1.12.1"), ("3.12.4", "2.5.1"), ("3.14.0", "2.0.0")]
)
def test_the_torch_instead_of_a_pin_is_one_for_this_python(changed: Changer, python: str, pin: str) -> None:
    bare = {"torch_installed": Fact(False, ""), "torch": Fact(None, "", "none"), "extensions": Fact((), "")}
    pins = (Pin("environment.yml", "pytorch", f"=={pin}"),)
    facts = with_python(with_checkout(changed(**bare), pins=pins), version=python)
    (finding,) = of(facts, "pinned-torch-too-old")
    installs = [item.shell(windows=False) for item in commands(finding.remedy)]
    if python.startswith("3.8"):
        assert not installs, "no torch for an RTX 5080 has wheels for Python 3.8"
        return
    (command,) = installs
    assert command.startswith("/env/bin/python -m pip install")
    assert torch_releases.wheel_obstacle(build_in(command), python=major_minor(python)) is None


def test_every_toolkit_and_gpu_of_the_tables(changed: Changer) -> None:
    """FAIL exactly where this nvcc compiles no machine code that the GPU runs."""
    seen = set()
    for version in ((11, 1), (11, 8), (12, 4), (12, 8), (12, 9), (13, 0)):
        archs = tuple(arch.sm for arch in known_archs() if toolkit_supports(version, arch))
        facts = changed(**cuda(f"{version[0]}.{version[1]}.1", *archs))
        for arch in known_archs():
            serves = any(cubin_runs_on(Arch.parse(name), arch) for name in archs)
            (finding,) = of(facts, "toolkit-arch-unsupported", arch.sm)
            status = finding.status
            assert (status is Status.FAIL) == (not serves), (version, arch)
            assert (status is Status.PASS) == (arch.sm in archs)
            seen.add(status)
    assert seen == {Status.PASS, Status.SKIP, Status.FAIL}
