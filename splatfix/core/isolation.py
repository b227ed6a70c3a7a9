"""What a child process takes from the folder in which splatfix was started, which may be a stranger's checkout: nothing."""

import os
from collections.abc import Mapping
from pathlib import Path

EMPTY = Path(__file__).with_name("empty")
"""Where a child starts: ``python -c`` and ``python -m`` import from there, and options such as ``-I`` and ``-P`` are either
too new for target interpreters or hide the user's own packages."""

# They make a child of Python run a file of the user's, stay at a prompt, or take itself for another interpreter (macOS).
_DROPPED = ("PYTHONSTARTUP", "PYTHONINSPECT", "__PYVENV_LAUNCHER__")
_PATHS_OF_PIP = {
    "PIP_CERT",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "PIP_FIND_LINKS",
    "PIP_CONFIG_FILE",
    "PIP_CONSTRAINT",
}


def isolated(env: Mapping[str, str] | None) -> dict[str, str]:
    """Return the variables of a child; None stands for this process's own.

    An interpreter that is only asked something must not write bytecode into what it belongs to; pip compiles what it
    installs all the same.
    """
    given = os.environ if env is None else env
    kept = {name: value for name, value in given.items() if name not in _DROPPED}
    for name in _PATHS_OF_PIP & kept.keys():  # a person meant them from where they typed
        kept[name] = " ".join(
            os.path.abspath(word) if os.path.exists(word) else word  # noqa: PTH100, PTH110 - may be an address
            for word in kept[name].split(" ")
        )
    return {"PYTHONDONTWRITEBYTECODE": "1", **without_relative_path(kept)}


def without_relative_path(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without the folders in PATH that are below the current one, such as ``.`` or an empty word."""
    folders = env.get("PATH", os.defpath).split(os.pathsep)
    # before every child, and fast
    absolute = [folder for folder in folders if os.path.isabs(folder.strip('"'))]  # noqa: PTH117
    return {**env, "PATH": os.pathsep.join(absolute)}


def find_program(name: str, path: str | None = None) -> str | None:
    """Return the program that ``name`` stands for: a path as it is, a bare name in the folders of ``path`` (default: PATH).

    Windows itself would look into the current folder first, and :func:`shutil.which` with it.
    """
    if any(sign in name for sign in "/\\" if sign in (os.sep, os.altsep)):
        return os.path.abspath(name)  # noqa: PTH100 - resolve() follows links, and a venv is known by its link
    if os.name == "nt" and not name.lower().endswith(".exe"):
        name += ".exe"
    if path is None:
        path = without_relative_path(os.environ)["PATH"]
    for folder in path.split(os.pathsep):
        program = os.path.join(folder.strip('"'), name)  # noqa: PTH118 - before every child, and fast
        if os.path.isfile(program) and os.access(program, os.X_OK):  # noqa: PTH113
            return program
    return None
