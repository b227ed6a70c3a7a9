"""A machine made of a few raw inputs, for probes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from splatfix.facts.system.recorded import RecordedSystem, file_name

MachineOf = Callable[..., RecordedSystem]


@pytest.fixture
def machine_of(tmp_path: Path) -> MachineOf:
    """``machine_of(files={"/proc/meminfo": "..."}, commands={("git", "--version"): "git version 2"})``."""

    def make(
        system: str = "linux",
        *,
        files: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        commands: Mapping[tuple[str, ...], str | dict[str, Any]] | None = None,
        nvml: dict[str, Any] | None = None,
        **paths: Any,
    ) -> RecordedSystem:
        folder = tmp_path / "machine"
        folder.mkdir()
        about = {
            "format": 1,
            "source": "",
            "system": system,
            "machine": "x86_64",
            "python": "py",
            "own_python": "py",
        }
        answers = [
            {"argv": list(argv), **(said if isinstance(said, dict) else {"stdout": said})}
            for argv, said in (commands or {}).items()
        ]
        parts = {"machine": about, "env": dict(env or {}), "paths": paths, "commands": answers}
        if nvml is not None:
            parts["nvml"] = nvml
        for name, part in parts.items():
            (folder / f"{name}.json").write_text(json.dumps(part))
        for path, text in (files or {}).items():
            place = folder / "files" / file_name(path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        return RecordedSystem(folder)

    return make
