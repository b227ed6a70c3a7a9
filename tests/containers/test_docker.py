"""Against a real Docker engine: the image of the cpu lane is built and run. See conftest.py for which engine."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from splatfix.containers import certify_in_container
from splatfix.containers.engine import Engine, require_gpu
from splatfix.containers.image import LANE_LABEL, Image, Recipe, build_image
from splatfix.containers.run import Outcome, run_in_container, sweep
from splatfix.core.errors import Exit, SplatfixError

if TYPE_CHECKING:
    from tests.containers.conftest import TestEngine

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

REPORT = """
import json, os, sys, torch, smoke_trainer, splatfix
report = {"schema_version": 1, "sum": float(torch.ones(3).sum()), "uid": os.getuid(), "argv": sys.argv[1:]}
json.dump(report, open("/report/certificate.json", "w"))
open("/report/certificate.md", "w").write("# certificate\\n")
print("for stdout"); print("for stderr", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


def report_and_exit(code: int) -> list[str]:
    """Stands in for the certification where a test needs to choose how it ends."""
    return ["python", "-c", REPORT, str(code)]


def run(engine: Engine, image: Image, out: Path, command: list[str], **changes: Any) -> Outcome:
    options = {
        "lane": "cpu",
        "gpu": False,
        "timeout_s": 120,
        "progress": print,
        **changes,
    }
    out.mkdir(exist_ok=True)
    return run_in_container(engine, image, command, out=out, log=out / "container.log", **options)


def containers_of(engine: Engine, lane: str) -> list[Any]:
    return list(engine.client.containers.list(all=True, filters={"label": f"{LANE_LABEL}={lane}"}))


class TestImage:
    def test_equal_recipe_is_built_once(
        self, docker_engine: TestEngine, recipe: Recipe, lane_image: Image, tmp_path: Path
    ) -> None:
        again = build_image(docker_engine.engine, recipe, progress=print, log=tmp_path / "log")
        assert again.reused
        assert (again.tag, again.id) == (lane_image.tag, lane_image.id)

    def test_other_content_reuses_the_layers(
        self, docker_engine: TestEngine, recipe: Recipe, lane_image: Image, tmp_path: Path
    ) -> None:
        edited = tmp_path / "__init__.py"
        edited.write_bytes(
            recipe.source["splatfix/__init__.py"].read_bytes() + f"# {uuid.uuid4()}\n".encode()
        )
        other = build_image(
            docker_engine.engine,
            dataclasses.replace(recipe, source={**recipe.source, "splatfix/__init__.py": edited}),
            progress=print,
            log=tmp_path / "log",
        )
        assert not other.reused
        assert other.tag != lane_image.tag
        log = (tmp_path / "log").read_text()
        assert log.count("Using cache") >= 5, "torch is not installed again for an edit of splatfix"
        docker_engine.engine.client.images.remove(other.tag)

    def test_base_with_another_python_fails(
        self, docker_engine: TestEngine, recipe: Recipe, tmp_path: Path
    ) -> None:
        lane = dataclasses.replace(recipe.lane, python="3.8")
        with pytest.raises(SplatfixError) as caught:
            build_image(
                docker_engine.engine,
                dataclasses.replace(recipe, lane=lane),
                progress=print,
                log=tmp_path / "log",
            )
        assert caught.value.code == "docker-build-failed"
        assert "python-mismatch" in (tmp_path / "log").read_text()

    def test_missing_base_image(self, docker_engine: TestEngine, recipe: Recipe, tmp_path: Path) -> None:
        missing = dataclasses.replace(recipe, base_image="splatfix-no-such-base:1")
        with pytest.raises(SplatfixError) as caught:
            build_image(docker_engine.engine, missing, progress=print, log=tmp_path / "log")
        assert (caught.value.code, caught.value.exit_code) == (
            "docker-base-image-unavailable",
            Exit.UNDETERMINED,
        )


class TestRun:
    def test_report_is_copied_and_streams_are_logged(
        self, docker_engine: TestEngine, lane_image: Image, tmp_path: Path
    ) -> None:
        progress: list[str] = []
        outcome = run(
            docker_engine.engine, lane_image, tmp_path, report_and_exit(0), progress=progress.append
        )
        assert outcome.exit_code == 0
        certificate = json.loads((tmp_path / "certificate.json").read_text())
        assert certificate["sum"] == 3.0
        assert certificate["uid"] != 0, "not root"
        assert "for stderr" in progress
        assert "for stdout" not in progress
        assert {"for stdout", "for stderr"} <= set((tmp_path / "container.log").read_text().splitlines())

    def test_no_network_and_no_privileges(
        self, docker_engine: TestEngine, lane_image: Image, tmp_path: Path
    ) -> None:
        code = (
            "import pathlib, socket\n"
            "print([name for _, name in socket.if_nameindex()])\n"
            "status = pathlib.Path('/proc/self/status').read_text()\n"
            "print([l.split()[1] for l in status.splitlines() if l.startswith(('CapBnd', 'NoNewPrivs'))])\n"
        )
        outcome = run(docker_engine.engine, lane_image, tmp_path, ["python", "-c", code])
        interfaces, status = outcome.last_lines
        assert "'lo'" in interfaces
        assert "eth" not in interfaces
        assert status == "['0000000000000000', '1']"

    def test_out_of_memory(self, docker_engine: TestEngine, lane_image: Image, tmp_path: Path) -> None:
        greedy = ["python", "-c", "held = [bytearray(1 << 20) for _ in range(2000)]"]
        with pytest.raises(SplatfixError) as caught:
            run(docker_engine.engine, lane_image, tmp_path, greedy, memory="64m")
        assert (caught.value.code, caught.value.exit_code) == ("container-out-of-memory", Exit.UNDETERMINED)

    def test_timeout_removes_the_container(
        self, docker_engine: TestEngine, lane_image: Image, tmp_path: Path
    ) -> None:
        lane = f"timeout-{uuid.uuid4().hex}"
        slow = ["python", "-c", "import time; print('begun'); time.sleep(300)"]
        started = time.monotonic()
        with pytest.raises(SplatfixError) as caught:
            run(docker_engine.engine, lane_image, tmp_path, slow, timeout_s=3, lane=lane)
        assert time.monotonic() - started < 60
        assert (caught.value.code, caught.value.exit_code) == ("container-timeout", Exit.UNDETERMINED)
        assert caught.value.details["last_lines"] == ["begun"]
        assert containers_of(docker_engine.engine, lane) == []

    def test_ctrl_c_removes_the_container(self, docker_engine: TestEngine, tmp_path: Path) -> None:
        lane = f"ctrl-c-{uuid.uuid4().hex}"
        assert "KeyboardInterrupt" in ended(docker_engine, lane, signal.SIGINT, tmp_path)
        assert containers_of(docker_engine.engine, lane) == []

    def test_what_a_kill_leaves_goes_with_the_next_run(
        self, docker_engine: TestEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of this machine's dead processes only: another's pid says nothing here."""
        engine, lane = docker_engine.engine, f"killed-{uuid.uuid4().hex}"
        ended(docker_engine, lane, signal.SIGKILL, tmp_path)
        assert [found.status for found in containers_of(engine, lane)] == ["running"]
        with monkeypatch.context() as patch:
            patch.setattr("splatfix.containers.owner._place", lambda: "another machine")
            assert sweep(engine) == 0
        assert sweep(engine) == 1
        assert containers_of(engine, lane) == []

    def test_a_killed_gpu_probe_leaves_no_image(
        self, docker_engine: TestEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine = docker_engine.engine
        monkeypatch.setattr("splatfix.containers.owner._started", lambda pid: "1")  # what the label will say
        monkeypatch.setattr("docker.models.containers.ContainerCollection.create", killed)
        monkeypatch.setattr("docker.models.images.ImageCollection.remove", killed)
        with pytest.raises(KeyboardInterrupt):
            require_gpu(engine)
        monkeypatch.undo()
        probes = [image for image in engine.client.images.list() if "splatfix-gpu-probe" in str(image.tags)]
        assert len(probes) == 1 and sweep(engine) == 1
        assert not any("splatfix-gpu-probe" in str(image.tags) for image in engine.client.images.list())


def killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def ended(docker_engine: TestEngine, lane: str, number: signal.Signals, folder: Path) -> str:
    """A process is sent ``number`` while its container runs, and not before a sweep has left that alone; its stderr."""
    script = (
        "import signal, sys\nfrom pathlib import Path\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a test run in the background inherits "ignored"
        "from splatfix.containers.engine import connect\nfrom splatfix.containers.image import Image\n"
        "from splatfix.containers.run import run_in_container\n"
        "run_in_container(connect(sys.argv[1]), Image('', sys.argv[2], '', '', True), ['sleep', '300'],"
        " lane=sys.argv[3], gpu=False, timeout_s=300, out=Path('.'), progress=print,"
        " log=Path('container.log'))\n"
    )
    engine = docker_engine.engine
    child = subprocess.Popen(
        [sys.executable, "-c", script, engine.endpoint.host, docker_engine.base_image, lane],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not any(c.status == "running" for c in containers_of(engine, lane)):
            assert time.monotonic() < deadline
            assert child.poll() is None
            time.sleep(0.1)
        assert sweep(engine) == 0
        child.send_signal(number)
        return child.communicate(timeout=60)[1]
    finally:
        child.kill()
        child.wait()


class TestCertify:
    def certify(self, docker_engine: TestEngine, out: Path, **options: Any) -> Any:
        return certify_in_container(
            "cpu",
            out=out,
            docker_host=docker_engine.engine.endpoint.host,
            base_image=docker_engine.base_image,
            progress=print,
            **options,
        )

    def test_exit_code_of_the_certificate(
        self, docker_engine: TestEngine, lane_image: Image, tmp_path: Path
    ) -> None:
        result = self.certify(docker_engine, tmp_path / "out", command=report_and_exit(1))
        assert result.exit_code == 1
        assert result.certificate["argv"] == ["1"]
        assert (tmp_path / "out" / "certificate.md").read_text() == "# certificate\n"
        assert (tmp_path / "out" / "container.log").is_file()
        assert (tmp_path / "out" / "image-build.log").is_file()
        made_in = json.loads((tmp_path / "out" / "container.json").read_text())
        assert made_in["image"]["id"] == result.image.id
        assert any(pin.startswith("torch==") and pin.endswith("+cpu") for pin in made_in["packages"])
        assert containers_of(docker_engine.engine, "cpu") == []

    def test_missing_certificate_is_an_error(
        self, docker_engine: TestEngine, lane_image: Image, tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        out.mkdir()
        (out / "certificate.json").write_text('{"verdict": "certified"}')
        broken = ["python", "-c", "import sys; print('no torch here', file=sys.stderr); sys.exit(3)"]
        with pytest.raises(SplatfixError) as caught:
            self.certify(docker_engine, out, command=broken)
        assert (caught.value.code, caught.value.exit_code) == ("container-no-report", Exit.UNDETERMINED)
        assert "no torch here" in caught.value.meaning
        assert not (out / "certificate.json").exists()

    @pytest.mark.slow
    @pytest.mark.timeout(1800)
    def test_quick_suite_is_certified(self, docker_engine: TestEngine, tmp_path: Path) -> None:
        """The real certification of this checkout, with nothing standing in for anything."""
        result = self.certify(docker_engine, tmp_path / "out", suite="quick")
        assert result.certificate["verdict"] == "certified", result.certificate["reasons"]
        assert result.exit_code == 0
        assert result.certificate["environment"]["torch"].endswith("+cpu")
        assert result.certificate["environment"]["python"].startswith("3.11.")
        assert (tmp_path / "out" / "certificate.md").is_file()


class TestGpu:
    """On an engine without the NVIDIA Container Toolkit, as on every machine without an NVIDIA GPU."""

    @pytest.fixture(autouse=True)
    def engine_without_gpus(self) -> None:
        if shutil.which("nvidia-container-runtime-hook"):
            pytest.skip("the NVIDIA Container Toolkit is installed here")

    def test_checked_before_any_download(self, docker_engine: TestEngine) -> None:
        before = {image.id for image in docker_engine.engine.client.images.list()}
        with pytest.raises(SplatfixError) as caught:
            require_gpu(docker_engine.engine)
        assert (caught.value.code, caught.value.exit_code) == (
            "docker-gpu-runtime-missing",
            Exit.UNDETERMINED,
        )
        assert {image.id for image in docker_engine.engine.client.images.list()} == before

    def test_checked_at_the_run(self, docker_engine: TestEngine, lane_image: Image, tmp_path: Path) -> None:
        lane = f"gpu-{uuid.uuid4().hex}"
        with pytest.raises(SplatfixError) as caught:
            run(docker_engine.engine, lane_image, tmp_path, ["true"], gpu=True, lane=lane)
        assert caught.value.code == "docker-gpu-runtime-missing"
        assert containers_of(docker_engine.engine, lane) == []
