"""A machine made of a few raw inputs, for probes."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from splatfix.core.codec import from_json
from splatfix.facts.system.playback import PlaybackSystem, RawMachine

MachineOf = Callable[..., PlaybackSystem]


@pytest.fixture
def machine_of() -> MachineOf:
    """``machine_of(files={"/proc/meminfo": "..."}, commands={"git --version": "git version 2"})``."""

    def make(
        system: str = "linux",
        *,
        files: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        commands: Mapping[str | tuple[str, ...], str | dict[str, Any]] | None = None,
        nvml: dict[str, Any] | None = None,
        **paths: Any,
    ) -> PlaybackSystem:
        answers = [
            {
                "argv": argv.split() if isinstance(argv, str) else list(argv),
                **(said if isinstance(said, dict) else {"stdout": said}),
            }
            for argv, said in (commands or {}).items()
        ]
        about = {"system": system, "machine": "x86_64", "python": "py", "own_python": "py"}
        document = {
            "machine": about,
            "env": env or {},
            "paths": paths,
            "commands": answers,
            "files": files or {},
        }
        if nvml is not None:
            document["nvml"] = nvml
        return PlaybackSystem(from_json(RawMachine, document))

    return make
