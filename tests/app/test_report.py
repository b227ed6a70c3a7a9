"""``splatfix report``: what was certified earlier is shown as it was then."""

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from splatfix import __version__
from splatfix.app.certify import run_and_report
from splatfix.certify import Certificate
from splatfix.certify.baseline import compare
from splatfix.certify.levels import reproduces
from splatfix.core.codec import to_json
from splatfix.core.files import sha256_of
from tests.certify.conftest import RESULT, SHORT, RecordedTrainer, result, subject
from tests.cli.test_documents import check
from tests.conftest import Splatfix
from tests.machines import facts_of
from tests.tables import data

TABLES = data(__file__)


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Certificate]]:
    """The report folder of the recorded run, and its certificate. It has a failed binary and options against that."""
    folder = tmp_path_factory.mktemp("certified") / "report"
    with pytest.MonkeyPatch.context() as patch:
        failed = RecordedTrainer(figurine=result(status="interrupted"))
        patch.setattr("splatfix.certify.engine.Runner", lambda: failed)
        # the machine that the tests run on may have no Pillow
        patch.setattr("splatfix.certify.subject.packages_obstacle", lambda *names: None)
        document = run_and_report(subject(SHORT, folder), facts_of("rtx-3090-and-5090"))
    assert document.options is not None
    yield folder, document.certificate


@pytest.fixture
def recorded(certified: tuple[Path, Certificate], tmp_path: Path) -> tuple[Path, Certificate]:
    """A copy of it, to be changed."""
    folder, certificate = certified
    return Path(shutil.copytree(folder, tmp_path / "report")), certificate


def test_a_certificate_is_shown_as_certify_gave_it(
    recorded: tuple[Path, Certificate], splatfix: Splatfix
) -> None:
    """In each form. The page says which pictures are gone."""
    folder, certificate = recorded
    for form, suffix in (("markdown", "md"), ("html", "html")):
        expected = (folder / f"certificate.{suffix}").read_text(encoding="utf-8")
        assert sha256_of(folder / "certificate.json") in expected
        done = splatfix("report", "show", folder / "certificate.json", "--format", form)
        assert (done.returncode, done.stderr, done.stdout) == (0, "", expected)
    written = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    done = splatfix("report", "show", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"NOT CERTIFIED: {certificate.summary}\n")
    assert f"Report: {folder / 'certificate.html'}" in done.stdout and "Suggested fix: " in done.stdout
    (folder / "certificate.html").unlink()
    (folder / "figurine" / "trainer.log").unlink()
    assert "Report:" not in splatfix("report", "show", folder).stdout
    page = splatfix("report", "show", folder, "--format", "html")
    assert page.stdout.startswith("<!DOCTYPE html>") and "figurine/trainer.log cannot be read" in page.stdout
    shown = check(json.loads(splatfix("report", "show", folder, "--json").stdout))
    assert (shown["command"], shown["exit_code"], shown["issued_by"]) == ("report show", 0, __version__)
    envelope, added = ("command", "exit_code", "page", "next_steps"), ("file", "issued_by", "sha256")
    assert {key: value for key, value in shown.items() if key not in (*envelope, *added)} == {
        key: value for key, value in written.items() if key not in envelope
    }


@pytest.mark.parametrize(("path", "value", "code"), TABLES["refused"])
def test_what_is_no_certificate_of_ours_is_refused(
    path: tuple[str | int, ...], value: Any, code: str, recorded: tuple[Path, Certificate], splatfix: Splatfix
) -> None:
    folder, _ = recorded
    change(folder, path, value)
    done = splatfix("report", "show", folder, "--format", "html")
    assert (done.returncode, done.stdout) == (2, "") and f"error ({code})" in done.stderr, done.stderr


def change(folder: Path, path: tuple[str | int, ...], value: Any) -> None:
    """Change one place of a certificate."""
    file = folder / "certificate.json"
    document = inner = json.loads(file.read_text(encoding="utf-8"))
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    file.write_text(json.dumps(document), encoding="utf-8")


def test_diff_says_what_a_baseline_says(
    recorded: tuple[Path, Certificate], splatfix: Splatfix, tmp_path: Path
) -> None:
    a, certificate = recorded
    b = tmp_path / "b"
    shutil.copytree(a, b)
    done = splatfix("report", "diff", a, b)
    assert done.returncode == 0 and done.stdout.startswith("✓ B reproduces A\n"), done.stdout
    assert "figurine: holds; speed" in done.stdout
    psnr = RESULT["heldout"]["psnr"]
    change(b, ("scenes", 0, "result", "heldout", "psnr"), psnr / 2)
    (run,) = certificate.scenes
    halved = dataclasses.replace(run.record.heldout, psnr=psnr / 2)
    scenes = (replace(run, record=dataclasses.replace(run.record, heldout=halved)),)
    expected = compare(scenes, certificate)
    found = check(json.loads(splatfix("report", "diff", a, b, "--json").stdout))
    assert (found["exit_code"], found["reproduces"]["reached"]) == (1, False)
    assert found["comparison"] == to_json(expected)
    assert found["reproduces"] == to_json(reproduces(expected, ()))
    marked = splatfix("report", "diff", a, b, "--format", "markdown").stdout
    assert (
        marked.startswith("# B does not reproduce A\n") and f"figurine worse: psnr {psnr / 2:.4g}" in marked
    )
    assert splatfix("report", "diff", b, a).returncode == 0, "better is no regression"


@pytest.mark.parametrize(("path", "value", "said"), TABLES["another_baseline"])
@pytest.mark.parametrize("changed", ["a", "b"])
def test_diff_refuses_what_a_baseline_refuses(
    changed: str,
    path: tuple[str, ...],
    value: Any,
    said: str,
    recorded: tuple[Path, Certificate],
    splatfix: Splatfix,
    tmp_path: Path,
) -> None:
    folders = {"a": recorded[0], "b": tmp_path / "b"}
    shutil.copytree(folders["a"], folders["b"])
    change(folders[changed], path, value)
    done = splatfix("report", "diff", folders["a"], folders["b"])
    assert (done.returncode, done.stdout) == (2, "") and "error (another-baseline)" in done.stderr, (
        done.stderr
    )
    if changed == "a" or not value:
        assert said in " ".join(done.stderr.split())
