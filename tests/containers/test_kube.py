"""The Job of ``splatfix fleet manifest``, played by a real Podman."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.containers.conftest import TestEngine
from tests.fleet.test_manifest import IMAGE, made, parsed


@pytest.mark.docker
@pytest.mark.timeout(600)
def test_podman_plays_the_job(podman_engine: TestEngine, tmp_path: Path) -> None:
    """Podman 4.3 knows neither a Job nor ``spec.nodeName``, and without root sets no limits: its pod is played, with those
    replaced, and nothing else."""
    yaml = pytest.importorskip("yaml")
    if not shutil.which("catatonit"):
        pytest.skip("NOT PLAYED BY PODMAN: catatonit is not installed")
    for name in ("splatfix", "smoke_trainer", "patches", "dockerfiles"):
        shutil.copytree(ROOT / name, tmp_path / "site" / name, ignore=shutil.ignore_patterns("__pycache__"))
    installed = Path(pytest.__file__).parents[1]
    for name in (
        "typer",
        "rich",
        "packaging",
        "markdown_it",
        "mdurl",
        "pygments",
        "shellingham",
        "click",
        "annotated_doc",
    ):
        if (installed / name).is_dir():
            shutil.copytree(installed / name, tmp_path / "site" / name)
    for name in ("pynvml.py", "typing_extensions.py"):
        shutil.copy(installed / name, tmp_path / "site")
    (tmp_path / "Dockerfile").write_text(
        f"FROM {podman_engine.base_image}\nCOPY site /opt/site\nRUN ln -s /usr/bin/python3 /usr/local/bin/python\n"
        "ENV PYTHONPATH=/opt/site HOME=/scratch\n"
    )
    podman_engine.engine.client.images.build(path=str(tmp_path), tag=IMAGE, network_mode="host")
    template = parsed(made("job"))["spec"]["template"]
    template["metadata"]["name"] = "gate"
    (gate,) = template["spec"]["containers"]
    gate["env"] = [{"name": "NODE_NAME", "value": "node-7"}]
    del gate["resources"]
    pod = tmp_path / "pod.yaml"
    pod.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **template}))
    podman = ["podman", "--url", podman_engine.engine.endpoint.host]
    played = subprocess.run(
        [*podman, "kube", "play", "--network", "host", pod], capture_output=True, text=True
    )
    assert played.returncode == 0, played.stderr
    container = podman_engine.engine.client.containers.get("gate-gate")
    assert container.wait(timeout=60)["StatusCode"] == 0
    said = container.logs().decode()
    assert said.startswith(("ok: ", "unknown: ")), said
    subprocess.run([*podman, "pod", "rm", "--force", "gate"], check=True, capture_output=True)
