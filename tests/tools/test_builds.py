"""The tool behind the record of real builds: what it reads from an attempt, and that it leaves what it was given alone."""

import json
from pathlib import Path

from splatfix.core.runner import Completed
from tools.builds import files_of, main, observe


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
