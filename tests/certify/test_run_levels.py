"""Run levels: a certificate of one skips nothing of it, and claims nothing beyond it."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from smoke_trainer.data.find import PUBLIC_SCENES
from splatfix.app.certify import exit_code_of, next_step
from splatfix.certify import (
    SUITES,
    Certificate,
    CertifyRequest,
    Criterion,
    KernelCheck,
    Outcome,
    Suite,
    Verdict,
    certify,
    data_suite,
    smoke_subject,
)
from splatfix.certify.certificate import diagnosed, write_certificate
from splatfix.certify.subject import published_method
from splatfix.core.proof import RungName
from splatfix.core.runner import Completed, Runner
from splatfix.model import Facts, Finding, Status
from splatfix.report.certificate import CertificateDocument, certificate_page, markdown, show
from tests.certify.conftest import RESULT, RecordedKernels, RecordedTrainer, reached, subject
from tests.certify.test_baseline import RUN
from tests.certify.test_scenes import lay_out
from tests.plan.machines import refused
from tests.tables import data

GOOD = Finding(Status.PASS, "torch 2.13", code="torch-missing", family="torch")
WARNING = Finding(Status.WARN, "odd", code="import-shadowing", family="environment")
UNKNOWN = Finding(Status.UNKNOWN, "not readable", code="unreadable-file", family="environment")
BROKEN = Finding(Status.FAIL, "no numpy 2", code="numpy2-abi-mismatch", family="torch")
OLD_DRIVER = Finding(Status.FAIL, "450 is too old", code="driver-too-old", family="driver")
NO_CODE = Finding(Status.FAIL, "sm_80 only", code="no-kernel-image", family="extension")

At = Callable[..., Certificate]


class Nothing(Runner):
    """Every process is one too many."""

    def run(self, argv: Sequence[str | Path], **options: Any) -> Completed:
        raise AssertionError(argv)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """What the diagnosis finds, to be changed."""
    findings = [GOOD]
    monkeypatch.setattr("splatfix.certify.certificate.run_checks", lambda context: tuple(findings))
    return findings


@pytest.fixture
def at(tmp_path: Path, known: Facts, found: list[Finding]) -> At:
    """The certificate of a level, here."""

    def run(level: int | None, runner: Any = None, suite: Suite | None = None) -> Certificate:
        runner = runner or (Nothing() if level == 1 else RecordedKernels())
        return certify(subject(suite or Suite(), tmp_path, level=level), known, runner=runner)

    return run


def test_the_first_runs_no_process_and_claims_nothing_computed(at: At) -> None:
    certificate = at(1)
    assert (certificate.verdict, certificate.level) == (Verdict.CERTIFIED, 1)
    assert certificate.kernels == () and certificate.scenes == ()
    assert {name for name, shown in reached(certificate.proof).items() if shown} == {RungName.RESOLVED}
    assert {item.code for item in certificate.diagnosis} == {"torch-missing"}
    assert certificate.repeat.argv[-4:] == ("--level", "1", "--device", "cpu")
    step = next_step(certificate)
    assert step is not None and step.command is not None and "--level" in step.command.argv


@pytest.mark.parametrize(
    ("finding", "verdict", "code"),
    [
        (BROKEN, Verdict.NOT_CERTIFIED, 1),
        (replace(BROKEN, status=Status.CRASH), Verdict.NOT_CERTIFIED, 1),
        (UNKNOWN, Verdict.UNDETERMINED, 3),
        (WARNING, Verdict.CERTIFIED, 0),
        (replace(BROKEN, status=Status.SKIP), Verdict.CERTIFIED, 0),
        (OLD_DRIVER, Verdict.CERTIFIED, 0),
        (NO_CODE, Verdict.CERTIFIED, 0),
    ],
    ids=lambda value: getattr(value, "code", None),
)
def test_a_finding_decides(
    at: At, found: list[Finding], finding: Finding, verdict: Verdict, code: int
) -> None:
    """A failure refuses for that and nothing else, what is not known leaves the level open, and a GPU says nothing of a CPU."""
    found.append(finding)
    certificate = at(1)
    assert certificate.verdict is verdict
    assert exit_code_of(certificate) == code
    reasons = (f"diagnosis: {finding.code}: {finding.summary}.",)
    assert certificate.reasons == (reasons if verdict is Verdict.NOT_CERTIFIED else ())


def test_findings_about_gpus_matter_on_a_gpu() -> None:
    failed = {item.code for item in diagnosed((GOOD, OLD_DRIVER, NO_CODE)) if item.outcome is Outcome.FAILED}
    assert failed == {"driver-too-old", "no-kernel-image"}
    (item,) = diagnosed((WARNING,))
    assert item == Criterion("import-shadowing", Outcome.NOT_MEASURED, "warning: odd", item.required)
    assert item.required


def test_a_wrong_kernel_refuses_the_second(at: At) -> None:
    class Wrong(RecordedKernels):
        def run(self, argv: Sequence[str | Path], **options: Any) -> Completed:
            done = super().run(argv, **options)
            wrong = Path(str(argv[1])).name == "kernel_probe.py" and argv[2] == "knn"
            stdout = done.stdout.replace('"met"', '"failed"') if wrong else done.stdout
            return replace(done, stdout=stdout)

    certificate = at(2, Wrong())
    assert certificate.verdict is Verdict.NOT_CERTIFIED
    assert len(certificate.reasons) == 1 and certificate.reasons[0].startswith("kernel: knn: ")


def test_a_kernel_that_was_not_measured_leaves_a_level_open(
    tmp_path: Path, known: Facts, found: list[Finding]
) -> None:
    absent = KernelCheck("ssim", "fused_ssim", Outcome.NOT_MEASURED, detail="not installed")
    native = KernelCheck("knn", "simple_knn._C", Outcome.NOT_MEASURED, detail="needs a GPU", kind="native")
    for level, kernel, verdict in (
        (2, absent, Verdict.CERTIFIED),
        (2, native, Verdict.UNDETERMINED),
        (None, native, Verdict.CERTIFIED),
    ):
        asked = subject(Suite(), tmp_path, level=level)
        asked.kernels = (replace(native, outcome=Outcome.MET), kernel)
        made = write_certificate(asked, known, (RUN,) * (not level))
        assert made.verdict is verdict
        assert ("Left open: not measured: simple_knn._C." in made.summary) is (
            verdict is Verdict.UNDETERMINED
        )


def test_the_third_is_the_quick_suite_and_the_diagnosis(at: At, found: list[Finding]) -> None:
    certificate = at(3, RecordedTrainer(), SUITES["quick"])
    assert certificate.verdict is Verdict.CERTIFIED, certificate.reasons
    assert "--suite" not in certificate.repeat.argv
    found.append(BROKEN)
    bad = at(3, RecordedTrainer(), SUITES["quick"])
    assert bad.verdict is Verdict.NOT_CERTIFIED and len(bad.reasons) == 1
    # the same without a level is judged as before
    plain = at(None, RecordedTrainer(), SUITES["quick"])
    assert (plain.verdict, plain.level) == (Verdict.CERTIFIED, None)
    assert [item.code for item in plain.diagnosis] == ["code-as-installed"]


def test_the_fourth_needs_every_public_scene(at: At, tmp_path: Path) -> None:
    """What is missing of the thirteen is named, and the level is not passed, however well the others trained."""
    lay_out(tmp_path / "data", garden="figurine")
    suite = data_suite(tmp_path / "data", "cpu", RESULT["iterations"])
    certificate = at(4, RecordedTrainer(), suite)
    assert (certificate.verdict, exit_code_of(certificate)) == (Verdict.UNDETERMINED, 3)
    assert certificate.summary.count(" was not trained") == len(PUBLIC_SCENES) - 1
    plain = at(None, RecordedTrainer(), suite)
    assert plain.verdict is Verdict.CERTIFIED, "without a level, they are skipped as before"


@pytest.mark.parametrize(
    ("asked", "device", "length", "strategy"), data(__file__)["the_length_of_public_scenes"]
)
def test_the_length_of_public_scenes(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    known: Facts,
    asked: dict[str, Any],
    device: str,
    length: int | None,
    strategy: str,
) -> None:
    """A level's own is not shortened by what it is held against; None leaves it to the device."""
    given: list[Any] = []

    def listed(root: Path, device: str, iterations: int | None, *rest: Any, **_: Any) -> Suite:
        given.append(iterations)
        return Suite("data", ("garden",), 60.0, iterations, None, root)

    monkeypatch.setattr("splatfix.certify.subject.data_suite", listed)
    request = CertifyRequest(data=tmp_path, device=device, **asked)
    suite = smoke_subject(request, "python", known, published_method(request)).suite
    assert (given, suite.iterations, suite.strategy) == ([length], length, strategy)


@pytest.mark.parametrize(
    ("level", "title"), [(1, "Diagnosis passed (run level 1)"), (2, "Kernels verified (run level 2)")]
)
def test_every_form_without_a_scene(
    at: At, tmp_path: Path, known: Facts, found: list[Finding], level: int, title: str
) -> None:
    """What trained nothing is not called certified, in none of them."""
    passed = at(level)
    levels = reached(passed.proof)
    assert passed.verdict is Verdict.CERTIFIED and passed.scenes == ()
    assert (levels[RungName.COMPUTES], levels[RungName.TRAINS]) == (True if level == 2 else None, None)
    text = io.StringIO()
    document = CertificateDocument(certificate=passed, facts=known, folder=str(tmp_path))
    show(Console(file=text, width=200), document)
    page, report = certificate_page(document), markdown(document)
    assert 'id="diagnosis"' in page and 'id="scenes"' not in page
    for said in (text.getvalue(), report, page):
        assert title in said and "certified" not in said.lower()
    assert "## Diagnosis" in report and ("## Kernels" in report) is (level == 2)
    found.extend((WARNING, BROKEN))
    certificate = at(level)
    report = markdown(replace(document, certificate=certificate))
    assert "# splatfix certificate: NOT CERTIFIED\n" in report
    of_code = level - 1  # the recorded kernels tell nothing of what they loaded
    outcomes = [item.outcome for item in certificate.diagnosis]
    assert (len(outcomes), outcomes.count(Outcome.FAILED), outcomes.count(Outcome.MET)) == (3 + of_code, 1, 1)
    assert "numpy2-abi-mismatch" in report


def test_a_gpu_that_is_not_there_is_an_error(tmp_path: Path, known: Facts, found: list[Finding]) -> None:
    gpus = replace(known.machine, gpus=replace(known.machine.gpus, value=()))
    asked = subject(Suite(), tmp_path, level=1, device="cuda")
    error = refused(certify, asked, replace(known, machine=gpus), runner=Nothing())
    assert (error.code, int(error.exit_code)) == ("no-gpu", 3)
    assert not (tmp_path / "certificate.json").exists()
