import io
import itertools
import json
import os
import subprocess
import sys
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from splatfix.containers.image import BUNDLED, Image, follow_build, own_source, read_inside
from splatfix.containers.lanes import find_lane, load_lanes
from splatfix.core.toml import parse_toml
from tests.conftest import ROOT
from tests.plan.machines import refused


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
    error = refused(follow_build, answers, find_lane("cpu"), sink, Path("build.log"), lines.append)
    assert error.what.endswith("E: Unable to locate package nothing")
    assert error.details["log"] == "build.log"
    assert "\nReading package lists...\nE: Unable to locate package nothing\n" in sink.getvalue()
    assert "\x1b" not in sink.getvalue() and not lines
    assert sink.getvalue().endswith("code: 100\n")


FAILED = parse_toml(Path(__file__).with_name("failed_builds.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("build", FAILED["builds"], ids=itemgetter("reason"))
def test_the_cause_is_that_of_the_engines_answers(build: dict[str, Any]) -> None:
    answers = [{"stream": "Step 3/9 : RUN x\n"}, {"stream": build["said"]}, build["last"]]
    error = refused(
        follow_build, answers, find_lane("cpu"), io.StringIO(), Path("build.log"), lambda line: None
    )
    assert error.code == "docker-build-failed"
    assert error.what == f"The image of lane cpu was not built: {build['reason']}"


def test_a_build_that_never_ends_a_line_is_heard_and_its_log_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatfix.core.output.MOST_LOG", 1 << 20)
    answers = ({"stream": "x" * 4096} for _ in range(1000))
    sink = io.StringIO()
    follow_build(answers, find_lane("cpu"), sink, Path("build.log"), lambda line: None)
    assert len(sink.getvalue()) < (1 << 20) + (1 << 18)
    assert max(map(len, sink.getvalue().splitlines())) <= (1 << 16) + 4096


def test_a_file_of_an_image_has_its_limit() -> None:
    container = Mock()
    container.get_archive.return_value = itertools.repeat(bytes(1 << 20)), {}
    engine: Any = SimpleNamespace(client=Mock(**{"containers.create.return_value": container}))
    image = Image("tag", "sha256:0", "base", "sha256:1", reused=True)
    error = refused(read_inside, engine, image, "/built.json")
    assert error.code == "container-report-damaged" and container.remove.called


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
    assert included == {name: f"splatfix/_bundled/{name}" for name in BUNDLED}
