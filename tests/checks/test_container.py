"""What a container lacks from outside: each check sees it fail, and its remedy is a command for the host."""

import pytest

from splatfix.checks import Status
from splatfix.facts import Confinement, Fact

from .conftest import Changer, of


def test_podman_and_containerd_are_called_by_their_own_names(changed: Changer) -> None:
    for container, program in (("podman", "podman"), ("containerd", "nerdctl"), ("buildkit", "docker")):
        facts = changed(container=container, confinement=Fact(Confinement(shm=8 * 2**20), "test"))
        (finding,) = of(facts, "container-shm-small")
        command = finding.remedy[0].command
        assert command and command.argv[:2] == (program, "run") and command.blanks == ("IMAGE",)
    closed = Confinement(closed_devices=("/dev/nvidia0",), user=1000)
    (finding,) = of(changed(container="podman", confinement=Fact(closed, "test")), "container-device-closed")
    assert "keep-groups" in finding.remedy[1].line()


NO_GPU: dict[str, object] = {
    "gpus": Fact(None, "", "no NVML"),
    "driver": Fact(None, "PCI", "no NVIDIA driver", absent=True),
}


@pytest.mark.parametrize(
    ("container", "wsl", "words"),
    [
        ("docker", False, ("docker run --gpus all IMAGE", "nvidia-ctk runtime configure")),
        ("docker", True, ("docker run --gpus all IMAGE", "wsl --update", "Docker Desktop")),
        ("podman", False, ("podman run --device nvidia.com/gpu=all IMAGE", "nvidia-ctk cdi generate")),
        ("containerd", False, ("nerdctl run --gpus all IMAGE", "NVIDIA Container Toolkit")),
        ("kubernetes", False, ("nvidia.com/gpu: 1", "device plugin")),
        ("apptainer", False, ("apptainer exec --nv IMAGE",)),
        ("buildkit", False, ("--target",)),
    ],
)
def test_how_a_container_gets_its_gpu(
    changed: Changer, container: str, wsl: bool, words: tuple[str, ...]
) -> None:
    for variables, status in (({}, Status.SKIP), ({"NVIDIA_VISIBLE_DEVICES": "all"}, Status.WARN)):
        facts = changed(
            container=container,
            wsl=wsl,
            confinement=Fact(Confinement(user=0), "test"),
            device_files=Fact((), "/dev"),
            variables=variables,
            **NO_GPU,
        )
        (finding,) = of(facts, "gpu-not-passed-to-container")
        told = " | ".join(step.line(windows=False) for step in finding.remedy)
        assert finding.status is status and all(word in told for word in words), told
        assert any(item.name == "/dev/nvidia*" for item in finding.evidence)
        assert any(item.name == "/dev/dxg" for item in finding.evidence) is wsl
