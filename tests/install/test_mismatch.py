"""``--force-cuda-mismatch``: torch's check is silenced for one build's processes, torch's files stay, the wheel is branded."""

from __future__ import annotations

import dataclasses
import json
import zipfile
from pathlib import Path

import pytest

from splatfix.core.errors import SplatfixError
from splatfix.core.runner import ProcessRunner
from splatfix.facts import gather
from splatfix.install import Journal, execute
from splatfix.install.environment import Environment
from splatfix.install.wheels import MANIFEST
from splatfix.plan import BuildWheel, InstallPlan, Request
from tests.plan.machines import make_plan

from .environments import snapshot, write_extension
from .test_cli import fake_torch

# As torch has it: BuildExtension calls the module's own function by its global name.
REFUSES = """
def _check_cuda_version(compiler_name, compiler_version):
    raise RuntimeError("The detected CUDA version (12.8) mismatches the version that was used to compile PyTorch (13.0)")

def build_extensions():
    _check_cuda_version("g++", None)
"""
WORDS = "compiled with CUDA 12.8, torch is built with CUDA 13.0"


@pytest.fixture
def source(environment: Environment, tmp_path: Path) -> Path:
    fake_torch(environment, "2.11.0+cu130", "13.0")
    (environment.purelib / "torch" / "utils" / "__init__.py").write_text("")
    with (environment.purelib / "torch" / "utils" / "cpp_extension.py").open("a") as file:
        file.write(REFUSES)
    folder = write_extension(tmp_path / "source")
    setup = folder / "setup.py"
    setup.write_text(
        "from torch.utils import cpp_extension\ncpp_extension.build_extensions()\n" + setup.read_text()
    )
    return folder


def planned(target: Environment, source: Path, mismatch: str) -> tuple[InstallPlan, object]:
    facts = gather(target.python)
    made = make_plan(Request((str(source),), ("sm_120",)), facts)
    actions = tuple(
        dataclasses.replace(action, cuda_mismatch=mismatch) if isinstance(action, BuildWheel) else action
        for action in made.steps
    )
    return dataclasses.replace(made, actions=actions), facts


def test_torch_refuses_unless_it_is_forced(environment: Environment, source: Path) -> None:
    plan, facts = planned(environment, source, "")
    with pytest.raises(SplatfixError) as caught:
        execute(plan, facts)  # type: ignore[arg-type]
    assert "mismatches the version" in caught.value.what + caught.value.meaning


def test_forced_in_the_child_only_and_branded(environment: Environment, source: Path) -> None:
    torch_before = {name: held for name, held in snapshot(environment).items() if "/torch/" in name}
    plan, facts = planned(environment, source, WORDS)
    outcome = execute(plan, facts)  # type: ignore[arg-type]

    log = (Path(outcome.log) / "build-tiny_probe.log").read_text()
    assert "torch's check of the CUDA version is silenced" in log
    now = {name: held for name, held in snapshot(environment).items() if "/torch/" in name}
    assert now == torch_before, "torch's files were touched"
    child = ProcessRunner().run(
        [environment.python, "-B", "-c", "import torch.utils.cpp_extension as c; c.build_extensions()"],
        timeout=60.0,
    )
    assert "mismatches the version" in child.stderr, "the check stayed silenced after the build"

    entry = Journal(environment.state_folder).entries()[-1]
    assert entry.request["cuda_mismatch"] == WORDS
    (wheel,) = (Path(outcome.log) / "wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        member = next(name for name in archive.namelist() if name.endswith(MANIFEST))
        manifest = json.loads(archive.read(member))
        assert manifest["cuda_mismatch"] == WORDS
        assert manifest["built_with"]["torch"] == "2.11.0+cu130 13.0", (
            "diagnose cannot tell what it was built for"
        )
        assert manifest["built_with"]["setuptools"]
    assert list(environment.purelib.glob(f"tiny_probe-*.dist-info/{MANIFEST}")), "the mark was not installed"
