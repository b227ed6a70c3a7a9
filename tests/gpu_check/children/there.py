"""Imports what is needed, one after the other: there.py NAME=MODULE[|MODULE]...; a line for each.

Each line has the name, a tab, and why it does not import; nothing where it, or another of its modules, does. A name without a
line is the one whose import ended this process.
"""

import importlib
import sys


def problem_of(modules: list[str]) -> str:
    """Why none of them imports; "" where one does."""
    message = ""
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 - a broken package may raise anything
            message = message or f"{type(error).__name__}: {error}".partition("\n")[0]
        else:
            return ""
    return message


for word in sys.argv[1:]:
    name, _, modules = word.partition("=")
    print(f"{name}\t{problem_of(modules.split('|'))}", flush=True)
