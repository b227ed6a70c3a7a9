"""``splatfix dockerfile`` on a real engine: the image is built, proven, and looked into; and what diagnose says in containers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from splatfix.app.dockerfile import DockerfileRequest, make_dockerfile
from splatfix.containers.engine import Engine
from splatfix.containers.image import Image
from splatfix.containers.packages import pip_settings
from splatfix.core.runner import Runner
from tests.archs import archs

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]

PROBE = Path(__file__).parents[1] / "fixtures" / "splat_probe"
TAG = "splatfix-test-dockerfile:latest"


def build(docker_engine: Engine, checkout: Path, **more: str) -> str:
    """What the engine says while it builds, with this machine's settings of pip as on a closed site.

    torch's default build on PyPI is that for CUDA 13.0.
    """
    settings = pip_settings(Runner())
    arguments = {**settings.build_args, "TORCH": "torch==2.13.0", "TORCH_INDEX": "", **more}
    options = {"network_mode": "host", "rm": True, "forcerm": True, "decode": True}
    build = docker_engine.client.api.build
    answers = build(path=str(checkout), tag=TAG, buildargs=arguments, **options)
    return "".join(str(answer.get("stream", "")) + str(answer.get("error", "")) for answer in answers)


@pytest.mark.slow
def test_the_image_of_a_checkout_is_built_proven_and_runs(docker_engine: Engine, tmp_path: Path) -> None:
    """Torch (2.5 GB) and the compiler (1.5 GB) come from PyPI. The stages keep 10 GB of layers."""
    checkout = tmp_path / "checkout"
    shutil.copytree(PROBE, checkout / "submodules" / "splat_probe")
    (checkout / ".git").mkdir()
    (checkout / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (checkout / "submodules" / "splat_probe" / "setup.py").chmod(0o600)
    (checkout / "id_rsa").write_text("secret")
    targets = archs("sm_86", "sm_120")
    make_dockerfile(DockerfileRequest(str(checkout), targets, "wheels", "2.13.0+cu130", 2, checkout))
    # the classic builder reads this one
    (checkout / "Dockerfile.dockerignore").rename(checkout / ".dockerignore")
    certificates = pip_settings(Runner()).certificates
    (checkout / "splatfix-image/base/certificates.pem").write_bytes(certificates)
    log = build(docker_engine, checkout)
    assert f"Successfully tagged {TAG}" in log, log[-5000:]

    client = docker_engine.client
    config = client.images.get(TAG).attrs["Config"]
    assert config["User"] == "10001:10001" and config["Labels"]["org.splatfix.targets"] == "sm_86, sm_120"

    def run(*words: str) -> str:
        confined = {"network_mode": "none", "read_only": True, "cap_drop": ["ALL"]}
        confined["tmpfs"] = {"/tmp": "", "/scratch": ""}
        output: bytes = client.containers.run(TAG, list(words), remove=True, **confined)
        return output.decode()

    assert "no compiler" in run("bash", "-c", "type gcc g++ nvcc cc 2>/dev/null || echo no compiler")
    assert "splatfix-image" not in run("ls", "-a", "/opt/splatfix/checkout")
    assert "id_rsa" not in run("ls", "-a", "/opt/splatfix/checkout")
    site = "/opt/splatfix/venv/lib/python3.11/site-packages"
    imported = run(
        "python", "-c", "import splat_probe, torch; print(splat_probe.__file__, torch.version.cuda)"
    )
    assert imported.split() == [f"{site}/splat_probe/__init__.py", "13.0"]
    options = ("--target", "sm_86", "--target", "sm_120")
    inspected = json.loads(run("splatfix", "inspect", f"{site}/splat_probe", *options, "--json"))
    assert all(
        file["verdicts"][arch]["usable"] for file in inspected["files"] for arch in ("sm_86", "sm_120")
    )
    found = json.loads(run("bash", "-c", "splatfix diagnose --json || true"))["findings"]
    statuses = {item["check"]: item["status"] for item in found}
    assert statuses["gpu-not-passed-to-container"] == "warn", "NVIDIA_VISIBLE_DEVICES asks for one"

    # for a GPU that nothing can be built for the build ends there
    log = build(docker_engine, checkout, INSTALL_ARGUMENTS="--target sm_61 --provide-toolkit")
    assert "sm_61" in log.partition("Step 1/")[2].rpartition("Running in")[2], log[-3000:]
    assert "returned a non-zero code" in log
    client.images.remove(TAG, force=True)


def test_diagnose_in_a_container_names_what_is_missing_from_outside(
    docker_engine: Engine, lane_image: Image
) -> None:
    def diagnose(**options: Any) -> dict[str, Any]:
        words = ["sh", "-c", "python -m splatfix diagnose --only container --only gpu --json || true"]
        output: bytes = docker_engine.client.containers.run(
            lane_image.id, words, remove=True, network_mode="none", **options
        )
        return dict(json.loads(output))

    plain = diagnose()
    machine = plain["facts"]["machine"]
    assert machine["container"] == "docker"
    assert machine["confinement"]["value"]["shm"] == 64 * 2**20
    locked = diagnose(
        read_only=True, shm_size="8m", pids_limit=60, mem_limit="1g", user="10001", cap_drop=["ALL"]
    )
    found = {item["check"]: item for item in locked["findings"] if item["status"] in ("warn", "fail")}
    assert {"container-memory-limit", "container-process-limit", "container-root-read-only"} <= set(found)
    for code in ("container-memory-limit", "container-process-limit", "container-root-read-only"):
        assert found[code]["remedy"][0]["command"].startswith("docker run "), code
