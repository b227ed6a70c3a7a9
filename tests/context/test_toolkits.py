"""Which toolkit is taken: where glibc has a say, and where a driver does that translates PTX."""

import pytest
from msgspec.structs import replace

from splatfix.checks import run_checks, select
from splatfix.context import Goal, make_context
from splatfix.context.compilers import choose_compilers
from splatfix.context.gpus import Gpus
from splatfix.context.toolkits import choose_ptx, choose_toolkit
from splatfix.core.step import PlainStep
from splatfix.knowledge import Arch
from splatfix.model import Compiler, Driver, Fact, Facts, Status
from splatfix.plan import OptionKind
from tests.archs import goal
from tests.plan.machines import (
    CUDA_12,
    INTERPRETER,
    NEW_DRIVER,
    RTX_4090,
    RTX_5080,
    TORCH,
    TORCH_128,
    argv,
    changed,
    compilers,
    debian_13,
    find_options,
    kinds,
    machine,
    plan,
    refused,
    why_not,
)

SM_120 = Arch(12, 0)
CONDA = replace(INTERPRETER, prefix="/opt/miniforge/envs/gs", kind="conda")
GCC_OF_CONDA = tuple(
    Compiler(kind, f"{CONDA.prefix}/bin/x86_64-conda-linux-gnu-{kind}", "13.3.0", ("the conda environment",))
    for kind in ("gcc", "g++")
)


@pytest.mark.parametrize(("root", "fits"), [("/usr", True), ("/usr/local/cuda-12.8", False)])
def test_a_distribution_package_fits_its_glibc(root: str, fits: bool) -> None:
    """Debian 13 has patched its CUDA 12.4; NVIDIA's own 12.x does not compile there."""
    facts = debian_13(toolkits=(replace(CUDA_12, root=root),))
    options = find_options(goal("sm_120"), facts)
    assert (OptionKind.REBUILD in kinds(options)) is fits
    assert fits or "clash with those of glibc 2.41" in why_not(options, OptionKind.REBUILD)
    found = run_checks(make_context(facts, Goal()), select(("glibc-cuda-math-conflict",), ()))
    assert any(item.status is Status.WARN for item in found) is not fits


def test_beside_condas_compiler_the_systems_own_is_not_taken() -> None:
    """conda's brings an older glibc; the plain g++ of the same machine would still meet the new one."""
    facts = debian_13(host=(*compilers("12.2.0"), *GCC_OF_CONDA))
    decision = choose_toolkit(facts, TORCH_128, (SM_120,)).value
    chosen = choose_compilers(facts, TORCH_128, decision.toolkit)
    assert chosen.value.cxx == "/opt/miniforge/envs/gs/bin/x86_64-conda-linux-gnu-g++"
    reasons = {item.what: item.why for item in chosen.rejected}
    assert "headers of glibc 2.41" in reasons["compiler /usr/bin/g++"]


def gcc_of_conda(facts: Facts) -> tuple[str, ...]:
    """The command that installs a compiler before the rebuild."""
    steps = plan(find_options(goal("sm_120"), facts), OptionKind.REBUILD).steps
    return next(argv(step) for step in steps if type(step) is PlainStep and step.command)


def test_conda_offers_the_older_glibc_without_root() -> None:
    facts = debian_13(interpreter=CONDA)
    assert gcc_of_conda(facts)[:6] == ("conda", "install", "-p", CONDA.prefix, "-c", "conda-forge")
    assert gcc_of_conda(facts)[-1].startswith("gxx_linux-64=")
    assert gcc_of_conda(changed(facts, machine="aarch64"))[-1].startswith("gxx_linux-aarch64=")


def test_the_compiler_named_for_a_clash_is_one_that_cures_it() -> None:
    facts = debian_13(host=compilers("15.1.0", folder="/opt/conda/bin"))
    decision = choose_toolkit(facts, TORCH_128, (SM_120,)).value
    error = refused(choose_compilers(facts, TORCH_128, decision.toolkit))
    assert "conda's gcc 14" in error.todo[0].line() and "apt-get" not in " ".join(
        step.line() for step in error.todo
    )


OLD = replace(
    CUDA_12, root="/usr/local/cuda-12.6", version="12.6.68", archs=("sm_80", "sm_89", "sm_90"), gcc_max=13
)


DRIVER_535 = ("535.183.01", "12.2")


def test_a_driver_has_a_say_about_ptx_for_its_own_gpus_only() -> None:
    """An RTX 4090 here on CUDA 12.2's driver, an RTX 5080 elsewhere: PTX of 12.6 is for the driver there to read."""
    facts = machine(torch=TORCH_128, gpus=(RTX_4090,), toolkits=(OLD,), driver=DRIVER_535)
    decision = choose_ptx(facts, TORCH_128, (Arch(8, 9), SM_120)).value
    assert decision.ptx == Arch(9, 0) and decision.unsure
    own = machine(torch=TORCH_128, gpus=(RTX_5080,), toolkits=(OLD,), driver=DRIVER_535)
    error = refused(choose_ptx(own, TORCH_128, (SM_120,)))
    assert "PTX 8.5 is newer than a driver of CUDA 12.2 translates" in error.what


def test_ptx_is_for_the_driver_that_a_reboot_brings() -> None:
    stale = Driver(*DRIVER_535, library_version="580.95.05", nvml_error=18)
    facts = changed(machine(torch=TORCH_128, gpus=(RTX_5080,), toolkits=(OLD,)), driver=Fact(stale, "test"))
    assert Gpus(facts).driver_level(SM_120) == "13.0"
    assert not choose_ptx(facts, TORCH_128, (SM_120,)).value.unsure


def test_a_torch_whose_list_is_not_known_rules_out_no_ptx() -> None:
    unknown = replace(TORCH_128, knows_archs=())
    decision = choose_ptx(machine(torch=unknown, toolkits=(OLD,)), unknown, (SM_120,)).value
    assert decision.ptx == Arch(9, 0)


def test_a_letter_of_the_machines_own_gpu_is_that_gpu() -> None:
    facts = machine(gpus=(RTX_5080,), driver=NEW_DRIVER)
    assert find_options(goal("sm_120a"), facts).notes == ()


def test_tools_not_looked_for_are_not_called_absent() -> None:
    unknown = Fact(None, "", "nvcc did not answer in time")
    facts = machine(torch=TORCH_128, gpus=(RTX_5080,), driver=NEW_DRIVER)
    options = find_options(Goal(), changed(facts, toolkits=unknown, compilers=unknown))
    for kind in (OptionKind.REBUILD, OptionKind.REBUILD_PTX):
        reason = why_not(options, kind)
        assert "which are here is not known (nvcc did not answer in time)" in reason
        assert "none was found" not in reason
    option = plan(options, OptionKind.INSTALL_TOOLKIT)
    assert any("which toolkits are here" in text for text in option.unsure)
    assert "none was found" not in " ".join(reason.text for reason in option.reasons)


@pytest.mark.parametrize(
    ("found", "words"), [((), "Install the Build Tools"), (("19.50",), "Add an older toolset")]
)
def test_windows_without_a_compiler_names_no_older_toolset(found: tuple[str, ...], words: str) -> None:
    host = tuple(Compiler("cl", "C:/VS/cl.exe", version, ("vswhere",)) for version in found)
    toolkit = replace(CUDA_12, version="12.4.131", archs=())
    facts = changed(machine(torch=TORCH_128, toolkits=(toolkit,), host=host), system="windows")
    error = refused(choose_compilers(facts, TORCH_128, toolkit))
    assert words in error.todo[0].line() and "toolset 14." in error.todo[0].line()


def test_condas_toolkit_is_named_by_its_labelled_channel() -> None:
    """The plain channel mixes releases: its nvcc may be newer than the toolkit that was asked for."""
    error = refused(choose_toolkit(machine(toolkits=()), TORCH_128, (SM_120,)))
    assert "conda install -c nvidia/label/cuda-12.8.0 cuda-toolkit" in error.todo[-1].line()


@pytest.mark.parametrize(
    ("targets", "python", "words"),
    [
        (("6.1",), "3.11.7", "/env/bin/python -m pip install torch==2.11.0+cu126"),
        (("6.1",), "3.9.1", "/env/bin/python -m pip install 'torch==2.8.*'"),
        (("6.1", "12.0"), "3.11.7", "No torch build in the tables supports sm_61, sm_120 here"),
    ],
)
def test_torch_for_a_dropped_gpu_serves_every_target(
    targets: tuple[str, ...], python: str, words: str
) -> None:
    facts = machine(toolkits=(), interpreter=replace(INTERPRETER, version=python))
    knows_all = replace(TORCH, knows_archs=("6.1", *TORCH.knows_archs))
    facts = changed(facts, torch=Fact(knows_all, "test"))
    error = refused(choose_toolkit(facts, knows_all, tuple(map(Arch.parse, targets))))
    assert error.code == "arch-dropped-by-cuda"
    assert error.todo[0].line().startswith(words)


def test_a_second_toolkit_of_a_version_is_no_farther() -> None:
    twin = replace(CUDA_12, root="/opt/cuda-12.8")
    far = replace(CUDA_12, root="/opt/cuda-12.9", version="12.9.86")
    decision = choose_toolkit(machine(toolkits=(CUDA_12, twin, far)), TORCH_128, (SM_120,))
    whys = {item.what: item.why for item in decision.rejected}
    assert "no nearer to torch's" in whys["toolkit /opt/cuda-12.8"]
    assert "farther from torch's" in whys["toolkit /opt/cuda-12.9"]


def test_no_older_ptx_serves_an_arch_with_a_letter() -> None:
    """sm_100a code exists for what plain code cannot do; CUDA 12.8 can name it, this torch cannot."""
    error = refused(choose_ptx(machine(torch=TORCH_128, toolkits=(CUDA_12,)), TORCH_128, (Arch(10, 0, "a"),)))
    assert error.code == "arch-unknown-to-torch"
