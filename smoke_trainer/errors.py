"""Errors that a person reads: what happened, what it means, what to do; and the exit code that goes with each."""

from __future__ import annotations

from typing import Dict

EXIT_OK = 0
EXIT_FAILURE = 1  # the trainer ran and found something wrong
EXIT_USAGE = 2  # the command or its arguments are wrong
EXIT_UNKNOWN = 3  # the question could not be answered (no such renderer here, unreadable scene)


class SmokeTrainerError(Exception):
    """Base of all errors that end a run with a message instead of a traceback."""

    code = "smoke-trainer-error"
    exit_code = EXIT_FAILURE

    def __init__(self, happened: str, meaning: str = "", remedy: str = "") -> None:
        super().__init__(happened)
        self.happened = happened
        self.meaning = meaning
        self.remedy = remedy

    def __str__(self) -> str:
        parts = [self.happened]
        if self.meaning:
            parts.append(f"  meaning: {self.meaning}")
        if self.remedy:
            parts.append(f"  what to do: {self.remedy}")
        return "\n".join(parts)

    def as_json(self) -> Dict[str, str]:
        """For a JSON document."""
        return {
            "code": self.code,
            "happened": self.happened,
            "meaning": self.meaning,
            "remedy": self.remedy,
        }


class UsageError(SmokeTrainerError):
    """An argument makes no sense."""

    code = "wrong-usage"
    exit_code = EXIT_USAGE


class SceneError(SmokeTrainerError):
    """A scene is missing, incomplete or damaged, so nothing can be said about training."""

    code = "unreadable-scene"
    exit_code = EXIT_UNKNOWN


class CannotWrite(SmokeTrainerError):
    """The output folder cannot take what the run leaves behind, so that its outcome would be lost."""

    code = "cannot-write"
    exit_code = EXIT_UNKNOWN


class RendererUnavailable(SmokeTrainerError):
    """The renderer that was asked for cannot run here; another one is never taken silently."""

    code = "renderer-unavailable"
    exit_code = EXIT_UNKNOWN


class PackageMissing(SmokeTrainerError):
    """What the trainer itself stands on is not installed here, or cannot be loaded."""

    code = "package-missing"
    exit_code = EXIT_UNKNOWN


class TrainingFailed(SmokeTrainerError):
    """Training started and broke: a loss that is not a number, no Gaussians left, a renderer that failed."""

    code = "training-failed"
    exit_code = EXIT_FAILURE
