"""``splatfix report``: what was certified earlier is shown as it was then."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import splatfix.certify
from splatfix.app.certify import run_and_report
from splatfix.certify import Certificate, Request
from splatfix.report.forms import FORMS
from tests.certify.conftest import SHORT, RecordedTrainer
from tests.machines import facts_of

Splatfix = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Certificate]:
    """The report folder of the recorded run, and its certificate. It has a failed binary and options against that."""
    certify = partial(splatfix.certify.certify, runner=RecordedTrainer())
    monkeypatch.setattr(splatfix.certify, "certify", certify)
    monkeypatch.setattr(
        "splatfix.certify.run.require_packages", lambda *words: None
    )  # the machine has no Pillow
    request = Request(sys.executable, SHORT, tmp_path / "report")
    result, options = run_and_report(request, facts=facts_of("rtx-3090-and-5090"))
    assert options is not None
    return request.out, result


@pytest.mark.parametrize("form", ["markdown", "html", *FORMS])
def test_a_certificate_is_shown_as_certify_gave_it(
    form: str, recorded: tuple[Path, Certificate], splatfix: Splatfix
) -> None:
    folder, certificate = recorded
    kept = {"markdown": "certificate.md", "html": "certificate.html"}.get(form)
    expected = (folder / kept).read_text(encoding="utf-8") if kept else FORMS[form](certificate)
    done = splatfix("report", "show", folder / "certificate.json", "--format", form)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == expected
