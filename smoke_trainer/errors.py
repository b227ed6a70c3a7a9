"""Errors for people: what happened, what it means, what to do; and the exit code of each."""

from __future__ import annotations

EXIT_UNKNOWN = 3  # no answer is possible (the renderer cannot run here, the scene cannot be read)

CPU_HINT = "run again with --renderer torch on the CPU: if that works, the GPU kernels are at fault"


def exit_code_of(status: str) -> int:
    """By how a run ended, or an error's code: 1 where training ran and something is wrong, 2 where the command or its
    arguments are wrong."""
    return {"ok": 0, "failed": 1, "training-failed": 1, "wrong-usage": 2}.get(status, EXIT_UNKNOWN)


class SmokeTrainerError(Exception):
    """Base of all errors that end a run with a message instead of a traceback."""

    code = ""

    def __init__(self, message: str, note: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.note = note
        self.hint = hint

    def __str__(self) -> str:
        lines = [f"error[{self.code}]: {self.message}"]
        if self.note:
            lines.append(f"  note: {self.note}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class UsageError(SmokeTrainerError):
    """An argument is wrong."""

    code = "wrong-usage"


class SceneError(SmokeTrainerError):
    """A scene (or checkpoint) is missing, incomplete or damaged."""

    code = "unreadable-scene"


class Damage(SceneError):
    """A scene's file that is not of its kind, or not whole: `fault` without its path, and the beginning of a line that is none of
    its format. The message lacks that: a stranger's scene may have a link to a file of this machine there, and certificates
    are passed on."""

    def __init__(self, path: object, fault: str, line: str = "") -> None:
        note = "the file is damaged or truncated, or is of another kind"
        super().__init__(f"{path} {fault}", note, "copy or export the scene again")
        self.fault = fault
        self.line = line[:60]


class CannotWrite(SmokeTrainerError):
    """The output folder cannot be written."""

    code = "cannot-write"


class RendererUnavailable(SmokeTrainerError):
    """The renderer, kernel or device that was asked for cannot run here; none is replaced by another."""

    code = "renderer-unavailable"


class PackageMissing(SmokeTrainerError):
    """A package that the trainer needs is not installed, or cannot be loaded."""

    code = "package-missing"


class TrainingFailed(SmokeTrainerError):
    """Training started and broke: a loss that is not a number, no Gaussians left, a renderer that failed."""

    code = "training-failed"
