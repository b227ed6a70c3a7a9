from __future__ import annotations

import pytest

from splatfix.containers.gpu import explain_gpu_failure
from splatfix.core.errors import Exit


@pytest.mark.parametrize(
    ("message", "code"),
    [
        # Docker 19.03 to 28 without the NVIDIA Container Toolkit (github.com/docker/cli/issues/2425)
        ('could not select device driver "" with capabilities: [[gpu]]', "docker-gpu-runtime-missing"),
        ('could not select device driver "nvidia" with capabilities: [[gpu]]', "docker-gpu-runtime-missing"),
        # Docker 29 (github.com/ShaneIsrael/fireshare/issues/689)
        ("failed to discover GPU vendor from CDI: no known GPU vendor found", "docker-gpu-runtime-missing"),
        # toolkit there, driver not loaded (github.com/NVIDIA/nvidia-docker/issues/1393)
        (
            "OCI runtime create failed: error running hook: exit status 1, stderr: nvidia-container-cli: "
            "initialization error: nvml error: driver not loaded: unknown",
            "docker-gpu-unusable",
        ),
        # toolkit there, driver not installed (github.com/huan/docker-wechat/issues/173)
        (
            "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared "
            "object file: no such file or directory: unknown.",
            "docker-gpu-unusable",
        ),
    ],
)
def test_known_refusals(message: str, code: str) -> None:
    error = explain_gpu_failure(message, "unix:///engine.sock")
    assert error is not None
    assert (error.code, error.exit_code) == (code, Exit.UNDETERMINED)
    assert message in error.what, "the engine's own words are the evidence"
    assert error.todo


def test_other_refusals_are_not_about_gpus() -> None:
    message = 'exec: "splatfix": executable file not found in $PATH: unknown'
    assert explain_gpu_failure(message, "unix:///engine.sock") is None
