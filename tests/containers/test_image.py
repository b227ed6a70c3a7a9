from __future__ import annotations

import io
from pathlib import Path

import pytest

from splatfix.containers.image import follow_build, root_cause
from splatfix.containers.lanes import find_lane
from splatfix.core.errors import SplatfixError

# Each log is the end of a real failed build, shortened to the lines that matter.
OFFLINE = """\
Step 6/21 : RUN set -eu;     wanted="${APT_PACKAGES}";
Err:1 http://mirror.example bookworm InRelease
  Temporary failure resolving 'mirror.example'
Reading package lists...
W: Failed to fetch http://mirror.example/dists/bookworm/InRelease  Temporary failure resolving 'mirror.example'
E: Unable to locate package python3-venv
The command '/bin/sh -c set -eu;' returned a non-zero code: 100
"""
MISMATCH = """\
Step 6/21 : RUN set -eu; echo "splatfix: python-mismatch: the base image has Python ${found}" >&2; exit 1
 ---> Running in 0034a8570db7
splatfix: python-mismatch: the base image has Python 3.12, the lane's wheels are for 3.11
Removing intermediate container 0034a8570db7
The command '/bin/sh -c set -eu; echo "splatfix: python-mismatch: the base image"' returned a non-zero code: 1
"""
FULL_DISK = """\
ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device
The command '/bin/sh -c python3 -m venv' returned a non-zero code: 1
"""
NO_WHEEL = """\
Looking in links: /context/wheelhouse
ERROR: Could not find a version that satisfies the requirement numpy==2.4.6 (from versions: none)
ERROR: No matching distribution found for numpy==2.4.6
"""
CERTIFICATE = """\
Ign:1 https://mirror.example bookworm InRelease
Err:1 https://mirror.example bookworm InRelease
  Certificate verification failed: The certificate is NOT trusted. The certificate issuer is unknown.
E: Unable to locate package python3-venv
"""
ALPINE = """\
/bin/sh: apt-get: not found
The command '/bin/sh -c set -eu;' returned a non-zero code: 127
"""


@pytest.mark.parametrize(
    ("log", "cause", "todo"),
    [
        (OFFLINE, "Temporary failure resolving 'mirror.example'", "Give the base image a Python"),
        (MISMATCH, "the base image has Python 3.12", "base image with that Python"),
        (FULL_DISK, "No space left on device", "docker system df"),
        (NO_WHEEL, "No matching distribution found for numpy==2.4.6", ""),
        (CERTIFICATE, "The certificate is NOT trusted", "--ca-certificates"),
        (ALPINE, "apt-get: not found", "Debian-like"),
        ("something else\nthe last word\n\n", "the last word", ""),
        ("", "the engine said no reason", ""),
    ],
)
def test_root_cause(log: str, cause: str, todo: str) -> None:
    found, remedy = root_cause(log.splitlines())
    assert cause in found
    assert todo in remedy


def test_pieces_become_lines_without_paint() -> None:
    """A recorded failure: the engine sends apt's red line in two pieces."""
    answers = [
        {"stream": "Step 6/21 : RUN apt-get install nothing\n"},
        {"stream": "Reading package lists..."},
        {"stream": "\n"},
        {"stream": "\x1b[91mE\x1b[0m"},
        {"stream": "\x1b[91m: Unable to locate package nothing\n\x1b[0m"},
        {"aux": {"ID": "sha256:0"}},
        {
            "errorDetail": {"code": 100},
            "error": "The command 'apt-get install nothing' returned a non-zero code: 100",
        },
    ]
    told: list[str] = []
    sink = io.StringIO()
    with pytest.raises(SplatfixError) as caught:
        follow_build(answers, find_lane("cpu"), sink, Path("build.log"), told.append)
    assert caught.value.what.endswith("could not be built: E: Unable to locate package nothing")
    assert "build.log" in caught.value.meaning
    assert told[1:3] == ["Reading package lists...", "E: Unable to locate package nothing"]
    assert "\x1b" not in sink.getvalue()
    assert sink.getvalue().endswith("code: 100\n")


def test_a_build_that_ends_well_raises_nothing() -> None:
    told: list[str] = []
    follow_build([{"stream": "a\nb"}], find_lane("cpu"), io.StringIO(), Path("build.log"), told.append)
    assert told == ["a", "b"]
