"""What a certification in a container leaves in the report, without an engine."""

import json
from pathlib import Path

import pytest

from splatfix.app.certify import next_step, run_and_report
from splatfix.app.stored import read_stored
from splatfix.certify import make_room, report_lock
from splatfix.certify.environment import Host
from splatfix.containers.certify import ContainerRequest, certify_command, host_command
from splatfix.core.errors import require
from splatfix.knowledge.lanes import find_lane
from tests.archs import archs
from tests.certify.conftest import SHORT, RecordedTrainer, result, subject
from tests.files import put
from tests.machines import facts_of

REQUEST = ContainerRequest(lanes=("nvrtc",), targets=archs("sm_120"))
REPEAT = host_command(REQUEST, find_lane("nvrtc"))
HOST = Host("lane nvrtc, image sha256:abcd, base python:3.11-slim-bookworm sha256:ef01", REPEAT)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer is played back, and fails."""
    failed = RecordedTrainer(figurine=result(status="interrupted"))
    monkeypatch.setattr("splatfix.certify.engine.Runner", lambda: failed)
    monkeypatch.setattr("splatfix.certify.subject.packages_obstacle", lambda *words: None)


def test_the_certificate_says_where_it_ran(
    recorded: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in HOST.variables.items():
        monkeypatch.setenv(name, value)
    request = subject(SHORT, tmp_path)
    made = run_and_report(request, facts_of("rtx-3090-and-5090"))
    result, options = made.certificate, made.options
    repeat = "splatfix certify --container nvrtc --target sm_120"
    markdown, page = ((tmp_path / f"certificate.{kind}").read_text() for kind in ("md", "html"))
    assert f"| container | {HOST.container} |" in markdown and f"    {repeat}\n" in markdown
    assert HOST.container in page and repeat in page
    assert "--python" not in markdown and options is None
    document = json.loads((tmp_path / "certificate.json").read_text())
    assert document["environment"]["container"] == HOST.container == result.environment["container"]
    stored = require(read_stored(tmp_path))
    assert stored.certificate.repeat == HOST.repeat and next_step(stored.certificate) is None


def test_outside_of_a_container_it_says_none(recorded: None, tmp_path: Path) -> None:
    request = subject(SHORT, tmp_path)
    made = run_and_report(request, facts_of("rtx-3090-and-5090"))
    result, options = made.certificate, made.options
    assert "container" not in result.environment and result.repeat == request.command
    assert options is not None


def test_the_host_s_command_has_everything_that_was_asked() -> None:
    more = {"targets": archs("sm_90"), "repo": Path("repo"), "extensions": ("a", "b")}
    request = ContainerRequest(lanes=("cpu", "cu130"), suite="standard", **more)
    inside = certify_command(find_lane("cu130"), request, gpu=False)
    assert inside[-4:] == ("--repo", "/opt/splatfix/checkout", "--out", "/report")
    assert host_command(request, find_lane("cu130")).shell(windows=False) == (
        "splatfix certify --container cu130 --suite standard --repo repo "
        "--target sm_90 --extension a --extension b"
    )


def test_an_earlier_report_is_set_aside_whole(tmp_path: Path) -> None:
    files = ["certificate.json", "certificate.md", "container.json", "container.log", "image-build.log"]
    files += ["figurine/trainer.log", "figurine/renders/0.png", "fruit/trainer.log"]
    put(tmp_path, dict.fromkeys((*files, "mine/photo.png"), ""))
    make_room(tmp_path, ())
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "previous"}
    assert all((tmp_path / "previous" / name).is_file() for name in files)


def test_a_report_s_own_folder_is_none_of_the_repository(tmp_path: Path) -> None:
    with report_lock(tmp_path / "report"):
        (tmp_path / "report" / "certificate.json").touch()
    assert (tmp_path / "report" / ".gitignore").read_text() == "*\n"
    with report_lock(tmp_path / "refused"), report_lock(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["report"], "and a folder of the user's has none"
