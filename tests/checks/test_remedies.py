"""Every command that a check gives can be run as it stands: whole, of one line, read by a shell, and without force."""

import re
import subprocess

import pytest
from msgspec.structs import replace

from splatfix.checks import run_checks
from splatfix.context import Goal, make_context
from splatfix.core.shell import quoted
from splatfix.core.step import commands as runnable
from splatfix.model import Distribution, Fact, Facts, Gpu, JitCache, ToolkitChoice
from tests.archs import goal
from tests.machines import NAMES, facts_of

from .conftest import Changer, TorchWith, sass, with_facts, with_python
from .test_decisions import facts_of as facts_of_row

_PLACEHOLDERS = ("path/to", "SOURCE", "DATA", "...", "<", ">", "YOUR")
_FORCE = ("sudo ", "rm -rf", "--force", " -y", "--yes", "| sh", "curl ", "reboot")


@pytest.fixture
def sick(changed: Changer, torch_with: TorchWith) -> Facts:
    return facts_of_row({"with": ["sick"]}, changed, torch_with)


@pytest.fixture
def ailing(changed: Changer, torch_with: TorchWith) -> Facts:
    return facts_of_row({"with": ["ailing"]}, changed, torch_with)


def with_gpu(facts: Facts) -> Facts:
    return with_facts(facts, gpus=Fact((Gpu(0, "RTX 5080", cc="12.0"),), "NVML"))


def commands(facts: Facts, *targets: str) -> list[tuple[str, str]]:
    windows = facts.machine.system == "windows"
    findings = run_checks(make_context(facts, goal(*targets)))
    return [(item.code, one.shell(windows=windows)) for item in findings for one in runnable(item.remedy)]


def test_commands_for_a_very_sick_machine(sick: Facts) -> None:
    given = commands(sick, "sm_120", "sm_61")
    assert len({code for code, _ in given}) >= 9, given
    for code, text in given:
        assert "\n" not in text, code
        assert not [mark for mark in (*_PLACEHOLDERS, *_FORCE) if mark in text], f"{code}: {text}"
    # what a POSIX shell says of them without running any
    script = "".join(f"{text}\n" for _, text in given)
    parsed = subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True, check=False)
    assert parsed.stderr == ""


def test_commands_on_windows_are_for_its_own_shell(sick: Facts) -> None:
    """cmd knows neither export nor unset nor rm."""
    state = (True, None, "2026-01-01T00:00:00", "x.pyd", (sass("sm_61"),))
    cache = JitCache("gsplat_cuda", r"C:\cache\gsplat_cuda", "py311_cu128", *state)
    choice = ToolkitChoice("C:/x", "CUDA_HOME", None, "C:/y", False)
    windows = {"system": "windows", "wsl": False, "compilers": Fact((), "")}
    facts = with_facts(sick, jit_caches=Fact((cache,), ""), toolkit_choice=Fact(choice), **windows)
    facts = replace(facts, gathered="2026-01-02T00:00:00")
    given = commands(facts, "sm_120", "sm_61")
    expected = {"jit-cache-locked", "jit-cache-arch", "no-gpu-visible", "cuda-home-wrong"}
    assert expected <= {code for code, _ in given}
    assert not [text for _, text in given if re.match(r"(export|unset|rm|ls) ", text) or "${" in text], given
    assert ("jit-cache-locked", r"del C:\cache\gsplat_cuda\lock") in given


@pytest.mark.parametrize(
    ("kind", "start"), [("uv", "uv pip {} --python /env/bin/python "), ("venv", "/env/bin/python -m pip {} ")]
)
def test_pip_is_called_where_it_answers(sick: Facts, kind: str, start: str) -> None:
    """uv makes environments without pip; of a Python that lets nobody install (PEP 668) tests/cli has every command."""
    base = with_python(sick, kind=kind)
    torch = base.environment.torch.value
    assert torch is not None
    old = replace(torch, version="2.1.0+cu121", builder_imports=("pkg_resources",))
    have = [item for item in base.environment.distributions.value or () if item.name not in ("pip", "ninja")]
    distributions = (*have, Distribution("numpy", "2.1.0", "/env"))
    facts = with_facts(base, torch=Fact(old, ""), distributions=Fact(distributions, ""))
    remedies = [step for item in run_checks(make_context(facts, Goal())) for step in item.remedy]
    steps = [step for step in remedies if re.search(r"\bpip (un)?install\b", step.line())]
    steps = [step for step in steps if "environment of its own" not in step.text]
    assert len(steps) >= 4
    for step in steps:
        verb = "uninstall" if "pip uninstall" in step.line() else "install"
        assert step.command is not None and step.line().startswith(start.format(verb)), step.text


def advised(facts: Facts, *targets: str) -> list[tuple[str, str]]:
    """Every step, command or prose, that says to call splatfix on an environment."""
    windows = facts.machine.system == "windows"
    findings = run_checks(make_context(facts, goal(*targets)))
    steps = [(item.code, step.line(windows=windows)) for item in findings for step in item.remedy]
    return [(code, text) for code, text in steps if re.search(r"splatfix (install|certify|diagnose)\b", text)]


def assert_whole(facts: Facts, *targets: str) -> set[str]:
    """Each names the environment that was looked at, and for which GPU; the codes that gave some."""
    interpreter = facts.environment.interpreter.value
    given = advised(facts, *targets)
    windows = facts.machine.system == "windows"
    for code, text in given:
        if interpreter is not None and "path/to/venv" not in text:
            assert f"--python {quoted(interpreter.executable, windows=windows)}" in text, (code, text)
        if "splatfix install" in text:
            assert "--target " in text, (code, text)
        for name in targets if code not in OF_ONE_GPU else ():
            assert f"--target {name}" in text or "path/to/venv" in text, (code, text)
    return {code for code, _ in given}


# They speak of one GPU at a time, and so does their advice.
OF_ONE_GPU = ("torch-arch-unsupported", "arch-unknown-to-torch")


@pytest.mark.parametrize("targets", [(), ("sm_120",), ("sm_120", "sm_90")])
@pytest.mark.parametrize("name", NAMES)
def test_advice_for_the_simulated_machines_is_whole(name: str, targets: tuple[str, ...]) -> None:
    assert_whole(facts_of(name), *targets)


@pytest.mark.parametrize("targets", [(), ("sm_120",)])
def test_advice_to_build_names_environment_and_gpu(
    sick: Facts, ailing: Facts, targets: tuple[str, ...]
) -> None:
    always = {"cub-max-removed", "cuda-runtime-mismatch", "extension-python-mismatch"}
    always |= {"extension-import-fails", "cxx-standard-forced", "toolkit-dropped-arch"}
    assert always <= assert_whole(ailing, *targets)
    assert always | {"no-kernel-image", "arch-list-ignored"} <= assert_whole(with_gpu(ailing), *targets)
    assert_whole(sick, *targets)


def test_what_needs_a_gpu_named_first_is_no_command(ailing: Facts) -> None:
    (build,) = [text for code, text in advised(ailing) if code == "cub-max-removed"]
    assert build.endswith("--target ARCH")
    assert build not in [text for _, text in commands(ailing)]
    (same,) = [text for code, text in commands(ailing, "sm_120") if code == "cub-max-removed"]
    assert same == "splatfix install /home/u/gs/submodules/cached --python /env/bin/python --target sm_120"


def test_an_environment_that_did_not_answer_is_not_named(ailing: Facts) -> None:
    facts = with_facts(with_gpu(ailing), interpreter=Fact(None, "", "no answer"))
    (build,) = [text for code, text in commands(facts) if code == "cub-max-removed"]
    assert build == "splatfix install /home/u/gs/submodules/cached --target sm_120"
