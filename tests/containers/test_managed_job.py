"""The container of a managed job, as the page's template has it, on a real engine without a GPU."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import TestEngine

PAGE = (Path(__file__).parents[2] / "docs" / "clusters" / "managed-job.md").read_text(encoding="utf-8")
TEMPLATE = json.loads(re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[0])
CONTAINER = TEMPLATE["containerProperties"]


def test_the_template_asks_for_what_the_page_says() -> None:
    assert {"type": "GPU", "value": "1"} in CONTAINER["resourceRequirements"]
    (mount,) = CONTAINER["mountPoints"]
    command = CONTAINER["command"]
    assert command[command.index("--out") + 1].startswith(f"{mount['containerPath']}/")
    assert mount["sourceVolume"] == CONTAINER["volumes"][0]["name"]
    rules = TEMPLATE["retryStrategy"]["evaluateOnExit"]
    assert len(rules) <= 5 and rules[-1] == {"action": "EXIT", "onReason": "*"}
    assert [rule["onExitCode"] for rule in rules if "onExitCode" in rule] == ["3"], (
        "only what may come out otherwise"
    )
    # the same command in the other forms of the page
    at_home = next(line for line in PAGE.splitlines() if line.startswith("docker run"))
    assert at_home.endswith(f"{CONTAINER['image']} {' '.join(command)}")
    (args,) = re.findall(r"args: \[(.*)\]", PAGE)
    assert args.split(", ")[:-1] == command[3:-1]


@pytest.mark.docker
def test_the_container_runs_as_the_template_says(
    docker_engine: TestEngine, splatfix: Callable[..., object], tmp_path: Path
) -> None:
    client, host = docker_engine.engine.client, docker_engine.engine.endpoint.host
    image = "registry.example/splatfix:test"
    built = splatfix(
        *("lanes", "build", "cpu", "--tag", image, "--base-image", docker_engine.base_image),
        *("--docker-host", host, "--out", tmp_path, "--json"),
    )
    assert json.loads(built.stdout).get("tag") == image, built.stdout  # type: ignore[attr-defined]
    report = tmp_path / "report"
    report.mkdir(mode=0o777)
    report.chmod(0o777)
    (mount,) = CONTAINER["mountPoints"]
    volumes = {str(report): {"bind": mount["containerPath"], "mode": "rw"}}

    def exit_code(command: list[str]) -> int:
        container = client.containers.run(image, command, volumes=volumes, network_mode="none", detach=True)
        try:
            return int(container.wait(timeout=600)["StatusCode"])
        finally:
            container.remove(force=True)

    try:
        assert exit_code(CONTAINER["command"]) == 3, "it has no GPU"
        assert exit_code([*CONTAINER["command"], "--no-such-option"]) == 2
        short = ["--device", "cpu", "--scene", "plaza", "--iterations", "5"]
        words = " ".join(CONTAINER["command"]).replace("--device cuda --suite quick", " ".join(short)).split()
        assert exit_code(words) == 3, "five iterations are too few to judge"
        certificate = json.loads((report / "t4" / "certificate.json").read_text())
        assert certificate["verdict"] == "undetermined" and [
            run["scene"] for run in certificate["scenes"]
        ] == ["plaza"]
    finally:
        client.images.remove(image, force=True)
