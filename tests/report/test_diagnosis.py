"""The diagnosis and the plan of an installation on the terminal: loud findings with evidence and way out, nothing swallowed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.app.diagnose import exit_code_of
from splatfix.core.errors import Exit
from splatfix.core.step import say, set_variable
from splatfix.install.outcome import Restored, RevertOutcome
from splatfix.model import Driver, EnvironmentFacts, Evidence, Fact, Facts, Finding, Gpu, MachineFacts, Status
from splatfix.model.option import Advice, AlsoNeeded
from splatfix.model.steps import Reason
from splatfix.plan import BuildWheel, OptionKind, Options, Plan
from splatfix.report.diagnosis import DiagnosisDocument, counts, show
from splatfix.report.installation import RevertDocument, show_plan, show_revert
from tests.archs import request_for
from tests.checks.test_packages import package
from tests.plan.machines import cuda_source, machine, make_plan, rasterizer_source
from tests.plan.test_parts import with_rasterizer
from tests.screens import on_screen

_GPU = Fact((Gpu(0, "NVIDIA GeForce RTX 5080", cc="12.0"),), "NVML")
_DRIVER = Fact(Driver("575.57.08", "12.9"), "NVML")
FACTS = Facts(
    MachineFacts("linux", "x86_64", distribution="Ubuntu 24.04", wsl=True, gpus=_GPU, driver=_DRIVER),
    EnvironmentFacts(torch=Fact(None, "", "torch is not installed in this environment")),
    splatfix="0.1.0",
)
LOUD = Finding(
    Status.FAIL, "Something [is] wrong.", code="b-check", family="driver", link="https://example.org/why"
)
LOUD = replace(LOUD, evidence=(Evidence("nvcc", "[13.0]", "nvcc --version"),))
LOUD = replace(LOUD, remedy=(set_variable("A", "[b]"), say("Reboot.")))


def shown(*findings: Finding, options: Options | None = None, verbose: bool = False) -> str:
    document = DiagnosisDocument(facts=FACTS, findings=findings, options=options)
    return on_screen(show, document, width=60, verbose=verbose)


def test_findings_of_one_check_have_the_evidence_of_the_first() -> None:
    """glm stood there four times, and "radfoam needs it" six times."""
    facts = tuple(Evidence(f"fact {number}", "value", "road") for number in range(5))
    several = [replace(LOUD, summary=f"{name} is wrong.", evidence=facts) for name in ("one", "two", "three")]
    text, everything = shown(*several), shown(*several, verbose=True)
    assert [text.count(word) for word in ("is wrong.", "Reboot.", "fact ")] == [3, 1, 2]
    assert [everything.count(word) for word in ("is wrong.", "Reboot.", "fact ")] == [3, 3, 15]


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
    assert "nvcc: [13.0]" in text.partition("Problems")[2]
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
        ((), Exit.UNDETERMINED, "? Nothing was judged: nothing to look at here"),
        ((Status.PASS, Status.WARN, Status.WARN, Status.SKIP), Exit.OK, "✓ No problems found, 2 warnings"),
        (
            (Status.PASS, Status.UNKNOWN),
            Exit.UNDETERMINED,
            "? No problem found in what could be told, 1 not determined",
        ),
        ((Status.UNKNOWN, Status.FAIL, Status.CRASH), Exit.FAILURE, "✗ 2 problems found, 1 not determined"),
        ((Status.CRASH,), Exit.FAILURE, "✗ 1 problem found"),
    ],
)
def test_verdicts(statuses: tuple[Status, ...], exit_code: Exit, verdict: str) -> None:
    findings = tuple(Finding(status, "x", code="a-check") for status in statuses)
    assert shown(*findings).splitlines()[0] == verdict
    assert exit_code_of(findings) is exit_code
    assert sum(counts(findings).values()) == len(findings)


def drawn(draw: Callable[..., None], subject: object, **options: Any) -> str:
    return on_screen(draw, subject, width=1 << 16, **options)


def test_two_builds_of_one_version_differ_in_words() -> None:
    origins = {"removed_origin": "built from /a", "restored_origin": "drop-in v1"}
    items = (
        Restored("dgr", "0.0.0", "0.0.0", **origins),
        Restored("dgr", "0.0.0", "0.0.0", removed_origin="built from /a"),
        Restored("dgr", "1.0", "0.9", **origins),
        Restored("dgr", "1.0", ""),
    )
    reverted = RevertDocument(environment="/env", outcomes=(RevertOutcome("0001", "/env", items),))
    assert drawn(show_revert, reverted).splitlines()[1:] == [
        "  dgr: 0.0.0 (built from /a) → 0.0.0 (drop-in v1)",
        "  dgr: 0.0.0 (built from /a) → 0.0.0 (not by splatfix)",
        "  dgr: 1.0 → 0.9",
        "  dgr: 1.0 → not installed, as before",
    ]


def test_no_line_names_hundreds_of_files(tmp_path: Path) -> None:
    source = cuda_source(tmp_path / "big")
    for number in range(90):
        (source / f"a_long_name_of_a_kernel_{number}.cu").write_text("float x = FLT_MAX;")
    plan = make_plan(request_for((str(source),), ("sm_120",)), machine())
    (build,) = (step for step in plan.steps if isinstance(step, BuildWheel))
    assert max(len(edit.files) for edit in build.edits) >= 90
    assert max(map(len, drawn(show_plan, plan, why=True).splitlines())) < 500


def test_the_plan_of_many_extensions_says_each_thing_once(tmp_path: Path) -> None:
    """torch-ngp's five took 62 lines, with the same six variables under each."""
    folders = [cuda_source(tmp_path / name, name, '"-std=c++14"') for name in ("aa", "bb", "cc", "dd", "ee")]
    plan = make_plan(request_for(tuple(map(str, folders)), ("sm_120",)), machine())
    text = drawn(show_plan, plan, next_steps=[say("Install it")])
    assert len(text.splitlines()) <= 20
    assert text.count("TORCH_CUDA_ARCH_LIST=") == text.count("CUDA_HOME=") == 1
    assert drawn(show_plan, plan, verbose=True).count("TORCH_CUDA_ARCH_LIST=") == 5
    assert "TORCH_CUDA_ARCH_LIST=12.0" in text and "edit cxx-standard-17" in text
    assert len(drawn(show_plan, plan).splitlines()) <= 12


def test_plan_shows_a_replaced_rasterizer_of_other_stack(tmp_path: Path) -> None:
    source = rasterizer_source(tmp_path / "dgr", "mcmc")
    for variant, is_other in (("mip", True), ("mcmc", False)):
        plan = make_plan(request_for((str(source),), ("sm_120",)), with_rasterizer(package(variant)))
        assert ("Mip-Splatting" in drawn(show_plan, plan)) is is_other


def test_a_plan_without_steps_says_why_nothing_is_to_do() -> None:
    """``--backend auto`` where what is installed serves, and nothing can be built."""
    reasons, kind = (Reason("it serves"),), OptionKind.KEEP
    plan = Plan(kind, kind.title(), steps=(), reasons=reasons, python="p", prefix="/env")
    assert "because it serves" in drawn(show_plan, plan)
