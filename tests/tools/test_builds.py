"""The tool behind the record of real builds: what it reads from an attempt, and that it leaves what it was given alone."""

import json
from pathlib import Path

import pytest

from splatfix.core.runner import Completed
from tools.builds import files_of, first_error, main, observe, outcome, write_row

PIP = """\
  error: subprocess-exited-with-error
  × Preparing metadata (pyproject.toml) did not run successfully.
  │ exit code: 1
      OSError: Unknown compute capability.
error: metadata-generation-failed
"""


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (PIP, "OSError: Unknown compute capability."),
        ("/a/b/main.h:8:10: fatal error: x.h: No such file", "main.h:8:10: fatal error: x.h: No such file"),
        ("error (import-failed) x does not import", "error (import-failed) x does not import"),
        ("compiling error_model.cu\nall is well", ""),
        ("", ""),
    ],
)
def test_the_first_error_is_the_builds_own(output: str, said: str) -> None:
    assert first_error(output) == said


def test_what_came_is_observed(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "new" / "sub").mkdir(parents=True)
    (tmp_path / "new" / "__init__.py").touch()
    info = tmp_path / "new-1.0.dist-info"
    info.mkdir()
    manifest = {"edits": ["cstdint"], "variables": {"TORCH_CUDA_ARCH_LIST": "12.0", "CC": "gcc"}}
    (info / "REQUESTED").touch()
    (info / "RECORD").write_text("new/__init__.py,,\nnew-1.0.dist-info/RECORD,,\n")
    (tmp_path / "of_a_dependency").mkdir()
    (tmp_path / "of_a_dependency" / "__init__.py").touch()
    (info / "splatfix.json").write_text(json.dumps(manifest))
    row = observe(Completed((), 0, "", "", 7.4), "splatfix install SOURCE", tmp_path, {"torch"}, tmp_path)
    assert (row["exit"], row["seconds"], row["libraries"]) == (0, 7, {})
    assert (row["edits"], row["variables"]) == (["cstdint"], {"TORCH_CUDA_ARCH_LIST": "12.0"})
    assert row["imports"].keys() == {"new"} and row["imports"]["new"] != "imported"


@pytest.mark.parametrize(
    ("code", "said", "mark"),
    [(1, "no answer within 9 s", "✗"), (None, "no answer within 9 s", "–"), (None, "it lacks one", "✗")],
)
def test_what_nobody_waited_for_has_not_failed(code: int | None, said: str, mark: str) -> None:
    assert outcome({"exit": code, "said": said}) == f"{mark} {said}"


def test_attempts_at_one_source_share_a_row(tmp_path: Path) -> None:
    (record := tmp_path / "record.json").write_text('{"builds": []}')
    for how, code in (("pip", 1), ("after", 0), ("pip", 2)):
        write_row(record, "compared", "owner/name", "abc", how, {"exit": code})
    (row,) = json.loads(record.read_text())["compared"]
    assert (row["pip"]["exit"], row["after"]["exit"]) == (2, 0)


def test_an_attempt_leaves_source_and_environment_alone(tmp_path: Path) -> None:
    source, base = tmp_path / "source", tmp_path / "env"
    source.mkdir()
    (source / "setup.py").write_text("import x\n")
    site = base / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (base / "bin").mkdir()
    (base / "pyvenv.cfg").write_text(f"home = {base}\n")
    (base / "bin" / "python").write_text(f"#!/bin/sh\necho 'Error: {base}' >&2\nexit 3\n")
    (base / "bin" / "python").chmod(0o755)
    (record := tmp_path / "record.json").write_text("{}")
    before = files_of(tmp_path / "source"), files_of(base)
    words = ["--label", "owner/name", "--python", str(base), "--with", "pip", "--record", str(record)]
    assert main([str(source), *words]) == 0
    assert (files_of(tmp_path / "source"), files_of(base)) == before
    (row,) = json.loads(record.read_text())["compared"]
    assert (row["pip"]["exit"], row["pip"]["checkout"]) == (3, "unchanged")
    assert row["pip"]["said"].startswith("Error:") and str(tmp_path) not in record.read_text()
