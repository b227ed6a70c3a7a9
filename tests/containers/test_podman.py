"""Against a real Podman, rootless: what differs from Docker, and that a lane is built, run and left without a trace."""

from __future__ import annotations

import io
import json
import signal
import uuid
from pathlib import Path

import pytest

from splatfix.containers import certify_in_container
from splatfix.containers.certify import ContainerRequest
from splatfix.containers.engine import Engine, require_gpu
from splatfix.containers.run import sweep
from splatfix.core.errors import Exit
from splatfix.core.versions import release
from splatfix.knowledge.lanes import find_lane
from tests.containers.conftest import BASE_IMAGE
from tests.containers.test_docker import containers_of, ended, look_around, run
from tests.plan.machines import refused

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]


def test_it_is_known_for_what_it_is(podman_engine: Engine) -> None:
    assert (podman_engine.kind, podman_engine.rootless) == ("Podman", True)
    assert podman_engine.limits is (podman_engine.client.info()["CgroupVersion"] == "2")


def test_a_run_is_confined_and_its_report_copied(podman_engine: Engine, tmp_path: Path) -> None:
    """With of a lane's image what a run needs; built in two seconds."""
    text = f"FROM {BASE_IMAGE}\nRUN mkdir -m 1777 /report /scratch\nUSER 10001:10001\n"
    image, _ = podman_engine.client.images.build(fileobj=io.BytesIO(text.encode()), network_mode="host")
    look_around(podman_engine, str(image.id), tmp_path)


def test_an_image_without_the_report_s_folder(podman_engine: Engine, tmp_path: Path) -> None:
    """Docker makes an empty one; of Podman comes an archive of no bytes."""
    outcome = run(podman_engine, BASE_IMAGE, tmp_path, ["true"])
    assert (outcome.exit_code, outcome.packages) == (0, b"")
    assert [path.name for path in tmp_path.iterdir()] == ["container.log"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_ended_client_leaves_no_container(
    podman_engine: Engine, number: signal.Signals, tmp_path: Path
) -> None:
    lane = f"podman-{uuid.uuid4().hex}"
    ended(podman_engine, lane, number, tmp_path)
    for made in containers_of(podman_engine, lane):
        made.wait(timeout=60)
    assert sweep(podman_engine, 0) == (number is signal.SIGKILL)


def test_gpus_are_refused_where_a_request_would_be_ignored(podman_engine: Engine) -> None:
    if release(podman_engine.version) >= (5, 4):
        pytest.skip("this Podman heeds requests for devices")
    error = refused(require_gpu, podman_engine)
    assert (error.code, error.exit_code) == ("docker-gpu-runtime-missing", Exit.UNDETERMINED)
    assert "ignores requests for GPUs" in error.what and "5.4" in error.todo[0].line()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_cpu_lane_is_certified(
    podman_engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Built by Podman's own builder, and the quick suite as it is: three to six minutes."""
    monkeypatch.setenv("DOCKER_HOST", podman_engine.endpoint.host)
    certificate, _ = certify_in_container(
        ContainerRequest(lanes=("cpu",), suite="quick"), find_lane("cpu"), tmp_path, print
    )
    assert certificate["verdict"] == "certified", certificate["reasons"]
    about = json.loads((tmp_path / "container.json").read_text())["engine"]
    assert (about["kind"], about["rootless"]) == ("Podman", True)
