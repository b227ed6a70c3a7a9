"""Over a grid of machines: no plan holds a combination that the tables call impossible. The rules are asked anew here."""

from __future__ import annotations

import re
from itertools import product

import pytest
from msgspec.structs import replace

from splatfix.checks import run_checks, select
from splatfix.context import make_context
from splatfix.core.step import Command, commands
from splatfix.facts import EntryKind
from splatfix.knowledge import Arch, cubin_runs_on, drivers, ptx_runs_on, toolkit_supports
from splatfix.knowledge.host_compilers import limits
from splatfix.knowledge.tables import parse_version
from splatfix.knowledge.torch_releases import build, how_build_runs, wheel_obstacle
from splatfix.model import Code, Driver, Fact, Facts, FatbinGroup, Gpu, Status, Toolkit, Torch
from splatfix.model.steps import BuildWheel, InstallTorch, ProvideToolkit
from splatfix.plan import OptionKind, Plan
from splatfix.plan.backends.torch import as_torch
from tests.archs import goal
from tests.machines import NAMES, facts_of
from tests.plan.machines import CUDA_13, INTERPRETER, argv, changed, compilers, find_options, machine, step_of

TORCHES = ("1.13.1+cu117", "2.1.2+cu118", "2.5.1+cu124", "2.7.1+cu126", "2.8.0+cu128", "2.9.1+cu126", "2.11.0+cu130",
           "cpu", "none")  # fmt: skip
DRIVERS = ("470.57.02", "535.183.01", "570.86.15", "580.95.05", "999.1")
TOOLKITS = ((), ("11.8.89",), ("12.4.131",), ("12.8.93",), ("13.0.88",), ("11.5.119", "12.6.68", "13.2.10"))
COMPILERS = ("8.5.0", "11.4.0", "13.2.0", "15.1.0")
GPUS = ("6.1", "7.5", "8.9", "9.0", "12.0", "12.1")
ELSEWHERE = ((), ("sm_120",), ("sm_90", "sm_75"))

GRID = list(product(TORCHES, DRIVERS, TOOLKITS, COMPILERS, GPUS, ELSEWHERE))


def torch_named(name: str) -> Torch | None:
    if name == "none":
        return None
    if name == "cpu":
        return Torch("2.13.0+cpu", None, None, "/x")
    known = build(name)
    assert known is not None, name
    code = known.code()
    entries = [Code(EntryKind.SASS, arch.sm) for arch in code.cubins]
    entries += [Code(EntryKind.PTX, arch.sm, drivers.ptx_isa_of_cuda(known.cuda)) for arch in code.ptx]
    return replace(as_torch(known), code=(FatbinGroup(tuple(entries), 5),))


def toolkit(version: str) -> Toolkit:
    major, minor, _ = version.split(".")
    bounds = limits((int(major), int(minor)))
    given = {"version": version, "archs": (), "gcc_max": bounds.gcc_max_major if bounds else None}
    return replace(CUDA_13, root=f"/usr/local/cuda-{major}.{minor}", **given)


def build_machine(torch: str, driver: str, toolkits: tuple[str, ...], compiler: str, gpu: str) -> Facts:
    there, gpus = tuple(map(toolkit, toolkits)), (Gpu(0, "GPU", cc=gpu),)
    facts = machine(torch=torch_named(torch), toolkits=there, host=compilers(compiler), gpus=gpus)
    level = drivers.cuda_level_of_driver(driver)
    words = f"{level[0]}.{level[1]}" if level else None
    return changed(facts, driver=Fact(Driver(driver, words), "grid"), glibc="2.35")


def check(facts: Facts, plan: Plan, targets: tuple[Arch, ...], driver: str) -> None:
    """One plan against the tables, asked directly."""
    new = next((step for step in plan.steps if isinstance(step, InstallTorch)), None)
    installed = facts.environment.torch.value
    here = {Arch.parse(gpu.cc or "") for gpu in facts.machine.gpus.value or ()}
    cuda: tuple[int, int] | None = None
    if new is not None:
        known = build(new.version.replace("*", "0"), new.tag)
        assert known is not None, new
        assert wheel_obstacle(known, python=(3, 11), glibc=(2, 35)) is None
        assert new.tag in argv(new)[-1] or f"+{new.tag}" in " ".join(argv(new))
        for arch in targets:
            assert how_build_runs(known, arch) != "no", (new, arch)
        cuda = known.cuda
    elif installed and installed.cuda:
        major, _, minor = installed.cuda.partition(".")
        cuda = (int(major), int(minor))
    rebuild = next((step for step in plan.steps if isinstance(step, BuildWheel)), None)
    if rebuild is None:
        return
    assert cuda is not None, "nothing is compiled beside a torch without CUDA"
    floor = drivers.runtime_floor(cuda)
    if here & set(targets) and floor and plan.kind is not OptionKind.DRIVER:
        assert parse_version(driver) >= floor, (driver, cuda)
    numbers = [int(part) for part in rebuild.cuda.split(".")[:2]]
    assert numbers[0] == cuda[0], "torch refuses another major"
    if any(isinstance(step, ProvideToolkit) for step in plan.steps):
        assert numbers[0] >= 13, "no compiler of an older CUDA is on PyPI"
    arch_list = rebuild.variables["TORCH_CUDA_ARCH_LIST"]
    sass = [Arch.parse(item) for item in arch_list.split(";") if "+PTX" not in item]
    ptx = [Arch.parse(item.removesuffix("+PTX")) for item in arch_list.split(";") if "+PTX" in item]
    for arch in (*sass, *ptx):
        assert toolkit_supports((numbers[0], numbers[1]), arch) is not False, (numbers, arch)
    for arch in targets:
        native = any(cubin_runs_on(item, arch) for item in sass)
        assert native or any(ptx_runs_on(item, arch) for item in ptx), (arch_list, arch)
        if not native and arch in here and plan.kind is not OptionKind.DRIVER:
            isa = drivers.ptx_isa_of_cuda((numbers[0], numbers[1]))
            level = drivers.cuda_level_of_driver(driver)
            assert isa is None or drivers.ptx_jit_ok(isa, level) is not False
    bounds = limits((numbers[0], numbers[1]))
    if bounds and (compiler := rebuild.variables.get("CXX")):
        found = next(item for item in facts.machine.compilers.value or () if item.path == compiler)
        assert int((found.version or "0").split(".")[0]) <= bounds.gcc_max_major


def run_cell(cell: tuple[str, str, tuple[str, ...], str, str, tuple[str, ...]]) -> int:
    torch, driver, toolkits, compiler, gpu, elsewhere = cell
    facts = build_machine(torch, driver, toolkits, compiler, gpu)
    options = find_options(goal(*elsewhere), facts)
    targets = tuple(Arch.parse(item) for item in elsewhere) or (Arch.parse(gpu),)
    kinds = [option.kind for option in options.available]
    every = [kind for kind in OptionKind if kind is not OptionKind.WHEEL]  # nobody has looked for wheels
    assert sorted(kinds + [item.kind for item in options.rejected]) == sorted(every)
    assert kinds == [kind for kind in every if kind in kinds], "the least invasive first"
    assert all(len(item.rejected_because) > 10 for item in options.rejected)
    for plan in options.available:
        check(facts, plan, targets, driver)
    return sum(1 for plan in options.available if any(isinstance(step, BuildWheel) for step in plan.steps))


def test_a_part_of_the_grid() -> None:
    assert sum(run_cell(cell) for cell in GRID[::199]) > 100, "the plans that compile were really met"


@pytest.mark.slow
@pytest.mark.parametrize("torch", TORCHES)
def test_a_third_of_the_grid(torch: str) -> None:
    for cell in GRID[::3]:
        if cell[0] == torch:
            run_cell(cell)


# Findings and options: one and the same torch build, by one and the same command


def advised(facts: Facts, targets: tuple[str, ...]) -> set[Command]:
    """The commands by which failing checks of torch would install one."""
    findings = run_checks(make_context(facts, goal(*targets)), select(("torch",), ()))
    given = (commands(item.remedy) for item in findings if item.status is Status.FAIL)
    return {command for each in given for command in each if "torch==" in " ".join(command.argv)}


def planned(facts: Facts, targets: tuple[str, ...]) -> Command | None:
    """The command of the option of another torch; None where it is rejected."""
    options = find_options(goal(*targets), facts)
    found = (option for option in options.available if option.kind is OptionKind.OTHER_TORCH)
    return next((step_of(option, InstallTorch).command for option in found), None)


@pytest.mark.slow
def test_over_the_grid_both_name_the_same_build() -> None:
    """On machines whose torch serves nothing, or that have none."""
    compared = 0
    for torch, driver, toolkits, compiler, gpu, targets in GRID[::31]:
        if torch not in ("none", "cpu", "1.13.1+cu117", "2.5.1+cu124"):
            continue
        facts = build_machine(torch, driver, toolkits, compiler, gpu)
        of_checks, of_option = advised(facts, targets), planned(facts, targets)
        if of_checks and of_option:
            compared += 1
            assert of_checks == {of_option}, (targets, facts.machine.driver, facts.machine.toolkits)
    assert compared > 100


@pytest.mark.parametrize("name", NAMES)
def test_on_every_simulated_machine_too(name: str) -> None:
    for targets in ((), ("sm_120",), ("sm_61",), ("sm_90", "sm_75"), ("auto", "sm_75")):
        of_checks, of_option = advised(facts_of(name), targets), planned(facts_of(name), targets)
        assert not of_checks or not of_option or of_checks == {of_option}


@pytest.mark.parametrize(
    ("changes", "starts"),
    [
        ({}, ("/env/bin/python", "-m", "pip", "install")),
        ({"kind": "uv"}, ("uv", "pip", "install", "--python", "/env/bin/python")),
        ({"externally_managed": True}, (".venv/bin/python", "-m", "pip", "install")),
    ],
)
def test_every_command_is_the_environments_own(changes: dict[str, object], starts: tuple[str, ...]) -> None:
    interpreter = replace(INTERPRETER, **changes)  # type: ignore[arg-type]
    facts = machine(torch=None, interpreter=interpreter, packages={})
    command = planned(facts, ("sm_120",))
    assert command and command.argv[: len(starts)] == starts
    facts = changed(facts, torch_installed=Fact(True, "test"))
    for item in run_checks(make_context(facts, goal("sm_120"))):
        for step in item.remedy:
            assert not re.search(r"(?<!-m )(?<!uv )\bpip install \S*torch", step.line()), step.line()
