"""A log in, ranked causes out, by the breakage records and facts."""

from splatfix.explain.engine import Machine, cause_of, explain, explain_text, known_classes
from splatfix.explain.model import Explanation, FailureCause, KnownClass

__all__ = [
    "Explanation",
    "FailureCause",
    "KnownClass",
    "Machine",
    "cause_of",
    "explain",
    "explain_text",
    "known_classes",
]
