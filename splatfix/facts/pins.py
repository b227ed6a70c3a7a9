"""The requirements that a checkout writes down: requirements files, conda environment files, pyproject.toml."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from splatfix.facts.model import Pin
from splatfix.facts.text_files import children_of, text_of

_PIN_NAMES = re.compile(r"[A-Za-z][\w.-]*")


def read_pins(root: Path) -> Iterator[Pin]:
    """Every requirement in the top folder's files, in order of the files' names."""
    for item in children_of(root):
        if re.fullmatch(r"requirements.*\.txt", item.name):
            yield from _requirements(item)
        elif re.fullmatch(r"(environment|requirements|conda).*\.ya?ml", item.name):
            yield from _conda_file(item)
        elif item.name == "pyproject.toml":
            yield from _project_file(item)


def _requirements(file: Path) -> Iterator[Pin]:
    for line in text_of(file).splitlines():
        if pin := _pin(file.name, line.partition("#")[0]):
            yield pin


def _project_file(file: Path) -> Iterator[Pin]:
    """The dependencies of a project that describes itself, as nerfstudio does."""
    toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        wanted = toml.loads(text_of(file)).get("project", {}).get("dependencies", ())
    except (ValueError, AttributeError):
        return  # setup-unreadable tells of a damaged file where it matters
    for line in wanted if isinstance(wanted, list) else ():
        if isinstance(line, str) and (pin := _pin(file.name, line)):
            yield pin


def _conda_file(file: Path) -> Iterator[Pin]:
    """The list items under ``dependencies`` of a conda environment file, and those for pip inside of it."""
    inside = False
    for line in text_of(file).splitlines():
        if re.match(r"\S", line):
            inside = line.startswith("dependencies:") or (inside and line.startswith("-"))
        item = re.match(r"\s*-\s+((?:[^:#]|::)+?)\s*(#.*)?$", line)
        if inside and item and (pin := _pin(file.name, item.group(1).strip("\"'"))):
            yield pin


def _pin(file: str, text: str) -> Pin | None:
    """``torch==1.12.1``, conda's ``pytorch=1.12.1=build`` or ``channel::name``; paths, addresses and options are no pins."""
    text = text.strip().rpartition("::")[2]
    match = _PIN_NAMES.match(text)
    if not match or "/" in text.partition(";")[0] or "@" in text:
        return None
    rest = re.sub(r"^\[[^\]]*\]", "", text[match.end() :].partition(";")[0].strip())
    if conda := re.fullmatch(r"=([^=\s]+)(=\S+)?", rest):
        rest = f"=={conda.group(1)}"
    if rest and not re.match(r"[=<>!~]", rest):
        return None
    return Pin(file, match.group(0), rest.replace(" ", ""))
