"""Against a real Docker engine: the image of the cpu lane is built and run. See conftest.py for which engine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import docker
import pytest
from msgspec.structs import replace

from splatfix.containers import certify_in_container
from splatfix.containers.certify import ContainerRequest
from splatfix.containers.engine import Engine
from splatfix.containers.image import (
    BUILT,
    CHECKOUT,
    LANE_LABEL,
    PACKAGES,
    Image,
    ImageRecipe,
    build_image,
    own_source,
)
from splatfix.containers.run import ContainerJob, ContainerOutcome, run_in_container, sweep
from splatfix.core.errors import Exit
from splatfix.knowledge.lanes import find_lane
from tests.containers.conftest import BASE_IMAGE, engine_script
from tests.files import put
from tests.plan.machines import refused
from tests.tables import data

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

PROBE = Path(__file__).parents[1] / "fixtures" / "splat_probe"
TEXTS: dict[str, str] = data(__file__)["texts"]
REPORT = TEXTS["report"]
"""Stands in for the certification, and ends as it is told."""
IMAGE_WITH_CUDA = 18
"""GB of disk that an image with torch for CUDA takes while it is made: 15.3 was measured (2026-11-28)."""


def run(
    engine: Engine, image: str, out: Path, command: list[str], gpu: bool = False, **lane: Any
) -> ContainerOutcome:
    out.mkdir(exist_ok=True)
    changed = replace(find_lane("cpu"), **{"timeout_s": 120, **lane})
    return run_in_container(engine, ContainerJob(changed, image, command, out, gpu), print)


def containers_of(engine: Engine, lane: str) -> list[Any]:
    label = f"{LANE_LABEL}={lane}"
    return list(engine.client.containers.list(all=True, filters={"label": label}, ignore_removed=True))


def inside(engine: Engine, image: Image, *command: str) -> str:
    """What a command in a container of an image says; "" where it fails."""
    options: dict[str, Any] = {"remove": True, "network_mode": "none", "environment": {"LC_ALL": "C.UTF-8"}}
    said = b""
    try:
        for _ in range(3):  # an engine under load may tell of a container's end before it has its output
            said = said or engine.client.containers.run(image.id, list(command), **options)
    except docker.errors.ContainerError:
        return ""
    return said.decode()


def layers(engine: Engine, image: Image) -> list[str]:
    return list(engine.client.images.get(image.id).attrs["RootFS"]["Layers"])


class TestImage:
    def test_equal_recipe_is_built_once(
        self, docker_engine: Engine, recipe: ImageRecipe, lane_image: Image, tmp_path: Path
    ) -> None:
        again = build_image(docker_engine, recipe, progress=print, log=tmp_path / "log")
        assert again.reused
        assert (again.tag, again.id) == (lane_image.tag, lane_image.id)

    def test_other_content_reuses_the_layers(
        self,
        docker_engine: Engine,
        recipe: ImageRecipe,
        lane_image: Image,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        checkout = put(tmp_path / "checkout", {".env": "private", "train.py": "real"})
        (checkout / "passwd").symlink_to("/etc/hostname")
        (checkout / "again").symlink_to(checkout / "train.py")
        (tmp_path / "edited.py").write_text(f"# {uuid.uuid4()}\n")
        source = {**own_source(), "splatfix/edited.py": tmp_path / "edited.py"}
        monkeypatch.setattr("splatfix.containers.image.own_source", lambda: source)
        changed = replace(recipe, checkout=checkout)
        other = build_image(docker_engine, changed, progress=print, log=tmp_path / "log")
        assert not other.reused
        assert other.tag != lane_image.tag
        log = (tmp_path / "log").read_text()
        assert "Installing collected packages" not in log, (
            "torch is not installed again for an edit of splatfix"
        )
        assert layers(docker_engine, other)[:-1] == layers(docker_engine, lane_image)[:-1]
        names = ("train.py", "again", ".env", "passwd")
        said = [inside(docker_engine, other, "cat", f"{CHECKOUT}/{name}") for name in names]
        assert said == ["real", "real", "", ""]
        docker_engine.client.images.remove(other.tag)

    def test_compilers_stay_outside(self, docker_engine: Engine, lane_image: Image) -> None:
        """And who runs in it is nobody; the labels and the health check are those of an image for others."""
        attrs = docker_engine.client.images.get(lane_image.id).attrs
        config, labels = attrs["Config"], attrs["Config"]["Labels"]
        assert config["User"] == "10001:10001"
        if docker_engine.kind == "Docker":  # Podman's images are OCI's, which know none
            assert config["Healthcheck"]["Test"] == ["CMD", "python", "-m", "splatfix", "diagnose"]
        assert labels["org.opencontainers.image.base.name"] == BASE_IMAGE
        assert "torch==2.13.0+cpu\n" in inside(docker_engine, lane_image, "cat", PACKAGES)
        assert inside(docker_engine, lane_image, "cat", BUILT) == ""

    @pytest.mark.slow
    def test_the_same_inputs_give_the_same_layers(
        self, docker_engine: Engine, recipe: ImageRecipe, lane_image: Image, tmp_path: Path
    ) -> None:
        """Built again from pip on; a build argument that was never given before keeps the builder from using its cache."""
        known = recipe.pip.build_args
        trusted = f"{known.get('PIP_TRUSTED_HOST', '')} {uuid.uuid4()}.invalid".strip()
        pip = replace(recipe.pip, build_args={**known, "PIP_TRUSTED_HOST": trusted})
        again = build_image(docker_engine, replace(recipe, pip=pip), progress=print, log=tmp_path / "log")
        assert "Installing collected packages" in (tmp_path / "log").read_text()
        assert layers(docker_engine, again) == layers(docker_engine, lane_image)

    def test_base_with_another_python_fails(
        self, docker_engine: Engine, recipe: ImageRecipe, tmp_path: Path
    ) -> None:
        lane = replace(recipe.lane, python="3.8")
        other = replace(recipe, lane=lane)
        error = refused(build_image, docker_engine, other, progress=print, log=tmp_path / "log")
        assert error.code == "docker-build-failed"
        assert "python-mismatch" in (tmp_path / "log").read_text()

    def test_missing_base_image(self, docker_engine: Engine, recipe: ImageRecipe, tmp_path: Path) -> None:
        lane = replace(recipe.lane, base_image="splatfix-no-such-base:1")
        missing = replace(recipe, lane=lane)
        error = refused(build_image, docker_engine, missing, progress=print, log=tmp_path / "log")
        assert (error.code, error.exit_code) == ("docker-base-image-unavailable", Exit.UNDETERMINED)


class TestRun:
    def test_no_network_and_no_privileges(
        self, docker_engine: Engine, lane_image: Image, tmp_path: Path
    ) -> None:
        look_around(docker_engine, lane_image.id, tmp_path)

    def test_out_of_memory(self, docker_engine: Engine, lane_image: Image, tmp_path: Path) -> None:
        if not docker_engine.limits:
            pytest.skip("this engine holds no limits: rootless, without cgroup v2")
        greedy = ["python", "-c", "held = [bytearray(1 << 20) for _ in range(2000)]"]
        error = refused(run, docker_engine, lane_image.id, tmp_path, greedy, memory="64m")
        assert (error.code, error.exit_code) == ("container-out-of-memory", Exit.UNDETERMINED)

    def test_timeout_removes_the_container(
        self, docker_engine: Engine, lane_image: Image, tmp_path: Path
    ) -> None:
        lane = f"timeout-{uuid.uuid4().hex}"
        slow = [
            "python",
            "-c",
            "import sys, time; print('begun', file=sys.stderr); open('/report/partial', 'w').write('so far'); time.sleep(300)",
        ]
        started = time.monotonic()
        error = refused(run, docker_engine, lane_image.id, tmp_path, slow, timeout_s=3, name=lane)
        assert time.monotonic() - started < 60
        assert (error.code, error.exit_code) == ("container-timeout", Exit.UNDETERMINED)
        assert error.details["last_lines"] == ["begun"]
        assert (tmp_path / "partial").read_text() == "so far", "the report is copied all the same"
        assert containers_of(docker_engine, lane) == []

    def test_ctrl_c_removes_the_container(self, docker_engine: Engine, tmp_path: Path) -> None:
        lane = f"ctrl-c-{uuid.uuid4().hex}"
        assert "KeyboardInterrupt" in ended(docker_engine, lane, signal.SIGINT, tmp_path)
        assert containers_of(docker_engine, lane) == []

    def test_what_a_killed_client_left_is_swept(self, docker_engine: Engine, tmp_path: Path) -> None:
        """With its volumes, by a run of the next day; it ends after the lane's time."""
        lane = f"killed-{uuid.uuid4().hex}"
        before = {volume.id for volume in docker_engine.client.volumes.list()}
        ended(docker_engine, lane, signal.SIGKILL, tmp_path)
        (made,) = containers_of(docker_engine, lane)
        made.wait(timeout=60)
        assert sweep(docker_engine) == 0, "it may be another's"
        assert sweep(docker_engine, 0) == 1
        assert {volume.id for volume in docker_engine.client.volumes.list()} <= before

    def test_a_report_too_large_for_the_disk_of_the_engine(
        self, docker_engine: Engine, lane_image: Image, tmp_path: Path
    ) -> None:
        """/tmp is small and in memory: what fills it gets the system's own error, and the report comes out."""
        code = "f = open('/report/r', 'w'); f.write('x'); f.close(); open('/tmp/f', 'wb').write(bytes(300 << 20))"
        outcome = run(docker_engine, lane_image.id, tmp_path, ["python", "-c", code], memory="2g")
        assert outcome.exit_code == 1 and "No space left on device" in outcome.last_lines[-1]
        assert (tmp_path / "r").read_text() == "x"


def look_around(engine: Engine, image: str, out: Path) -> None:
    """A run sees no network, has no privileges and cannot write but into its report, which is copied."""
    code = TEXTS["look_around"]
    lane = f"confined-{uuid.uuid4().hex}"
    outcome = run(engine, image, out, ["python3", "-c", code], name=lane)
    assert outcome.exit_code == 7 and (out / "certificate.md").read_text() == "all"
    said = "\n".join(outcome.last_lines)
    assert "10001 [" in said and "'lo'" in said and "eth" not in said and "tap" not in said
    assert "['0000000000000000', '1']" in said and "Read-only file system" in said
    assert containers_of(engine, lane) == []


def ended(docker_engine: Engine, lane: str, number: signal.Signals, folder: Path) -> str:
    """A process is sent ``number`` while its container runs, and not before a sweep has left that alone; its stderr."""
    child = subprocess.Popen(
        [sys.executable, "-c", TEXTS["until_ended"], docker_engine.endpoint.host, BASE_IMAGE, lane],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not any(c.status == "running" for c in containers_of(docker_engine, lane)):
            assert time.monotonic() < deadline
            assert child.poll() is None
            time.sleep(0.1)
        assert sweep(docker_engine, 0) == 0, "it runs"
        child.send_signal(number)
        return child.communicate(timeout=60)[1]
    finally:
        child.kill()
        child.wait()


def certify(
    docker_engine: Engine, out: Path, lane: str = "cpu", progress: Any = print, **options: Any
) -> Any:
    return certify_in_container(ContainerRequest(lanes=(lane,), **options), find_lane(lane), out, progress)


def instead(monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    """A command that runs in a container in place of the certification."""
    monkeypatch.setattr("splatfix.containers.certify.certify_command", lambda *_, **__: tuple(command))


class TestCertify:
    def test_report_streams_and_exit_code(
        self, docker_engine: Engine, lane_image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        progress: list[str] = []
        instead(monkeypatch, ["python", "-c", REPORT, "1"])
        made, exit_code = certify(docker_engine, tmp_path / "out", progress=progress.append)
        assert (exit_code, made["argv"], made["sum"]) == (1, ["1"], 3.0)
        assert (tmp_path / "out" / "certificate.md").read_text() == "# certificate\n"
        assert "for stderr" in progress and "for stdout" not in progress
        log = (tmp_path / "out" / "container.log").read_text().splitlines()
        assert "for stderr" in log and "for stdout" not in log
        assert (tmp_path / "out" / "image-build.log").is_file()
        made_in = json.loads((tmp_path / "out" / "container.json").read_text())
        told = json.loads(made["told"])
        assert told["container"].startswith(f"lane cpu, image {lane_image.id}, base ")
        assert made_in["image"]["id"] == lane_image.id
        assert any(pin == "torch==2.13.0+cpu" for pin in made_in["packages"])
        assert containers_of(docker_engine, "cpu") == []

    def test_missing_certificate_is_an_error(
        self, docker_engine: Engine, lane_image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        out = tmp_path / "out"
        out.mkdir()
        (out / "certificate.json").write_text('{"verdict": "certified"}')
        broken = ["python", "-c", "import sys; print('no torch here', file=sys.stderr); sys.exit(3)"]
        instead(monkeypatch, broken)
        error = refused(certify, docker_engine, out)
        assert (error.code, error.exit_code) == ("container-no-report", Exit.UNDETERMINED)
        assert "no torch here" in error.meaning
        assert not (out / "certificate.json").exists()

    @pytest.mark.slow
    @pytest.mark.timeout(1800)
    def test_quick_suite_is_certified(self, docker_engine: Engine, tmp_path: Path) -> None:
        """The real certification of this checkout, with nothing standing in for anything."""
        made, exit_code = certify(docker_engine, tmp_path / "out", suite="quick")
        assert (made["verdict"], exit_code) == ("certified", 0), made["reasons"]
        assert made["environment"]["torch"].endswith("+cpu")
        assert made["environment"]["python"].startswith("3.11.")
        assert (tmp_path / "out" / "certificate.md").is_file()


class TestSeveral:
    def test_ctrl_c_ends_the_lane_that_runs_and_keeps_what_had_ended(
        self, docker_engine: Engine, lane_image: Image, tmp_path: Path
    ) -> None:
        """The real command, with two lanes of one image; what runs inside stands in for a certification."""
        from tests.app.test_merge import BASE

        lane = f"ctrl-c-{uuid.uuid4().hex[:8]}"
        write = "import sys; open('/report/certificate.json', 'w').write(sys.argv[1])"
        script = (
            "import signal, sys\nfrom msgspec.structs import replace\nfrom splatfix.cli import main\n"
            "from splatfix.app import lanes\nfrom splatfix.containers import certify\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "find = lanes.find_lane\n"
            f"named = lambda name: replace(find('cpu'), name=name.replace('cu130', {lane!r}))\n"
            "lanes.find_lane = named\n"
            "commands = {'cpu': ['python', '-c', " + repr(write) + ", " + repr(json.dumps(BASE)) + "]}\n"
            "certify.certify_command = lambda lane, *_, **__: commands.get(lane.name, ['sleep', '300'])\n"
            "sys.exit(main())\n"
        )
        engine, out = docker_engine, tmp_path / "out"
        words = ["certify", "--container", "cpu,cu130", "--out", str(out), "--json"]
        child = subprocess.Popen(
            [sys.executable, "-c", script, *words],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 300
        try:
            while not (out / "cpu" / "container.json").is_file() or not containers_of(engine, lane):
                assert time.monotonic() < deadline and child.poll() is None
                time.sleep(0.2)
            child.send_signal(signal.SIGINT)
            said = json.loads(child.communicate(timeout=60)[0])
        finally:
            child.kill()
            child.wait()
        assert containers_of(engine, lane) == [] and containers_of(engine, "cpu") == []
        assert (child.returncode, said["exit_code"], said["error"]["code"]) == (130, 130, "interrupted")
        assert (out / "certificates.json").is_file()


class TestDoomed:
    def test_a_full_disk(
        self, doomed_engine: tuple[Path, Engine], recipe: ImageRecipe, tmp_path: Path
    ) -> None:
        """The engine's own; the image needs more than it has."""
        _, engine = doomed_engine
        error = refused(build_image, engine, recipe, progress=print, log=tmp_path / "log")
        assert error.code in ("docker-build-failed", "docker-engine-failed")
        assert "no space left on device" in error.what.lower()
        assert "docker system df" in error.todo[0].line()

    def test_a_killed_engine(
        self, doomed_engine: tuple[Path, Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The run ends at once with what happened, and nothing is left when the engine is back."""
        folder, engine = doomed_engine
        pid = int((folder / "docker.pid").read_text())
        threading.Timer(3, lambda: os.kill(pid, signal.SIGKILL)).start()
        started = time.monotonic()
        error = refused(run, engine, BASE_IMAGE, tmp_path, ["sleep", "300"], name="doomed")
        assert time.monotonic() - started < 30
        assert (error.code, error.exit_code) == ("docker-engine-lost", Exit.UNDETERMINED)
        assert "while running the container" in error.what and "othing was certified" in error.meaning
        engine_script("start", folder)
        assert sweep(engine, 0) == 1
        assert not containers_of(engine, "doomed") and not engine.client.volumes.list()


class TestGpu:
    """On an engine without the NVIDIA Container Toolkit, as on every machine without an NVIDIA GPU."""

    @pytest.fixture(autouse=True)
    def engine_without_gpus(self, docker_engine: Engine) -> None:
        if shutil.which("nvidia-container-runtime-hook"):
            pytest.skip("the NVIDIA Container Toolkit is installed here")
        if docker_engine.kind == "Podman":
            pytest.skip("test_podman.py has what Podman says")

    def test_checked_at_the_run(self, docker_engine: Engine, lane_image: Image, tmp_path: Path) -> None:
        lane = f"gpu-{uuid.uuid4().hex}"
        error = refused(run, docker_engine, lane_image.id, tmp_path, ["true"], gpu=True, name=lane)
        assert error.code == "docker-gpu-runtime-missing"
        assert containers_of(docker_engine, lane) == []

    def test_the_engine_s_own_words_and_what_to_do(self, docker_engine: Engine) -> None:
        """A whole lane, asked as a user does; it is refused before anything is built or downloaded."""
        started, before = time.monotonic(), {image.id for image in docker_engine.client.images.list()}
        error = refused(certify, docker_engine, Path("nothing-is-written"), "cu130")
        assert time.monotonic() - started < 30
        new = [image for image in docker_engine.client.images.list() if image.id not in before]
        added = {tag for image in new for tag in image.tags}
        assert added <= {"splatfix-gpu-probe:latest"}
        assert (error.code, error.exit_code) == ("docker-gpu-runtime-missing", Exit.UNDETERMINED)
        assert "could not select device driver" in error.what
        todo = [step.line() for step in error.todo]
        assert "nvidia-ctk" in todo[1] and todo[-1].endswith("splatfix certify --container nvrtc")
        assert not Path("nothing-is-written").exists()


LOOK = TEXTS["look"]


class TestBuilding:
    """Lanes that build for a GPU that is not here: gigabytes are downloaded the first time, and kept as layers."""

    @pytest.mark.timeout(1800)
    @pytest.mark.parametrize(
        ("lane", "level"),
        # two thirds of a push's container lanes: the native lane compiles for sm_120 there
        [pytest.param("cuda-from-pypi", 1, marks=pytest.mark.slow), ("nvrtc", 2)],
    )
    def test_gpu_code_is_built_and_proven_inside(
        self, docker_engine: Engine, lane: str, level: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        free = shutil.disk_usage(tmp_path).free / 1e9
        if free < IMAGE_WITH_CUDA:
            pytest.skip(f"NOT SHOWN: {free:.0f} GB of disk are free, an image takes {IMAGE_WITH_CUDA}")
        extensions = (str(PROBE),) if lane == "cuda-from-pypi" else ()
        instead(monkeypatch, ["python", "-c", LOOK, str(level), "sm_120"])
        certificate, _ = certify(docker_engine, tmp_path / "out", lane, extensions=extensions)
        proof = {item["name"]: item for item in certificate["proof"]}
        assert proof["built"]["reached"] is True and "for sm_120, not run" in proof["built"]["shown_by"]
        assert (tmp_path / "out" / "compiler").read_text() == "None"
        made = json.loads((tmp_path / "out" / "container.json").read_text())
        assert made["no_gpu"] and made["built"]["exit_code"] == 0
        if lane == "nvrtc":
            assert proof["loads"]["reached"] is True and proof["computes"]["reached"] is True
            for item in made["built"]["outcome"]["items"]:
                rungs = {rung["name"]: rung for rung in item["proof"]}
                assert "for sm_120 (native code)" in rungs["built"]["shown_by"] and rungs["loads"]["reached"]

        instead(monkeypatch, ["python", "-c", LOOK, "1", "sm_90"])
        refused, _ = certify(docker_engine, tmp_path / "other", lane, extensions=extensions)
        assert refused["verdict"] == "not-certified" and "sm_90" in str(refused["reasons"])
