"""What is said of a build: little, and never nothing for long."""

import time
from pathlib import Path

from splatfix.containers.building import Building

BUILDS = Path(__file__).with_name("builds")
"""What the engines say of a build, and what is told of it."""


def test_stages_and_what_is_done_instead_of_every_line() -> None:
    for engine in ("docker", "podman"):
        lines: list[str] = []
        with Building(lines.append) as building:
            for line in (BUILDS / f"{engine}.log").read_text(encoding="utf-8").splitlines():
                building.hear(line)
        assert lines == (BUILDS / f"{engine}.txt").read_text(encoding="utf-8").splitlines()


def test_silence_is_told_with_its_seconds() -> None:
    lines: list[str] = []
    with Building(lines.append, every_s=0.1) as building:
        building.hear("Step 40/57 : FROM ${BASE_IMAGE}")
        building.hear("Step 43/57 : COPY --from=packages /out/ /")
        deadline = time.monotonic() + 10
        while len(lines) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
    assert lines[1].startswith("the image itself: copying what stage packages made, ")
    assert lines[1].endswith(" s so far") and lines[1].split()[-4].isdigit()
