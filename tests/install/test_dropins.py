"""Drop-ins, for real: through the command line, in an environment with torch, listed and removed by pip."""

from __future__ import annotations

import ast
import re
import sys
import zipfile
from pathlib import Path

import pytest

from splatfix.facts import gather
from splatfix.install import revert
from splatfix.install.dropins import make_dropin_wheel
from splatfix.install.environment import Environment
from splatfix.install.wheels import open_wheel
from splatfix.knowledge.dropins import DROPINS
from tests.cli.conftest import Document

from .environments import make_environment, pip, run_in, snapshot

pytest.importorskip("torch")


CHECK = """
import torch
from fused_ssim import allowed_padding, fused_ssim, fused_ssim3d
from simple_knn._C import distCUDA2
torch.manual_seed(0)
a, b = torch.rand(1, 3, 24, 32, requires_grad=True), torch.rand(1, 3, 24, 32)
value = fused_ssim(a, b, padding="valid", train=True)
value.backward()
assert a.grad.abs().sum() > 0 and allowed_padding == ["same", "valid"]
assert fused_ssim3d(torch.rand(1, 1, 12, 12, 12), torch.rand(1, 1, 12, 12, 12)).ndim == 0
try:
    fused_ssim(a, b, padding="half")
except AssertionError:
    pass
else:
    raise SystemExit("a padding that the original refuses was taken")
points = torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 2, 0], [0, 0, 3]])
print(float(fused_ssim(b, b)), [round(x, 4) for x in distCUDA2(points).tolist()])
"""


def test_drop_ins_from_the_command_line_to_removal(tmp_path: Path, document: Document) -> None:
    target = make_environment(tmp_path / "env", torch=True)
    before = snapshot(target)
    names, python = ("fused_ssim", "simple-knn"), ("--python", target.python)
    outcome = document("install", *names, "--backend", "pure", *python)["outcome"]
    assert [item["subject"] for item in outcome["items"]] == ["fused-ssim", "simple-knn"]
    assert outcome["items"][1]["modules"] == ["simple_knn", "simple_knn._C"]

    # mean squared distance to the three others, by hand
    assert run_in(target, CHECK) == "1.0 [4.6667, 5.3333, 7.3333, 10.6667]"
    listed = pip(target, "list").stdout
    assert re.search(r"fused-ssim +0\+splatfix\.", listed) and "simple-knn" in listed
    seen = {
        item.name: item.made_by_splatfix
        for item in gather(target.python).environment.distributions.value or ()
    }
    assert seen["fused_ssim"] == seen["simple_knn"] == "drop-in"

    revert(target.python)
    assert snapshot(target) == before


@pytest.mark.slow
def test_pip_can_uninstall_a_drop_in(environment: Environment, tmp_path: Path) -> None:
    for host in {dropin.host for dropin in DROPINS if dropin.host}:
        package = environment.purelib / host  # what lies in another's folder finds that other there
        package.mkdir()
        (package / "__init__.py").touch()
    before = snapshot(environment)
    for dropin in DROPINS:
        path = make_dropin_wheel(dropin, "0+splatfix.1", tmp_path / "wheels")
        assert pip(environment, "install", "--no-index", "--no-deps", str(path)).ok
        assert pip(environment, "uninstall", "-y", dropin.distribution).ok
    assert snapshot(environment) == before


def test_a_drop_in_stands_alone(tmp_path: Path) -> None:
    """Nothing in it needs splatfix: its files import torch, the standard library and each other."""
    known = {"torch", "scipy", "triton", "numpy", *sys.stdlib_module_names}
    for dropin in DROPINS:
        wheel = open_wheel(make_dropin_wheel(dropin, "0+splatfix.1", tmp_path))
        with zipfile.ZipFile(wheel.path) as archive:
            sources = [archive.read(name) for name in wheel.members if name.endswith(".py")]
        for source in sources:
            names: list[str] = []
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Import):
                    names += [item.name for item in node.names]
                elif isinstance(node, ast.ImportFrom) and node.level == 0:
                    names.append(node.module or "")
            assert {name.partition(".")[0] for name in names} <= {*known, dropin.host}, dropin.name
