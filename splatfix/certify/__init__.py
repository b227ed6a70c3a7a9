"""Runs the trainer and the kernel checks in the target environment and judges the outcome against written criteria."""

from splatfix.certify.engine import Interrupted, certify, verify
from splatfix.certify.environment import device_for, renderer_for
from splatfix.certify.kernels import IMPLEMENTATIONS
from splatfix.certify.model import Certificate, Criterion, KernelCheck, Outcome, SceneRun, Verdict
from splatfix.certify.report_folder import make_room, report_lock
from splatfix.certify.request import CertifyRequest
from splatfix.certify.scenes import SUITES, Suite, data_suite, sample_suite
from splatfix.certify.subject import SmokeSubject, smoke_subject
