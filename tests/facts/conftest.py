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
        **more: Any,
    ) -> PlaybackSystem:
        answers = []
        for argv, said in (commands or {}).items():
            words = argv.split() if isinstance(argv, str) else list(argv)
            answers.append({"argv": words, **(said if isinstance(said, dict) else {"stdout": said})})
        about = {"system": system, "machine": "x86_64", "python": "py", "own_python": "py"}
        document = {"machine": about, "env": env or {}, "commands": answers, "files": files or {}}
        document |= {"nvml": more.pop("nvml")} if "nvml" in more else {}
        return PlaybackSystem(from_json(RawMachine, {**document, "paths": more}))

    return make
