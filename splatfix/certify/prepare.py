"""What must be in place before a certification trains: packages, a device, an empty report folder, the child's variables."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from splatfix.certify.model import KernelCheck, Outcome
from splatfix.core.errors import Exit, SplatfixError, usage_error
from splatfix.core.files import make_folder, set_aside
from splatfix.core.step import run, say
from splatfix.facts import Facts


@dataclass(frozen=True)
class Purpose:
    """What an environment is needed for, in the words of the command that needs it."""

    command: str
    needs: tuple[str, ...]
    """Distributions that it cannot do without."""
    impossible: str
    nothing: str


CERTIFY = Purpose(
    "certify",
    ("torch", "numpy", "pillow"),
    "no training can run in it",
    "Nothing was certified or refused: there was nothing to look at.",
)
VERIFY = Purpose(
    "verify",
    ("torch",),
    "none of its kernels can be computed",
    "No kernel was found right or wrong: SSIM, kNN and rasterizer all run on torch.",
)


def require_packages(facts: Facts, python: str, purpose: Purpose) -> None:
    """Raise ``environment-not-ready`` (exit code 3) unless the interpreter works and has these distributions."""
    environment = facts.environment
    if environment.interpreter.value is None:
        raise SplatfixError(
            "environment-not-ready",
            f"The Python to {purpose.command} does not work: {environment.interpreter.error}",
            exit_code=Exit.UNDETERMINED,
        )
    have = {item.name.lower().replace("_", "-") for item in environment.distributions.value or ()}
    missing = [
        name
        for name in purpose.needs
        if name not in have and not (name == "torch" and environment.torch_installed.value)
    ]
    if missing:
        fill = (python, "-m", "pip", "install", *missing)
        other = ("splatfix", purpose.command, "--python", "path/to/venv")
        raise SplatfixError(
            "environment-not-ready",
            f"This environment lacks {' and '.join(missing)}, so {purpose.impossible}.",
            meaning=purpose.nothing,
            # an environment that splatfix has for itself is seldom the one that is meant
            todo=(
                run(*other, text="Name the environment of your splatting stack"),
                run(*fill, text="Or fill the one of splatfix itself"),
            )
            if python == sys.executable
            else (run(*fill), run(*other, text="Or name the environment of your splatting stack")),
            exit_code=Exit.UNDETERMINED,
        )


def require_device(kernels: tuple[KernelCheck, ...], device: str) -> None:
    """Raise ``no-gpu`` (exit code 3): a GPU that is not there is nothing to certify or refuse."""
    if device != "cpu" and all(item.outcome is Outcome.NOT_MEASURED for item in kernels):
        raise SplatfixError(
            "no-gpu",
            f"Nothing can run on {device}: {kernels[0].detail}.",
            meaning="Nothing was certified or refused: there was nothing to look at.",
            todo=(say("splatfix diagnose says what is in the way; --device cpu certifies without a GPU."),),
            exit_code=Exit.UNDETERMINED,
        )


def make_room(out: Path, scenes: tuple[str, ...]) -> None:
    """An empty report folder; what an earlier certification left there moves to ``previous``, where it misleads nobody.

    Raises:
        SplatfixError: ``cannot-write`` where that is impossible; ``not-our-folder`` (exit code 2) for a folder that a
            scene's report would take and that is none: the user's own data may lie there.
    """
    make_folder(out)
    foreign = [out / name for name in scenes if not _is_free_or_ours(out / name)]
    if foreign:
        raise usage_error(
            "not-our-folder",
            f"{foreign[0]} is there already, and is not the report of an earlier certification.",
            say("Choose another folder with --out."),
        )
    set_aside(out, ("certificate.json", "certificate.md", *scenes))


def _is_free_or_ours(folder: Path) -> bool:
    if not folder.exists():
        return True
    return folder.is_dir() and ((folder / "trainer.log").is_file() or not any(folder.iterdir()))


def child_variables(path: Path) -> dict[str, str]:
    """The child's environment: ours, with only the staged folder on PYTHONPATH; the runner adds that no bytecode is written."""
    variables = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    variables.update(PYTHONPATH=str(path), PYTHONUNBUFFERED="1")
    # spinning OpenMP threads collapse where cores are shared
    variables.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return variables
