"""The pods of ``splatfix fleet manifest``, played by a real Podman, on a node that is well and on a broken one."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from splatfix.core.codec import to_json
from tests.conftest import ROOT
from tests.containers.conftest import TestEngine
from tests.fleet.test_manifest import IMAGE, KINDS, made, parsed
from tests.machines import facts_of


@pytest.mark.docker
@pytest.mark.timeout(600)
def test_podman_plays_the_pods(podman_engine: TestEngine, tmp_path: Path) -> None:
    """Podman 4.3 knows no Job, DaemonSet, ``spec.nodeName`` or readiness probe, and without root sets no limits: the pods are
    played, with those replaced, the probe's command is run in its pod, and the broken node is one that was recorded."""
    yaml = pytest.importorskip("yaml")
    if not shutil.which("catatonit"):
        pytest.skip("NOT PLAYED BY PODMAN: catatonit is not installed")
    for name in ("splatfix", "smoke_trainer", "patches", "dockerfiles"):
        shutil.copytree(ROOT / name, tmp_path / "site" / name, ignore=shutil.ignore_patterns("__pycache__"))
    installed = Path(pytest.__file__).parents[1]
    needed = "typer rich packaging markdown_it mdurl pygments shellingham click annotated_doc"
    for name in needed.split():
        if (installed / name).is_dir():
            shutil.copytree(installed / name, tmp_path / "site" / name)
    for name in ("pynvml.py", "typing_extensions.py"):
        shutil.copy(installed / name, tmp_path / "site")
    (tmp_path / "broken.json").write_text(json.dumps(to_json(facts_of("driver-without-reboot"))))
    (tmp_path / "Dockerfile").write_text(
        f"FROM {podman_engine.base_image}\nCOPY site /opt/site\nCOPY broken.json /\n"
        "RUN ln -s /usr/bin/python3 /usr/local/bin/python\nENV PYTHONPATH=/opt/site HOME=/scratch\n"
    )
    podman_engine.engine.client.images.build(path=str(tmp_path), tag=IMAGE, network_mode="host")

    def podman(*words: object) -> "subprocess.CompletedProcess[str]":
        argv = ["podman", "--url", podman_engine.engine.endpoint.host, *words]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    def play(kind: str, broken: bool) -> tuple[int, list[str]]:
        """Podman's exit code, and what the probe of a DaemonSet runs."""
        template = parsed(made(kind))["spec"]["template"]
        template["metadata"]["name"] = "pod"
        pod = template["spec"]
        for container in (*pod["containers"], *pod.get("initContainers", [])):
            del container["resources"]
            container["env"] = [{"name": "NODE_NAME", "value": "node-7"}]
            if container["name"] == "training":
                container["command"] = ["echo", "it trains"]
        (gate,) = pod["initContainers" if kind == "init" else "containers"]
        command: list[str] = gate.get("readinessProbe", {}).get("exec", gate)["command"]
        if broken:
            command[-1] += " --facts=/broken.json"
        file = tmp_path / "pod.yaml"
        file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **template}))
        return podman("kube", "play", "--network", "host", file).returncode, command

    def ended(name: str) -> tuple[int, str]:
        container = podman_engine.engine.client.containers.get(f"pod-{name}")
        return container.wait(timeout=60)["StatusCode"], container.logs().decode()

    for broken in (False, True):
        for kind in KINDS:
            code, command = play(kind, broken)
            if kind == "daemonset":
                # two failures in a row, as the default policy has it
                probed = [podman("exec", "pod-gate", *command).returncode for _ in range(2)]
                assert (code, probed) == (0, [0, int(broken)])
                assert podman("exec", "pod-gate", "touch", "/file").returncode, "its root is read-only"
            elif kind == "job":
                status, said = ended("gate")
                assert (code, status) == (0, int(broken)), said
                assert said.startswith("fail: driver-library" if broken else ("ok: ", "unknown: ")), said
            elif broken:
                assert code and not podman("logs", "pod-training").stdout, "no training starts"
            else:
                assert ended("training") == (0, "it trains\n")
            assert podman("pod", "rm", "--force", "pod").returncode == 0
