from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from splatfix.containers.image import BUNDLED, follow_build, own_source, root_cause
from splatfix.containers.lanes import find_lane, load_lanes
from splatfix.core.errors import SplatfixError
from splatfix.core.toml import parse_toml
from tests.conftest import ROOT

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
PODMAN = """\
[1/4] STEP 5/14: RUN sh /usr/local/share/splatfix/prepare.sh "${PYTHON_VERSION}" "${APT_PACKAGES}"
error running container: from /usr/bin/crun creating container for [/bin/sh -c sh /usr/local/share/splatfix/prepare.sh]: \
cgroups in hybrid mode not supported, drop all controllers from cgroupv2
: exit status 1
building at STEP "RUN sh /usr/local/share/splatfix/prepare.sh "${PYTHON_VERSION}" "${APT_PACKAGES}"": while running runtime: \
exit status 1
"""
FULL_DISK = """\
ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device
The command '/bin/sh -c python3 -m venv' returned a non-zero code: 1
"""
UNSUPPORTED = """\
Step 14/30 : RUN /opt/stack/bin/python -m pip wheel --no-build-isolation ./source
nvcc fatal   : Unsupported gpu architecture 'compute_120'
error: command '/usr/local/cuda/bin/nvcc' failed with exit code 1
ERROR: Failed building wheel for splat_probe
The command '/bin/sh -c pip wheel' returned a non-zero code: 1
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
    ("log", "cause", "solvable"),
    [
        (OFFLINE, "Temporary failure resolving 'mirror.example'", True),
        (MISMATCH, "the base image has Python 3.12", True),
        (FULL_DISK, "No space left on device", True),
        (NO_WHEEL, "No matching distribution found for numpy==2.4.6", False),
        (CERTIFICATE, "The certificate is NOT trusted", True),
        (ALPINE, "apt-get: not found", True),
        ("something else\nthe last word\n\n", "the last word", False),
        ("", "no reason given", False),
        (PODMAN, "cgroups in hybrid mode not supported", True),
        (UNSUPPORTED, "Unsupported gpu architecture 'compute_120' [", True),
    ],
)
def test_root_cause(log: str, cause: str, solvable: bool) -> None:
    found, step = root_cause(log.splitlines())
    assert cause in found
    assert (step is not None) is solvable


def test_chunks_become_lines_without_color() -> None:
    """A recorded failure: the engine sends apt's red line in two chunks."""
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
    lines: list[str] = []
    sink = io.StringIO()
    with pytest.raises(SplatfixError) as caught:
        follow_build(answers, find_lane("cpu"), sink, Path("build.log"), lines.append)
    assert caught.value.what.endswith("E: Unable to locate package nothing")
    assert caught.value.details["log"] == "build.log"
    assert "\nReading package lists...\nE: Unable to locate package nothing\n" in sink.getvalue()
    assert "\x1b" not in sink.getvalue() and not lines
    assert sink.getvalue().endswith("code: 100\n")


def test_successful_build() -> None:
    sink = io.StringIO()
    follow_build([{"stream": "a\nb"}], find_lane("cpu"), sink, Path("build.log"), print)
    assert sink.getvalue() == "a\nb\n"


def test_own_source_is_what_a_wheel_installs(tmp_path: Path) -> None:
    """Copied elsewhere it runs alone, with its data, and lists the same files as a source again."""
    source = own_source()
    for name, path in source.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(path.read_bytes())
    code = (
        "import json, splatfix, smoke_trainer; from splatfix.containers import load_lanes;"
        " from splatfix.containers.image import own_source;"
        " print(json.dumps([splatfix.__file__, smoke_trainer.__file__, sorted(load_lanes()), sorted(own_source())]))"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    package, trainer, lanes, names = json.loads(done.stdout)
    assert Path(package).parent == tmp_path / "splatfix"
    assert Path(trainer).parent == tmp_path / "smoke_trainer"
    assert lanes == sorted(load_lanes())
    assert names == list(source)


def test_bundled_data_is_that_of_the_wheel() -> None:
    project = parse_toml((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert {f"splatfix/_bundled/{name}" for name in BUNDLED} == set(included.values())
    assert set(included) == set(BUNDLED)
