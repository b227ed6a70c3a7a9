"""Another torch, drop-ins where there is none, and the driver where it is all that stands in the way."""

import pytest
from msgspec.structs import replace

from splatfix.context import Goal
from splatfix.core.proof import RungName
from splatfix.core.step import PlainStep
from splatfix.knowledge.torch_releases import release
from splatfix.model import Fact, Facts, Gpu
from splatfix.model.steps import Confirm, InstallTorch
from splatfix.plan import OptionKind
from tests.archs import goal
from tests.plan.machines import (
    CUDA_12,
    INTERPRETER,
    NEW_DRIVER,
    OLD_DRIVER,
    RTX_4090,
    RTX_5080,
    TORCH_118,
    TORCH_128,
    argv,
    changed,
    debian_13,
    extensions,
    find_options,
    healthy,
    kinds,
    machine,
    plan,
    step_of,
    why_not,
)

GTX_1080 = Gpu(1, "NVIDIA GeForce GTX 1080 Ti", cc="6.1")
A100 = Gpu(0, "NVIDIA A100", cc="8.0")
TITLE = "is then not served by torch"


PASCAL_TOO = machine(torch=TORCH_118, gpus=(RTX_5080, GTX_1080), driver=NEW_DRIVER)


@pytest.mark.parametrize(
    ("facts", "target", "words"),
    [
        # CUDA 13 has no Pascal: serving the new card takes torch from the old one beside it
        (PASCAL_TOO, "sm_120", "this machine's own sm_61 is then not served by torch: torch 2."),
        (PASCAL_TOO, "sm_120a", "has no code for it; an environment of its own"),
        (machine(torch=None, gpus=(A100,), driver=("550.90.07", "12.4")), "sm_120",
         "own sm_80 is then not served by torch: driver 550.90.07 is too old for CUDA 13.0"),
        # every GPU is served, or not known
        (machine(torch=TORCH_118, gpus=(RTX_5080, replace(RTX_4090, index=1)), driver=NEW_DRIVER), "sm_120", ""),
        (machine(torch=TORCH_118, gpus=(RTX_5080, Gpu(1, "NVIDIA PCI device 2b85")), driver=NEW_DRIVER), "sm_120", ""),
    ],
)  # fmt: skip
def test_a_gpu_that_loses_its_torch_is_named(facts: Facts, target: str, words: str) -> None:
    option = plan(find_options(goal(target), facts), OptionKind.OTHER_TORCH)
    lost = [reason.text for reason in option.reasons if TITLE in reason.text]
    assert len(lost) == bool(words) and words in "".join(lost)


def without_torch(python: str = "3.11.7", driver: str = "580.95.05") -> Facts:
    interpreter = replace(INTERPRETER, version=python)
    return machine(
        torch=None, toolkits=(), gpus=(RTX_5080,), interpreter=interpreter, driver=(driver, "13.0")
    )


def why_no_torch(facts: Facts, *targets: str) -> str:
    return why_not(find_options(goal(*targets), facts), OptionKind.OTHER_TORCH)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (without_torch("3.8.10"), "torch 2.15 cu132 has wheels for Python 3.11 to 3.14, not for 3.8"),
        (changed(without_torch(), glibc="2.17"), "glibc 2.28 or newer; here is 2.17"),
        (without_torch(driver="470.57.02"), "under driver 470.57.02; with 5"),
        (changed(without_torch(), libc=Fact("musl 1.2.5", "ldd")), "no wheel for musl 1.2.5"),
        (changed(without_torch(), system="darwin"), "no CUDA build for darwin"),
    ],
)
def test_what_rules_out_every_build_is_named(facts: Facts, words: str) -> None:
    assert words in why_no_torch(facts)


def test_no_older_driver_is_suggested() -> None:
    """Some build of an old CUDA may run on a GPU of the future, for all the tables know: no driver is what it lacks."""
    future = Gpu(0, "NVIDIA GeForce RTX 6090", cc="13.0")
    assert "driver" not in why_no_torch(machine(torch=TORCH_118, gpus=(future,), driver=("620.10", "14.0")))


def test_which_python_it_is_for_is_open_where_that_is_not_known() -> None:
    lost_python = {"interpreter": Fact(None, "", "no such file"), "torch_installed": Fact(None)}
    options = find_options(Goal(), changed(without_torch(), **lost_python))
    assert "the target Python cannot be used (no such file)" in why_not(options, OptionKind.KEEP)
    assert any("which Python" in text for text in plan(options, OptionKind.OTHER_TORCH).unsure)


@pytest.mark.parametrize(
    ("facts", "version"),
    [(without_torch("3.8.10"), "2.4.*"), (changed(without_torch(), glibc="2.17"), "2.6.*")],
)
def test_the_first_torch_has_a_wheel_for_this_python_and_glibc(facts: Facts, version: str) -> None:
    """No CUDA build for the GPU has one; a CPU build shows the drop-ins' numbers, and nothing on that GPU."""
    option = plan(find_options(Goal(), facts), OptionKind.DROPIN)
    step = step_of(option, InstallTorch)
    assert (step.version, step.tag) == (version, "cpu")
    assert RungName.COMPUTES not in option.proves
    limit = next(item for item in option.cannot_prove if item.rung is RungName.COMPUTES)
    assert "no CUDA build of torch in the tables serves sm_120 here" in limit.why


def test_drop_ins_get_a_torch_for_the_cpu_where_there_is_one() -> None:
    """A Mac gets no CUDA build for a target elsewhere."""
    mac = changed(machine(torch=None, toolkits=(), host=()), system="darwin", machine="arm64")
    step = step_of(plan(find_options(goal("sm_120"), mac), OptionKind.DROPIN), InstallTorch)
    assert step.tag == "cpu"
    reason = why_not(find_options(Goal(), without_torch("3.5.2")), OptionKind.DROPIN)
    assert "no release in the tables has a wheel" in reason


def test_a_driver_for_the_only_native_option_is_suggested() -> None:
    """No CUDA 12 toolkit compiles beside glibc 2.41, and torch for CUDA 13 needs driver 580."""
    options = find_options(Goal(), debian_13(gpus=(RTX_5080,), driver=OLD_DRIVER))
    assert kinds(options) == [OptionKind.NVRTC, OptionKind.DROPIN, OptionKind.DRIVER]
    option = plan(options, OptionKind.DRIVER)
    assert type(option.steps[0]) is PlainStep and "580 or newer" in option.steps[0].text
    assert step_of(option, InstallTorch).tag.startswith("cu13") and RungName.TRAINS in option.proves
    assert option.reasons[0].text.startswith("torch 2.") and "needs driver 580" in option.reasons[0].text


@pytest.mark.parametrize(("driver", "keep"), [(NEW_DRIVER, ()), (OLD_DRIVER, ("torch",))])
def test_no_driver_where_another_option_is_available(driver: tuple[str, str], keep: tuple[str, ...]) -> None:
    facts = debian_13(gpus=(RTX_5080,), driver=driver)
    assert "new enough" in why_not(find_options(Goal(), facts, keep=keep), OptionKind.DRIVER)


def test_the_oldest_driver_that_starts_torch_is_suggested() -> None:
    kepler = replace(RTX_5080, name="NVIDIA Tesla K80", cc="3.7")
    facts = machine(torch=None, toolkits=(), gpus=(kepler,), driver=("390.157", "9.1"))
    option = plan(find_options(Goal(), facts), OptionKind.DRIVER)
    assert type(option.steps[0]) is PlainStep and "450.80.02 or newer" in option.steps[0].text
    assert step_of(option, InstallTorch).tag == "cu118"


@pytest.mark.parametrize("glibc", ["2.17", "2.41"])
@pytest.mark.parametrize("python", ["3.6.9", "3.8.10", "3.10.2", "3.14.0", "3.16.0"])
def test_no_option_installs_a_torch_without_a_wheel(python: str, glibc: str) -> None:
    version = (int(python.split(".")[0]), int(python.split(".")[1]))
    for gpus in ((RTX_5080,), (replace(RTX_5080, cc="6.1"),), (RTX_5080, RTX_4090)):
        facts = changed(without_torch(python), glibc=glibc, gpus=Fact(gpus, "test"))
        for option in find_options(Goal(), facts).available:
            for step in (item for item in option.steps if isinstance(item, InstallTorch)):
                row = release(step.version.replace("*", "0"))
                assert row is not None and row.supports_python(version) is not False, step
                assert row.min_glibc is None or row.min_glibc <= tuple(map(int, glibc.split("."))), step
                assert step.tag == "cpu" or step.tag in {build.tag for build in row.builds}, step


@pytest.mark.parametrize("name", ["simple_knn", "diff_surfel_rasterization"])
def test_without_a_rasterizer_of_the_trainer_s_there_is_no_training(name: str) -> None:
    """The rungs above loading are shown by level 2 (numbers) and, where the smoke trainer calls the rasterizer, by a training."""
    options = find_options(Goal(), healthy(), sources=extensions(**{name: ()}))
    option = plan(options, OptionKind.DROPIN)
    (confirmed,) = (argv(step) for step in option.steps if isinstance(step, Confirm))
    assert confirmed[1:4] == ("certify", "--level", "2") and RungName.COMPUTES in option.proves
    (limit,) = (limit for limit in option.cannot_prove if limit.rung is RungName.TRAINS)
    assert "rasterizer" in limit.why and RungName.TRAINS not in option.proves


def test_what_no_torch_serves_together_is_served_one_at_a_time() -> None:
    facts = machine(torch=TORCH_128, gpus=(RTX_5080, GTX_1080), toolkits=(CUDA_12,), driver=NEW_DRIVER)
    assert find_options(goal(), facts).notes[0].startswith("no native option covers sm_120, sm_61 together")
    facts = machine(torch=None, gpus=(RTX_5080, GTX_1080), driver=NEW_DRIVER)
    sentence = why_not(find_options(goal("sm_61", "sm_120"), facts), OptionKind.OTHER_TORCH)
    assert "at once; in environments of their own they are served: sm_61 by torch 2." in sentence
    assert "sm_120 by torch 2." in sentence
