"""What must be there before anything runs, said by each command in its own words."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from splatfix.certify import Request, certify, verify
from splatfix.certify.prepare import VERIFY, require_packages
from splatfix.certify.suites import SUITES
from splatfix.core.errors import SplatfixError
from splatfix.facts import EnvironmentFacts, Fact
from tests.plan.machines import INTERPRETER, machine


def test_verify_without_torch_speaks_of_kernels_and_not_of_certificates(empty_venv: Path) -> None:
    with pytest.raises(SplatfixError) as caught:
        verify(str(empty_venv), "cpu")
    error = caught.value
    assert (error.code, int(error.exit_code)) == ("environment-not-ready", 3)
    said = " ".join((error.what, error.meaning, *error.todo))
    assert "lacks torch, so none of its kernels can be computed" in said
    assert "splatfix verify --python" in said
    assert "certif" not in said and "training" not in said


def test_certify_without_torch_speaks_of_training(empty_venv: Path, tmp_path: Path) -> None:
    with pytest.raises(SplatfixError) as caught:
        certify(Request(str(empty_venv), SUITES["quick"], tmp_path / "out"))
    said = " ".join((caught.value.what, caught.value.meaning, *caught.value.todo))
    assert "lacks torch and numpy and pillow, so no training can run in it" in said
    assert "Nothing was certified or refused" in said and "splatfix certify --python" in said


def test_splatfixs_own_environment_is_not_the_first_to_be_filled() -> None:
    bare = EnvironmentFacts(
        interpreter=Fact(INTERPRETER, "test"),
        distributions=Fact((), "test"),
        torch_installed=Fact(False, "test"),
    )
    known = dataclasses.replace(machine(), environment=bare)
    for python, first in (
        (sys.executable, "splatfix verify --python"),
        ("/env/bin/python", "-m pip install torch"),
    ):
        with pytest.raises(SplatfixError) as caught:
            require_packages(known, python, VERIFY)
        assert caught.value.code == "environment-not-ready" and first in caught.value.todo[0].line()
        assert len(caught.value.todo) == 2
