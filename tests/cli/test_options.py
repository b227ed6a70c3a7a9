"""Advice that ends with a splatfix command is for the environment that the person named."""

from __future__ import annotations

import pytest

from splatfix.cli.options import naming_python

TYPED = ["splatfix", "install", "x", "--python", "my env"]


@pytest.mark.parametrize(
    ("advice", "expected"),
    [
        ("splatfix revert --list", "splatfix revert --list --python 'my env'"),
        ("splatfix diagnose", "splatfix diagnose --python 'my env'"),
        (
            "For the drop-in of that name: splatfix install fused_ssim --backend pure",
            "For the drop-in of that name: splatfix install fused_ssim --backend pure --python 'my env'",
        ),
        ("splatfix install . --python other", "splatfix install . --python other"),
        ("splatfix install --resume, or the sources without --resume", None),
        ("Then install a CUDA 13 toolkit and call splatfix install again.", None),
        ("splatfix diagnose says what is in the way.", None),
        ("Name another environment with --python, or another entry.", None),
        ("pip install ninja", None),
    ],
)
def test_advice_names_the_environment(advice: str, expected: str | None) -> None:
    assert naming_python(advice, TYPED) == (expected or advice)
    assert naming_python(advice, ["splatfix", "install", "x", "--python=/env"]) == (
        expected or advice
    ).replace("'my env'", "/env")
    assert naming_python(advice, ["splatfix", "install", "x"]) == advice
