"""Runs the trainer and the kernel checks in the target environment and judges the outcome against written criteria."""

from splatfix.certify.model import Certificate, Criterion, KernelCheck, Outcome, SceneRun
from splatfix.certify.run import Request, certify, run_and_report, verify
from splatfix.certify.suites import SUITES, suite

__all__ = [
    "SUITES",
    "Certificate",
    "Criterion",
    "KernelCheck",
    "Outcome",
    "Request",
    "SceneRun",
    "certify",
    "run_and_report",
    "suite",
    "verify",
]
