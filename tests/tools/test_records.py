"""The tools and records: kernels' code is counted, real builds are observed whole, an audit of nothing is no clean one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from splatfix.cli import app
from splatfix.core.runner import Completed
from splatfix.knowledge import Arch
from tests.files import put
from tools.audit import judge
from tools.builds import files_of, main, observe
from tools.cuda_kernels import RECORD
from tools.kernel_estimates import ASSUMPTIONS, estimates
from tools.sass import Loop, _kernels


def test_a_loop_is_what_comes_back_to_its_head() -> None:
    listing = Path(__file__).with_name("blend.sass").read_text(encoding="utf-8")
    kernel = dict(_kernels(listing))["blend"]
    assert (len(kernel.instructions), kernel.doubles(), kernel.atomics()) == (15, 1, 1)
    assert kernel.loops() == [Loop(instructions=10, shortest=8, steps=1, shuffles=1, atomics=1)]


@pytest.fixture(scope="module")
def record() -> Any:
    return json.loads(RECORD.read_text())


def test_the_estimates_follow_from_the_record(record: Any) -> None:
    assumptions = {name: part for name, part in ASSUMPTIONS.items() if name != "peers"}
    assert record["assumptions"] == assumptions
    made = estimates(record["architectures"], record["peers"]["architectures"])
    assert made == record["estimated_milliseconds"]
    slower = json.loads(json.dumps(record["architectures"]))
    for loop in slower["sm_120"]["blending"]["blend"]["loops"]:
        loop["instructions"] *= 2
    again = estimates(slower, record["peers"]["architectures"])
    assert again["RTX 5090"]["ours"]["in all"] > made["RTX 5090"]["ours"]["in all"]
    assert again["T4"] == made["T4"]


def test_what_was_asked_of_the_way_back_and_of_ssim(record: Any) -> None:
    """At most 60 instructions for a step with pixels that travel, and 13 KB of shared memory a block of SSIM."""
    for modules in record["architectures"].values():
        loops = modules["blending, colors only"]["blend_backward"]["loops"]
        steps = [loop["instructions"] / loop["steps"] for loop in loops if loop["shuffles"]]
        assert len(steps) == 2 and max(steps) <= 60
        for kernel in modules["ssim"].values():
            assert kernel["shared"] <= 13 << 10 and kernel["occupancy"] >= 0.75


def test_what_came_is_observed(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "new" / "sub").mkdir(parents=True)
    put(tmp_path, {"new/__init__.py": "", "of_a_dependency/__init__.py": ""})
    manifest = {"edits": ["cstdint"], "variables": {"TORCH_CUDA_ARCH_LIST": "12.0", "CC": "gcc"}}
    info = {"REQUESTED": "", "RECORD": "new/__init__.py,,\nnew-1.0.dist-info/RECORD,,\n"}
    put(tmp_path / "new-1.0.dist-info", {**info, "splatfix.json": json.dumps(manifest)})
    row = observe(Completed((), 0, "", "", 7.4), "splatfix install SOURCE", tmp_path, {"torch"}, tmp_path)
    assert (row["exit"], row["seconds"], row["libraries"]) == (0, 7, {})
    assert (row["edits"], row["variables"]) == (["cstdint"], {"TORCH_CUDA_ARCH_LIST": "12.0"})
    assert row["imports"].keys() == {"new"} and row["imports"]["new"] != "imported"


def test_an_attempt_leaves_source_and_environment_alone(tmp_path: Path) -> None:
    source, base = put(tmp_path / "source", {"setup.py": "import x\n"}), tmp_path / "env"
    (base / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    program = f"#!/bin/sh\necho 'Error: {base}' >&2\nexit 3\n"
    put(base, {"pyvenv.cfg": f"home = {base}\n", "bin/python": program})
    (base / "bin" / "python").chmod(0o755)
    (record := tmp_path / "record.json").write_text("{}")
    before = files_of(tmp_path / "source"), files_of(base)
    words = ["--label", "owner/name", "--python", str(base), "--with", "pip", "--record", str(record)]
    assert main([str(source), *words]) == 0
    assert (files_of(tmp_path / "source"), files_of(base)) == before
    (row,) = json.loads(record.read_text())["compared"]
    assert (row["pip"]["exit"], row["pip"]["checkout"]) == (3, "unchanged")
    assert row["pip"]["said"].startswith("Error:") and str(tmp_path) not in record.read_text()


FINE = {"name": "rich", "version": "15.0.0", "vulns": []}
BAD = {"name": "jinja2", "version": "2.10", "vulns": [{"id": "PYSEC-2019-217", "fix_versions": ["2.10.1"]}]}
SKIPPED = {
    "name": "torch",
    "skip_reason": "Dependency not found on PyPI and could not be audited: torch (2.13.0)",
}


@pytest.mark.parametrize(
    ("packages", "code"),
    [([FINE], 0), ([FINE, BAD], 1), ([FINE, SKIPPED], 0), ([BAD, SKIPPED], 1), ([SKIPPED], 3), ([], 3)],
)
def test_only_answers_count(packages: list[object], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert judge(Completed((), 0, json.dumps({"dependencies": packages}), "", 0.0)) == code
    said = capsys.readouterr().out
    assert ("torch" in said, "PYSEC-2019-217" in said) == (SKIPPED in packages, BAD in packages)


@pytest.mark.parametrize("said", ["", "{}", "[]", "no JSON"])
def test_no_answer_is_undetermined(said: str) -> None:
    assert judge(Completed((), 1, said, "ConnectionError", 0.0)) == 3


PATH = Path(__file__).parents[1] / "records" / "native_builds.json"
TEXT = PATH.read_text(encoding="utf-8")
BUILT: dict[str, Any] = json.loads(TEXT)
BUILDS: list[dict[str, Any]] = BUILT["builds"]
COMMANDS = [row for key in ("builds", "refused", "forced", "repaired", "provided") for row in BUILT[key]]


def name(row: dict[str, Any]) -> str:
    return f"{row['source']} {row['commit']}"


def targets(command: str) -> list[Arch]:
    return [Arch.parse(text) for text in re.findall(r"--target (\S+)", command)]


def carries(fatbin: list[str], target: Arch) -> bool:
    """Machine code for exactly this target; what is recorded here never leans on PTX."""
    return any(Arch.parse(text.removeprefix("sass ")) == target for text in fatbin)


@pytest.mark.parametrize("row", [*BUILDS, *BUILT["forced"], *BUILT["provided"]], ids=name)
def test_every_target_is_in_every_fatbin_and_nothing_is_said_to_compute(row: dict[str, Any]) -> None:
    assert row["fatbins"] and targets(row["command"])
    for target in targets(row["command"]):
        assert all(carries(fatbin, target) for fatbin in row["fatbins"])
    assert [text.split(":")[0] for text in row["not_reached"]] == ["computes"], "that needs a GPU"


def test_the_commands_still_exist() -> None:
    shown = CliRunner().invoke(app, ["install", "--help"], env={"COLUMNS": "120"}).output
    for row in COMMANDS:
        assert row["command"].startswith("splatfix install ")
        for option in re.findall(r"--[a-z-]+", row["command"]):
            assert option in shown, option


def test_nothing_of_the_machine_is_in_it() -> None:
    assert not re.search(r"/(work|root|home|tmp|usr|opt)/", TEXT)
