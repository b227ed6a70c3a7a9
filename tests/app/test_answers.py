"""What a class of failures asks for on a machine: commands that fit its driver, GPU and environment."""

import shlex
from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.app.explain import Answers, ExplainRequest, explain
from splatfix.context import Goal, make_context
from splatfix.core.codec import to_json
from splatfix.core.files import write_json
from splatfix.explain import explain_text
from splatfix.knowledge.failures import failure_classes, failures
from splatfix.model import Facts
from tests.machines import NAMES, facts_of
from tests.tables import data


def lines(failure: str, facts: Facts | None) -> list[str]:
    found = Answers(make_context(facts, Goal()) if facts else None).to(failures()[failure])
    return [step.command.shell(windows=False) if step.command else step.text for step in found]


def with_cpu_torch(facts: Facts) -> Facts:
    torch = facts.environment.torch
    assert torch.value is not None
    version = torch.value.version.partition("+")[0] + "+cpu"
    changed = replace(torch.value, version=version, cuda=None, code=(), knows_archs=())
    environment = replace(facts.environment, torch=replace(torch, value=changed))
    return replace(facts, environment=environment)


@pytest.mark.parametrize(("machine", "wheel"), data(__file__)["wheels"])
def test_torch_for_the_cpu_gives_the_wheel_for_this_driver(machine: str, wheel: str) -> None:
    facts = with_cpu_torch(facts_of(machine))
    python = facts.environment.interpreter.value
    first, then = lines("cpu-only-torch", facts)[:2]
    index = f"https://download.pytorch.org/whl/{wheel.partition('+')[2]}"
    assert python and first == f"{python.executable} -m pip install {wheel} --index-url {index}"
    assert then.startswith("splatfix install ")
    assert machine != "rtx-5080" or not lines("cpu-only-torch", facts_of(machine)), "it serves"


@pytest.mark.parametrize("machine", NAMES)
def test_a_missing_toolkit_has_a_command_on_every_machine(machine: str) -> None:
    facts = facts_of(machine)
    targets = make_context(facts, Goal()).archs
    install = next(line for line in lines("cuda-toolkit-missing", facts) if "splatfix install" in line)
    assert all(f"--target {arch.sm}" in install for arch in targets)
    assert targets or "--backend pure" in install


def test_without_facts_commands_are_those_that_fit_anywhere() -> None:
    assert lines("setuptools-incompatible", None) == ["python -m pip install 'setuptools<70' wheel"]
    assert lines("no-kernel-image", None) == ["splatfix install --dry-run --why"]
    for item in failure_classes():
        for step in Answers().to(item):
            assert step.command is None or shlex.split(step.command.shell(windows=False))


@pytest.mark.parametrize(("failure", "modules", "expected"), data(__file__)["without_compiler"])
def test_a_failure_of_compilers_names_the_way_without_one(
    failure: str, modules: tuple[str, ...], expected: str
) -> None:
    found = Answers().without_compiler(failures()[failure], modules)
    assert "".join(step.command.shell(windows=False) for step in found if step.command) == expected


def test_the_way_without_a_compiler_says_that_it_needs_a_cuda_torch() -> None:
    facts = facts_of("rtx-5080")
    mac = replace(facts, machine=replace(facts.machine, system="darwin"))
    for given, expected in ((facts, [False]), (with_cpu_torch(facts), [True]), (with_cpu_torch(mac), [])):
        answers = Answers(make_context(given, Goal()))
        found = answers.without_compiler(failures()["cuda-toolkit-missing"], ["simple_knn"])
        assert ["CUDA build of torch first" in step.text for step in found] == expected


def fix_on(facts: Facts, log: str, tmp_path: Path) -> list[str]:
    """The fix of the first cause on this machine, a line for each step."""
    saved = tmp_path / "facts.json"
    write_json(saved, to_json(facts))
    fix = explain(ExplainRequest(words=log, facts_file=saved)).document()["causes"][0]["fix"]
    return [step["command"] or step["text"] for step in fix]


def test_the_cause_of_the_log_leads_and_a_command_of_a_check_stands_alone(tmp_path: Path) -> None:
    no_cl = "RuntimeError: Error checking compiler version for cl: Cannot find compiler 'cl.exe' in PATH"
    assert "vcvars64.bat" in fix_on(facts_of("rtx-4090-windows-vs2022"), no_cl, tmp_path)[0]
    no_toolkit = "gsplat: No CUDA toolkit found. gsplat will be disabled."
    found = fix_on(facts_of("a100-conda-without-nvcc"), no_toolkit, tmp_path)
    assert any(line.startswith("splatfix install gsplat --backend nvrtc --python ") for line in found)
    assert failures()["cuda-toolkit-missing"].fix not in found
    no_cuda = "AssertionError: Torch not compiled with CUDA enabled"
    found = fix_on(with_cpu_torch(facts_of("rtx-5080")), no_cuda, tmp_path)
    assert any("torch==2.9.0+cu129" in line for line in found), found
    assert failures()["cpu-only-torch"].fix not in found and "diagnose" not in "".join(found)


def test_a_checkpoint_that_torch_refuses_has_steps() -> None:
    log = "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded"
    cause = explain(ExplainRequest(words=log)).document()["causes"][0]
    shown = [step["command"] or step["text"] for step in cause["fix"]]
    assert "export TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1" in shown
    assert "splatfix install nerfstudio --in-place" in shown


def test_the_modules_that_a_log_names() -> None:
    log = "Building wheel for diff-gaussian-rasterization (setup.py): error\nfrom simple_knn._C import distCUDA2"
    assert explain_text(log).dropins == ("simple_knn", "diff_gaussian_rasterization")
