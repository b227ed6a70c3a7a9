"""The diagnosis for the terminal: loud findings with evidence and way out, quiet ones in a line, nothing swallowed."""

from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.app.diagnose import exit_code_of
from splatfix.core.errors import Exit
from splatfix.core.step import say, set_variable
from splatfix.model import (
    Driver,
    EnvironmentFacts,
    Evidence,
    Fact,
    Facts,
    Finding,
    Gpu,
    Interpreter,
    MachineFacts,
    Status,
)
from splatfix.plan import Advice, AlsoNeeded, OptionKind, Options, Plan
from splatfix.report import diagnosis
from splatfix.report.diagnosis_document import counts
from tests.screens import on_screen

FACTS = Facts(
    MachineFacts(
        "linux",
        "x86_64",
        distribution="Ubuntu 24.04",
        wsl=True,
        gpus=Fact((Gpu(0, "NVIDIA GeForce RTX 5080", cc="12.0"),), "NVML"),
        driver=Fact(Driver("575.57.08", "12.9"), "NVML"),
    ),
    EnvironmentFacts(torch=Fact(None, "", "torch is not installed in this environment")),
    splatfix="0.1.0",
)
LOUD = Finding(
    Status.FAIL,
    "Something [is] wrong.",
    evidence=(Evidence("nvcc", "[13.0]", "nvcc --version"),),
    remedy=(set_variable("A", "[b]"), say("Reboot.")),
    link="https://example.org/why",
    code="b-check",
    family="driver",
)


def shown(*findings: Finding, facts: Facts = FACTS, width: int = 60, **options: Any) -> str:
    return on_screen(diagnosis.show, facts, findings, width=width, **options)


def test_findings_of_one_kind_are_gathered_with_the_evidence_of_the_first() -> None:
    """glm stood there four times, and "radfoam needs it" six times."""
    facts = tuple(Evidence(f"fact {number}", "value", "road") for number in range(5))
    several = [
        replace(LOUD, summary=f"{name} is wrong.", evidence=facts, remedy=(say(f"Mend {name}."),))
        for name in ("one", "two", "three")
    ]
    text, everything = shown(*several), shown(*several, verbose=True)
    assert [text.count(word) for word in ("is wrong.", "Mend", "fact ", "3 more, evidence")] == [3, 1, 2, 1]
    assert [everything.count(word) for word in ("is wrong.", "Mend", "fact ")] == [3, 3, 15]


def test_what_install_mends_by_itself_is_no_problem() -> None:
    other = replace(LOUD, code="c-check", summary="Another is wrong.")
    options = Options((), (), (), (), advice=Advice(None, mended=(LOUD.code,)))
    warned = replace(LOUD, status=Status.WARN)
    text = shown(LOUD, warned, other, options=options)
    mended, _, problems = text.partition("Problems")
    assert mended.count(LOUD.code) == 1 and "$ export" not in mended and LOUD.code not in problems
    assert "c-check" in problems and "mended" not in text
    assert shown(warned, options=options, verbose=True).count("$ export") == shown(
        warned, verbose=True
    ).count("$ export")


def test_what_to_do_is_said_once() -> None:
    """The advice and the problem below it named the same commands."""
    needed = AlsoNeeded(LOUD.code, LOUD.summary, LOUD.remedy)
    text = shown(LOUD, options=Options((), (), (), advice=Advice(None, (needed,))))
    assert text.count("Reboot.") == 1 and text.count("export A=") == 1
    assert "nvcc --version" in text.partition("Problems")[2]
    build = Plan(OptionKind.REBUILD, "build")
    beside = Options((), (), (build,), advice=Advice(build, (needed,)))
    for text in (shown(LOUD, options=beside), shown(LOUD, replace(LOUD, code="c-check"), options=beside)):
        assert text.count("Reboot.") == 1 and text.partition("Problems")[2].count(LOUD.summary) >= 1
    assert "nvcc --version" in shown(LOUD, options=beside, verbose=True)
    colon = replace(LOUD, status=Status.WARN, remedy=(say("Set it first:"), LOUD.remedy[0]))
    assert "first:\n        $ " in shown(LOUD, colon, options=beside)


@pytest.mark.parametrize(
    ("statuses", "exit_code", "verdict"),
    [
        ((), Exit.OK, "✓ No problems found"),
        ((Status.PASS, Status.WARN, Status.WARN, Status.SKIP), Exit.OK, "✓ No problems found, 2 warnings"),
        ((Status.PASS, Status.UNKNOWN), Exit.UNDETERMINED, "? No problem found, but 1 check undetermined"),
        (
            (Status.UNKNOWN, Status.FAIL, Status.CRASH),
            Exit.FAILURE,
            "✗ 2 problems found, 1 not determined",
        ),
        ((Status.CRASH,), Exit.FAILURE, "✗ 1 problem found"),
    ],
)
def test_verdicts(statuses: tuple[Status, ...], exit_code: Exit, verdict: str) -> None:
    findings = tuple(Finding(status, "x", code="a-check") for status in statuses)
    assert shown(*findings).splitlines()[0] == verdict
    assert exit_code_of(findings) is exit_code
    assert sum(counts(findings).values()) == len(findings)


@pytest.mark.parametrize(
    ("prefix", "text", "expected"),
    [
        ("/home/me/conda/envs/gs", "/home/me/conda/envs/gs/lib/x.so here", "gs/lib/x.so here"),
        ("/home/me/conda/envs/gs", "at /home/me/conda/envs/gs", "at ~/conda/envs/gs"),
        ("/home/me/work/.venv", "/home/me/work/.venv/bin/python", "work/.venv/bin/python"),
        ("/home/me/work/.venv", "/home/me2/work/.venv/bin", "/home/me2/work/.venv/bin"),
        ("/usr", "/usr/bin/python", "/usr/bin/python"),
        (r"C:\Users\me\gs\env", r"C:\Users\me\gs\env\python.exe", r"gs\env\python.exe"),
    ],
)
def test_paths_are_shortened_to_the_environment_or_home(prefix: str, text: str, expected: str) -> None:
    interpreter = Interpreter("", "3.12.3", "CPython", "cp312", "linux_x86_64", prefix, prefix, "venv", ())
    facts = Facts(FACTS.machine, EnvironmentFacts(interpreter=Fact(interpreter, "test")), splatfix="0.1.0")
    assert diagnosis.environment_paths(facts)(text) == expected
