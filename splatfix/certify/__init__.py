"""Runs the trainer and the kernel checks in the target environment and judges the outcome against written criteria."""

from splatfix.certify.data import data_suite
from splatfix.certify.device import device_for, idle_gpu, require_gpu
from splatfix.certify.interrupted import Interrupted
from splatfix.certify.model import Certificate, Criterion, KernelCheck, Outcome, SceneRun, Skipped
from splatfix.certify.run import Request, certify, verify
from splatfix.certify.suites import SUITES, sample_suite, suite

__all__ = [
    "SUITES",
    "Certificate",
    "Criterion",
    "Interrupted",
    "KernelCheck",
    "Outcome",
    "Request",
    "SceneRun",
    "Skipped",
    "certify",
    "data_suite",
    "device_for",
    "idle_gpu",
    "require_gpu",
    "sample_suite",
    "suite",
    "verify",
]
