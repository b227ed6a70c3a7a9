"""Runs the trainer and the kernel checks in the target environment and judges the outcome against written criteria."""

from splatfix.certify.kernels import IMPLEMENTATIONS
from splatfix.certify.model import (
    Certificate,
    Criterion,
    KernelCheck,
    Mend,
    Outcome,
    Request,
    SceneRun,
    Skipped,
    Suite,
    Verdict,
)
from splatfix.certify.prerequisites import device_for, idle_gpu, require_gpu
from splatfix.certify.run import Interrupted, certify, verify
from splatfix.certify.scenes import SUITES, data_suite, sample_suite

__all__ = [
    "IMPLEMENTATIONS",
    "SUITES",
    "Certificate",
    "Criterion",
    "Interrupted",
    "KernelCheck",
    "Mend",
    "Outcome",
    "Request",
    "SceneRun",
    "Skipped",
    "Suite",
    "Verdict",
    "certify",
    "data_suite",
    "device_for",
    "idle_gpu",
    "require_gpu",
    "sample_suite",
    "verify",
]
