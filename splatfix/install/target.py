"""The environment that is installed into: its folders, as its own interpreter names them, and the children run in it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.runner import Runner
from splatfix.core.step import run, say
from splatfix.facts import refuse_other_program

# pip's own rule for headers: in a virtual environment they go to include/site, elsewhere where Python's own are
_SCRIPT = """
import json, os, sys, sysconfig
paths = sysconfig.get_paths()
if sys.prefix != getattr(sys, "base_prefix", sys.prefix):
    paths["include"] = os.path.join(sys.prefix, "include", "site", "python%d.%d" % sys.version_info[:2])
print(json.dumps([sys.prefix, paths]))
"""
_TIMEOUT = 30.0


@dataclass(frozen=True)
class Target:
    """One environment by its interpreter, with the folders pip installs into."""

    python: str
    prefix: Path
    purelib: Path
    platlib: Path
    scripts: Path
    data: Path
    headers: Path

    @property
    def own_folder(self) -> Path:
        """Where splatfix keeps the journal of this environment."""
        return self.prefix / ".splatfix"

    @property
    def sites(self) -> tuple[Path, ...]:
        """purelib and platlib, once when they are the same folder (lib64 is often a link to lib)."""
        same = self.purelib.resolve() == self.platlib.resolve()
        return (self.purelib,) if same else (self.purelib, self.platlib)

    def require_writable(self) -> None:
        """Raise ``cannot-write-environment`` unless the folders can be changed."""
        for folder in (*self.sites, self.prefix):
            if folder.is_dir() and not os.access(folder, os.W_OK):
                raise SplatfixError(
                    "cannot-write-environment",
                    f"{folder} cannot be written to.",
                    meaning="Nothing was changed.",
                    todo=(
                        run("python3", "-m", "venv", "my-env", text="Use an environment of your own"),
                        say("then name it with --python my-env"),
                    ),
                )


def open_target(python: str, runner: Runner) -> Target:
    """Ask the interpreter for its folders.

    Raises:
        SplatfixError: ``interpreter-unusable``; ``no-interpreter`` (exit 2) for some other program.
    """
    done = runner.run([python, "-c", _SCRIPT], timeout=_TIMEOUT, env=child_environment())
    try:
        prefix, paths = json.loads(done.stdout.strip().splitlines()[-1]) if done.ok else (None, {})
    except (ValueError, IndexError):
        prefix, paths = None, {}
    if prefix is None:
        refuse_other_program(python, done.why() or "it does not answer as one")
        raise SplatfixError(
            "interpreter-unusable",
            f"The Python {python} does not answer: {done.why() or done.stdout.strip()[:200]}.",
            meaning="Nothing was changed.",
            todo=(say("Give another interpreter with --python."),),
        )
    folders = {name: Path(paths[name]) for name in ("purelib", "platlib", "scripts", "data")}
    return Target(python, Path(prefix), **folders, headers=Path(paths["include"]))


def child_environment(
    variables: Mapping[str, str] | None = None,
    unset: Iterable[str] = (),
    path_first: Iterable[str] = (),
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of a child of the target interpreter.

    pip's settings are left out, by variable and by file, because one of them (``target``, ``user``, ``prefix``) could
    send an installation elsewhere; so are PYTHONPATH and its kin, which could show another environment's packages.
    Nothing leaves bytecode behind that pip does not know of. A pip that a setup.py starts by itself reaches no index: it
    would change packages that no plan named.
    """
    found = dict(os.environ if base is None else base)
    dropped = {"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONSAFEPATH", "__PYVENV_LAUNCHER__", *unset}
    kept = {
        name: value for name, value in found.items() if name not in dropped and not name.startswith("PIP_")
    }
    kept |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
    kept |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    kept |= dict(variables or {})
    folders = [*path_first, kept.get("PATH", os.defpath)]
    kept["PATH"] = os.pathsep.join(folders)
    return kept
