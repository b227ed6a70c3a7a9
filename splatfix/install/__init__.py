"""Executes a plan and undoes it: build, verify, install, journal, revert. The only room that changes an environment."""

from splatfix.install.downloads import fetch_source
from splatfix.install.environment import open_environment
from splatfix.install.execute import execute
from splatfix.install.journal import Entry, EntryStatus, Journal, request_to_resume
from splatfix.install.outcome import (
    CachedWheel,
    InstalledItem,
    InstallOutcome,
    InstallProgress,
    RevertOutcome,
)
from splatfix.install.undo import revert, revert_all
from splatfix.install.wheel_cache import WheelCache
