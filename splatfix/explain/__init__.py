"""A log in, ranked causes out: one engine for all who read failures, and one data file for each failure."""

from splatfix.explain.build_output import (
    BuildFailure,
    explain_build,
    explain_gpu_refusal,
    explain_image_build,
)
from splatfix.explain.engine import MachineEvidence, cause_of, explain, explain_text, known_classes
from splatfix.explain.model import Certainty, Explanation, Failure, FailureCause
