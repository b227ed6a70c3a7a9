"""Checks of a wheel: before installation its GPU code, tags and torch symbols, afterwards that it imports."""

from __future__ import annotations

import ast
import json
import re
import secrets
from collections.abc import Collection, Sequence
from pathlib import Path, PurePath

from packaging.utils import canonicalize_name

from splatfix.binaries import BinaryError
from splatfix.binaries.wheel import opened_wheel
from splatfix.context import make_context
from splatfix.core.errors import SplatfixError
from splatfix.core.proof import Rung, RungName
from splatfix.core.reading import read_text
from splatfix.core.runner import Completed
from splatfix.core.step import run, say
from splatfix.facts.source.reader import FolderReader, NotPython
from splatfix.install.environment import Environment
from splatfix.install.installed import find_installed
from splatfix.install.wheels import WheelFile
from splatfix.knowledge import Arch
from splatfix.knowledge.imports import requirement_of
from splatfix.knowledge.wheel_tags import tag_fits
from splatfix.model import Facts, loaded_fatbins
from splatfix.wheels.contents import prove_natives
from splatfix.wheels.names import wheel_target

# In order: the loader, for what links -lcuda; torch/csrc/cuda/Module.cpp and torch/cuda/__init__.py; numba and cupy.
_NO_GPU = re.compile(
    r"libcuda\.so\.1: cannot open shared object file|Found no NVIDIA driver|No CUDA GPUs are available"
    r"|cudaErrorNoDevice|CUDA_ERROR_NO_DEVICE|no CUDA-capable device is detected"
)
_FRAME = re.compile(r'^  File "([^"]+)", line (\d+), in ', re.MULTILINE)
_ASKS = re.compile(r"\bcuda\.(is_available|device_count|get_device_\w+)\(")
_IMPORT_TIMEOUT = 300.0

# torch first: extensions link its libraries and do not say where they lie. One answer per line, flushed, so that a
# crash shows at which module it came.
_IMPORT_ALL = """
import importlib, json, sys
from importlib.machinery import PathFinder
mark, checkout, *modules = sys.argv[1:]
del sys.argv[1:]
# Finds what nothing else does. On sys.path a package with an __init__.py would win over an installed one without, as HTGS's does.
class Checkout:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [checkout]) if checkout and path is None else None
sys.meta_path.append(Checkout)
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


def verify_wheel(wheel: WheelFile, targets: Sequence[Arch], facts: Facts, *, expects_gpu_code: bool) -> Rung:
    """Check everything about a wheel that can be checked without installing it, and return the rung ``built``.

    Every fatbin of every native member must serve these targets. With ``expects_gpu_code`` a wheel without any is wrong.
    Raises ``wheel-does-not-fit``, ``no-gpu-code``, and as :func:`prove_natives`.
    """
    context = make_context(facts)
    if not any(tag_fits(tag, wheel_target(context)) for tag in wheel.tags):
        interpreter = context.interpreter
        assert interpreter is not None
        here, name = f"{interpreter.version} on {interpreter.platform_tag}", wheel.path.name
        raise SplatfixError.of("install.wheel-does-not-fit", name=name, tags=wheel.tags, here=here)
    try:
        with opened_wheel(wheel.path) as archive:
            natives, shown = prove_natives(archive, targets, context)
    except BinaryError as error:
        raise SplatfixError.of("install.damaged-native-file", name=wheel.path.name, error=error) from error
    has_gpu_code = any(loaded_fatbins(binary.fatbins) for binary in natives)
    if expects_gpu_code and not has_gpu_code:
        raise SplatfixError.of("install.no-gpu-code", name=wheel.path.name)
    if not natives:
        shown = ["pure Python, fits this interpreter, no GPU code needed"]
    elif not has_gpu_code:
        shown.insert(0, "native code for the CPU only, fits this interpreter")
    return Rung(RungName.BUILT, True, "; ".join(shown))


def refuse_unplanned(wheel: WheelFile, subject: str, environment: Environment) -> None:
    """Raise ``replaces-unplanned`` for a wheel that would replace what is not in the plan: a setup.py may compute its name."""
    if canonicalize_name(wheel.name) == canonicalize_name(subject):
        return
    for replaced in find_installed(environment, wheel.name):
        uninstall = environment.installer.command(environment.python, "uninstall", wheel.name)
        todo = (
            say("Look at the name that its setup.py computes."),
            run(*uninstall, text="To replace it, remove it first"),
        )
        there = f"{replaced.name} {replaced.version}"
        raise SplatfixError.of(
            "install.replaces-unplanned", subject=subject, name=wheel.name, there=there, todo=todo
        )


def check_import(
    modules: Sequence[str],
    installed: Collection[Path] | None,
    environment: Environment,
    has_gpu: bool = True,
    *,
    caller: str = "",
    checkout: str = "",
) -> Rung:
    """Import ``modules`` one after the other; the rung ``loads`` is reached, or not shown for want of a GPU.

    Raises ``import-failed`` or ``import-shadowed``.

    Args:
        installed: the files the installation wrote; each module must come from one of them. None for what was there before.
        has_gpu: a GPU is there; without one a package may ask for one while it is imported, and is not taken back.
        caller: a module of another package that is imported last, since it is what imports the others; "" for none.
        checkout: the folder that its trainers run in, whose own modules it may import (bvh_tracing of Relightable3DGaussian
            imports ``utils``); "" for none.
    """
    wanted = list(filter(None, [*modules, caller]))
    # which no module can know: it may print what it likes, and end the interpreter as if all were well
    mark = f"splatfix-imported-{secrets.token_hex(8)} "
    completed = environment.run("-c", _IMPORT_ALL, mark, checkout, *wanted, timeout=_IMPORT_TIMEOUT)
    answers = [line.removeprefix(mark) for line in completed.stdout.splitlines() if line.startswith(mark)]
    loaded = dict(json.loads(answer) for answer in answers)
    after = ""
    if "torch" not in modules and loaded.pop("torch", None):
        after = " after torch"
    ours = {path.resolve() for path in installed or ()}
    for name, file in loaded.items():
        if installed is not None and file and name != caller and Path(file).resolve() not in ours:
            raise SplatfixError.of("install.import-shadowed", name=name, file=file)
    missing = [name for name in wanted if name not in loaded]
    demand = missing and not has_gpu and wants_gpu(completed.stderr)
    if demand:
        reason = f"{missing[0]} asks for a GPU as it is imported, and none is here ({demand})"
        return Rung(RungName.LOADS, None, reason)
    if not completed.ok or missing:
        # the interpreter may also die after the last import
        raise _import_failed([*missing, wanted[-1]][0], completed, before=installed is None)
    shown = f"imported {', '.join(wanted)}{after} in a child process, in {completed.seconds:.1f} s"
    return Rung(RungName.LOADS, True, shown)


def _import_failed(module: str, completed: Completed, *, before: bool) -> SplatfixError:
    lines = [line for line in completed.stderr.splitlines() if line.strip()]
    # the last line of a Python error says it best
    message = lines[-1].strip() if lines and completed.returncode == 1 else completed.why()
    message = message or "it ended the interpreter in the middle of its import, with exit code 0"
    details = {"module": module, "stderr": "\n".join(lines[-30:])}
    if before:
        return SplatfixError.of("install.needed-import-fails", module=module, reason=message, details=details)
    todo = []
    if absent := re.search(r"No module named '(\w+)", message):
        name = requirement_of(absent.group(1)) or absent.group(1)
        todo = [f"Install {name} with pip, then run the same command again."]
    elif symbol := re.search(r"undefined symbol: (\S+)", message):
        todo = [f"A library that defines {symbol.group(1)} is not linked; see libraries in its setup.py."]
        if re.search(r"3c10|2at|5torch", symbol.group(1)):
            cause = "That symbol is torch's: it was compiled against another torch."
            todo = [f"{cause} Rebuild from clean sources."]
    advice = tuple(map(say, todo))
    return SplatfixError.of(
        "install.import-failed", module=module, reason=message, todo=advice, details=details
    )


def wants_gpu(stderr: str) -> str | None:
    """Return where and how a failed import, whose traceback ends ``stderr``, asked for a GPU; None if it did not."""
    if message := _NO_GPU.search(stderr.strip().rpartition("\n")[2]):
        return message.group()
    frames = _FRAME.findall(stderr)
    text = read_text(frames[-1][0]) if frames else None
    if not isinstance(text, str):
        return None
    try:
        tree = FolderReader().parse(text)
    except NotPython:
        return None
    file, line = frames[-1][0], int(frames[-1][1])
    asking = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and _ASKS.search(ast.unparse(node.test))
    ]
    # the line stands below an ``if`` that asks torch for a GPU
    if any(node.lineno <= line <= (node.end_lineno or line) for node in asking):
        return f"{PurePath(file).name} line {line} raises an error where torch sees no GPU"
    return None
