"""Imports what was installed, after torch, in a child of the target interpreter, and sees that it is ours that loads."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.proof import Rung, RungName
from splatfix.core.runner import Completed, Runner
from splatfix.core.step import Step, say
from splatfix.install.owned import temporary_folder
from splatfix.install.target import Target, child_environment

_TIMEOUT = 300.0
_MARK = "splatfix-imported "

# torch first: extensions link its libraries and do not say where they lie. One answer per line, flushed, so that a
# crash shows at which module it came.
_SCRIPT = """
import importlib, json, sys
mark, modules = sys.argv[1], sys.argv[2:]
def load(name):
    module = importlib.import_module(name)
    # on a line of its own, whatever the module has printed
    print()
    print(mark + json.dumps([name, getattr(module, "__file__", None)]), flush=True)
try:
    load("torch")
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
for name in modules:
    load(name)
"""


def check_import(modules: Sequence[str], installed: Collection[Path], target: Target, runner: Runner) -> Rung:
    """Import ``modules`` one after the other.

    Args:
        installed: the files the installation wrote; each module must come from one of them.

    Returns:
        The rung ``loads``.

    Raises:
        SplatfixError: ``import-failed`` or ``import-shadowed``.
    """
    with temporary_folder("splatfix-import-") as empty:
        argv = [target.python, "-c", _SCRIPT, _MARK, *modules]
        done = runner.run(argv, timeout=_TIMEOUT, cwd=empty, env=child_environment())
    loaded = dict(
        json.loads(line.removeprefix(_MARK)) for line in done.stdout.splitlines() if line.startswith(_MARK)
    )
    after = " after torch" if loaded.pop("torch", None) else ""
    ours = {path.resolve() for path in installed}
    for name, file in loaded.items():
        if file and Path(file).resolve() not in ours:
            raise SplatfixError(
                "import-shadowed",
                f"import {name} loads {file}, which is not what was installed.",
                meaning="Another copy of the module comes first on sys.path; everything was put back as it was.",
                todo=(say(f"Remove that copy, or the distribution it belongs to: {file}"),),
            )
    missing = [name for name in modules if name not in loaded]
    if not done.ok or missing:
        raise _import_failed(missing[0] if missing else modules[-1], done)
    how = f"imported {', '.join(modules)}{after} in a child process, in {done.seconds:.1f} s"
    return Rung(RungName.LOADS, True, how)


def _import_failed(module: str, done: Completed) -> SplatfixError:
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    said = lines[-1].strip() if lines and done.returncode == 1 else done.why()
    said = said or "it ended the interpreter in the middle of its import, with exit code 0"
    return SplatfixError(
        "import-failed",
        f"{module} does not import: {said}",
        meaning="It was installed, failed its check, and everything was put back as it was.",
        todo=_advice(said),
        details={"module": module, "stderr": "\n".join(lines[-30:])},
    )


def _advice(said: str) -> tuple[Step, ...]:
    symbol = re.search(r"undefined symbol: (\S+)", said)
    if symbol is None:
        return ()
    if re.search(r"3c10|2at|5torch", symbol.group(1)):
        return (
            say("That symbol is torch's: it was compiled against another torch. Rebuild from clean sources."),
        )
    return (say(f"A library that defines {symbol.group(1)} is not linked; see libraries in its setup.py."),)
