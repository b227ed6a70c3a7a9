"""Imports what is needed, one after the other: there.py NAME=MODULE[|MODULE]...; a line of JSON for each.

Each line has the distribution's `name`, `problem` (why it does not import, "" where it does) and `lacks` (itself, or of a
distribution that is there and does not import what its metadata asks for and is not there). A name without a line is the
one whose import ended this process.
"""

import importlib
import importlib.metadata
import json
import sys


def lacking(name: str, seen: set[str]) -> list[str]:
    """Of a distribution and all that it needs, those that are not installed."""
    seen.add(name)
    try:
        needed = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return [name]
    try:
        from packaging.requirements import Requirement
    except ImportError:  # it is asked for by itself
        return []
    result = []
    for one in map(Requirement, needed):
        if one.name not in seen and (one.marker is None or one.marker.evaluate({"extra": ""})):
            result += lacking(one.name, seen)
    return result


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


def main() -> None:
    for word in sys.argv[1:]:
        name, _, modules = word.partition("=")
        problem = problem_of(modules.split("|"))
        lacks = lacking(name, set()) if problem else []
        print(json.dumps({"name": name, "problem": problem, "lacks": lacks}), flush=True)


if __name__ == "__main__":
    main()
