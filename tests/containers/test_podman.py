"""Against a real Podman, rootless: what differs from Docker, and that a lane is built, run and left without a trace."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from splatfix.certify.request import ContainerRequest
from splatfix.containers import certify_in_container, find_lane
from splatfix.containers.engine import empty_tar, require_gpu
from splatfix.containers.image import Image
from splatfix.containers.owner import OWNER_LABEL, owner_label
from splatfix.containers.run import sweep
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.versions import release
from tests.containers.test_docker import containers_of, ended, run

if TYPE_CHECKING:
    from tests.containers.conftest import TestEngine

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]


@pytest.fixture(scope="session")
def small_image(podman_engine: TestEngine) -> Image:
    """Of a lane's image what a run needs; built in two seconds."""
    text = f"FROM {podman_engine.base_image}\nRUN mkdir -m 1777 /report /scratch\nUSER 10001:10001\n"
    image, _ = podman_engine.engine.client.images.build(
        fileobj=io.BytesIO(text.encode()), network_mode="host"
    )
    return Image("", str(image.id), "", "", reused=True)


def test_it_is_known_for_what_it_is(podman_engine: TestEngine) -> None:
    engine = podman_engine.engine
    assert (engine.kind, engine.rootless) == ("Podman", True)
    assert engine.limits is (engine.client.info()["CgroupVersion"] == "2")


def test_a_run_is_confined_and_its_report_copied(
    podman_engine: TestEngine, small_image: Image, tmp_path: Path
) -> None:
    code = (
        "import os, socket, sys\n"
        "print(os.getuid(), sorted(name for _, name in socket.if_nameindex()))\n"
        "status = open('/proc/self/status').read().splitlines()\n"
        "print([l.split()[1] for l in status if l.startswith(('CapBnd', 'NoNewPrivs'))])\n"
        "open('/report/certificate.md', 'w').write('all')\n"
        "try: open('/opt/x', 'w')\n"
        "except OSError as error: print(error, file=sys.stderr); sys.exit(7)\n"
    )
    lane = f"podman-{uuid.uuid4().hex}"
    outcome = run(podman_engine.engine, small_image, tmp_path, ["python3", "-c", code], name=lane)
    assert outcome.exit_code == 7 and (tmp_path / "certificate.md").read_text() == "all"
    said = "\n".join(outcome.last_lines)
    assert "10001 ['lo'" in said and "eth" not in said and "tap" not in said
    assert "['0000000000000000', '1']" in said and "Read-only file system" in said
    assert containers_of(podman_engine.engine, lane) == []


def test_an_image_without_the_report_s_folder(podman_engine: TestEngine, tmp_path: Path) -> None:
    """Docker makes an empty one; of Podman comes an archive of no bytes."""
    image = Image("", podman_engine.base_image, "", "", reused=True)
    outcome = run(podman_engine.engine, image, tmp_path, ["true"])
    assert (outcome.exit_code, outcome.files) == (0, ())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_ended_client_leaves_no_container(
    podman_engine: TestEngine, number: signal.Signals, tmp_path: Path
) -> None:
    lane = f"podman-{uuid.uuid4().hex}"
    ended(podman_engine, lane, number, tmp_path)
    deadline = time.monotonic() + 40
    while any(item.status != "exited" for item in containers_of(podman_engine.engine, lane)):
        assert time.monotonic() < deadline, "it still runs"
        time.sleep(0.2)
    assert sweep(podman_engine.engine) == (number is signal.SIGKILL)


def test_what_a_killed_process_left_is_swept(podman_engine: TestEngine) -> None:
    """Podman keeps the backslashes of quotation marks in a label."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    dead = owner_label()[OWNER_LABEL].replace("started=", "started=1")
    client = podman_engine.engine.client
    client.api.import_image_from_data(
        empty_tar(), repository="splatfix-left", tag="1", changes=[f"LABEL {OWNER_LABEL}={json.dumps(dead)}"]
    )
    assert sweep(podman_engine.engine) == 1 and sweep(podman_engine.engine) == 0


def test_gpus_are_refused_where_a_request_would_be_ignored(podman_engine: TestEngine) -> None:
    if release(podman_engine.engine.version) >= (5, 4):
        pytest.skip("this Podman heeds requests for devices")
    with pytest.raises(SplatfixError) as caught:
        require_gpu(podman_engine.engine)
    assert (caught.value.code, caught.value.exit_code) == ("docker-gpu-runtime-missing", Exit.UNDETERMINED)
    assert "ignores requests for GPUs" in caught.value.what and "5.4" in caught.value.todo[0].line()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_cpu_lane_is_certified(
    podman_engine: TestEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Built by Podman's own builder, and the quick suite as it is: three to six minutes."""
    monkeypatch.setenv("DOCKER_HOST", podman_engine.engine.endpoint.host)
    result = certify_in_container(
        ContainerRequest(lanes=("cpu",), suite="quick"),
        find_lane("cpu"),
        tmp_path,
        print,
    )
    assert result.certificate["verdict"] == "certified", result.certificate["reasons"]
    about = json.loads((tmp_path / "container.json").read_text())["engine"]
    assert (about["kind"], about["rootless"]) == ("Podman", True)
