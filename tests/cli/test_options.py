"""Advice that is a splatfix command is for the environment that the person named."""

from __future__ import annotations

import pytest

from splatfix.cli.process import naming_python
from splatfix.core.step import Step, run, say

TYPED = ["splatfix", "install", "x", "--python", "my env"]


@pytest.mark.parametrize(
    ("advice", "added"),
    [
        (run("splatfix", "revert", "--list"), True),
        (run("splatfix", "diagnose"), True),
        (run("splatfix", "install", "fused_ssim", "--backend", "pure", text="For the drop-in"), True),
        (run("splatfix", "install", ".", "--python", "other"), False),
        (run("splatfix", "cache", "list"), False),
        (say("splatfix diagnose"), False),
        (run("pip", "install", "ninja"), False),
    ],
)
def test_advice_names_the_environment(advice: Step, added: bool) -> None:
    named = naming_python(advice, TYPED)
    assert named.text == advice.text
    if not added:
        assert named == advice
        return
    assert named.command and advice.command
    assert named.command.argv == (*advice.command.argv, "--python", "my env")
    again = naming_python(advice, ["splatfix", "install", "x", "--python=/env"])
    assert again.command and again.command.argv[-2:] == ("--python", "/env")
    assert naming_python(advice, ["splatfix", "install", "x"]) == advice
