"""Carries a plan out and takes it back: build, verify, install, journal, revert. The only room that changes an environment."""

from splatfix.install.execute import execute
from splatfix.install.fetch import fetch_source
from splatfix.install.journal import Entry, Journal, Status
from splatfix.install.outcome import CachedWheel, InstalledItem, Outcome, RevertOutcome
from splatfix.install.progress import Progress, Silent
from splatfix.install.resume import request_to_resume
from splatfix.install.revert import read_journal, revert, revert_all
from splatfix.install.wheel_cache import WheelCache

__all__ = [
    "CachedWheel",
    "Entry",
    "InstalledItem",
    "Journal",
    "Outcome",
    "Progress",
    "RevertOutcome",
    "Silent",
    "Status",
    "WheelCache",
    "execute",
    "fetch_source",
    "read_journal",
    "request_to_resume",
    "revert",
    "revert_all",
]
