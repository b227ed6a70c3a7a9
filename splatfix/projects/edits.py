"""Edits of project files as text: the smallest that mends, with comments, order and line endings as they were."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import tomlkit
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from splatfix.facts.project.model import Manifest
from splatfix.facts.project.pyproject import requirement_text
from splatfix.knowledge.torch_releases import TorchBuild, index_url
from splatfix.projects.model import Repair
from splatfix.projects.resolution import FAMILY

_SPECIFIED = re.compile(r"(\s*[A-Za-z0-9][\w.-]*(?:\[[^\]]*\])?)\s*([<>=!~][^;#]*?)?(\s*(?:;.*|\s#.*)?)$")
_OTHER_BUILD = re.compile(
    r"^(\s*(?:--extra-index-url|--index-url|-i|--find-links|-f)[ =]+)https://download\.pytorch\.org/whl/(?:cu\d+|cpu)(?=/?\s|$)",
    re.MULTILINE,
)
"""An index of PyTorch's for another CUDA, in whose place that of the build comes."""
Table = MutableMapping[str, Any]


def edited(text: str, manifest: Manifest, repair: Repair) -> str:
    """The text of a file with its repair; the same text where there is none."""
    if repair.is_empty:
        return text
    body = text.removeprefix("\ufeff")
    mark = text[: len(text) - len(body)]
    if manifest.file.endswith(".txt"):
        return mark + _of_requirements(body, repair)
    try:
        return mark + _of_pyproject(body, manifest, repair)
    except ValueError:
        # tomlkit takes no values nested a hundred deep, and adds no table to one that is inline
        return text


def _of_requirements(text: str, repair: Repair) -> str:
    address = index_url(repair.torch.tag) if repair.torch else ""
    if address:
        text = _OTHER_BUILD.sub(rf"\g<1>{address}", text)
    changed = []
    for line in text.splitlines(keepends=True):
        body = line.rstrip("\r\n")
        if _name_of(body) == "torch" and address and address not in text:
            changed.append(f"--extra-index-url {address}{line[len(body) :] or chr(10)}")
        changed.append(_rewritten(body, repair) + line[len(body) :])
    return "".join(changed)


def _of_pyproject(text: str, manifest: Manifest, repair: Repair) -> str:
    document = tomlkit.parse(text)
    uv = _table(document, "tool", "uv")
    for listed in _lists(document):
        for at, words in enumerate(list(listed)):
            # a group can include another: that is a table
            listed_as = _rewritten(words, repair) if isinstance(words, str) else words
            if listed_as != words:
                in_single_quotes = words.as_string().startswith("'")
                listed[at] = tomlkit.string(listed_as, literal=in_single_quotes)
    if repair.requires_python:
        _table(document, "project")["requires-python"] = repair.requires_python
    if repair.torch:
        _send_to_index(uv, manifest, repair.torch)
    for name, build in repair.builds.items():
        if build.match_runtime:
            extra = _table(uv, "extra-build-dependencies")
            match = _inline({"requirement": "torch", "match-runtime": True})
            kept = [item for item in extra.get(name, ()) if _name_of(requirement_text(item)) != "torch"]
            extra[name] = _array(*kept, match)
        if build.variables:
            variables = _table(uv, "extra-build-variables")
            variables[name] = _inline({**variables.get(name, {}), **build.variables})
        if build.version:
            row = tomlkit.table()
            row.update({"name": name, "version": build.version, "requires-dist": list(build.requires)})
            _rows(uv, "dependency-metadata").append(row)
    return _spaced(tomlkit.dumps(document), text)


def _spaced(text: str, before: str) -> str:
    """With a blank line above each new header, as people write them."""
    lines = text.splitlines(keepends=True)
    known = set(before.splitlines(keepends=True))
    spaced: list[str] = []
    for line in lines:
        if line.startswith("[") and line not in known and spaced and spaced[-1].strip():
            spaced.append(line[len(line.rstrip("\r\n")) :])
        spaced.append(line)
    return "".join(spaced)


def _send_to_index(uv: Table, manifest: Manifest, build: TorchBuild) -> None:
    """torch and its companions by name to the index of a build, where PyTorch has wheels of it."""
    address = index_url(build.tag)
    indexes = _rows(uv, "index")
    names = {str(row.get("url", "")).rstrip("/"): str(row.get("name")) for row in indexes}
    name = names.get(address)
    if name is None:
        name = f"pytorch-{build.tag}"
        row = tomlkit.table()
        row.update({"name": name, "url": address, "explicit": True})
        indexes.append(row)
    marker = "sys_platform == 'linux'"
    if not any(place.startswith("windows") for place in build.no_wheel):
        marker += " or sys_platform == 'win32'"
    sources = _table(uv, "sources")
    for package in dict.fromkeys(item.name for item in manifest.dependencies if item.name in FAMILY):
        spelled = [key for key in sources if canonicalize_name(key) == package]
        sources[spelled[0] if spelled else package] = _array(_inline({"index": name, "marker": marker}))


def _lists(document: Table) -> Iterator[Any]:
    """Every list of requirements that has a say in what is installed."""
    yield document.get("project", {}).get("dependencies", [])
    uv = document.get("tool", {}).get("uv", {})
    yield from (uv.get(name, []) for name in ("override-dependencies", "constraint-dependencies"))
    yield from (value for value in document.get("dependency-groups", {}).values() if isinstance(value, list))


def _rewritten(words: str, repair: Repair) -> str:
    name = _name_of(words)
    if name == "torch" and repair.specifier is not None:
        return _with_specifier(words, repair.specifier)
    # each torch has one version of these, which the installer works out
    if name in (*FAMILY, "triton") and repair.specifier:
        return _with_specifier(words, "")
    if name == "numpy" and repair.numpy:
        kept = [
            part
            for part in _specifier_of(words).split(",")
            if part and not part.strip().startswith((">", "="))
        ]
        return _with_specifier(words, ",".join([*kept, "<2"]))
    return words


def _with_specifier(words: str, specifier: str) -> str:
    """A requirement with another specifier, its extras, marker and comment as they were."""
    parts = _SPECIFIED.match(words)
    return f"{parts[1]}{specifier}{parts[3]}" if parts else words


def _specifier_of(words: str) -> str:
    parts = _SPECIFIED.match(words)
    return (parts[2] or "").strip() if parts else ""


def _name_of(words: str) -> str:
    """The package of a requirement without an address; "" for anything else."""
    try:
        parsed = Requirement(re.sub(r"(?:^|\s)#.*$", "", words))
    except (InvalidRequirement, RecursionError):
        return ""
    return "" if parsed.url else canonicalize_name(parsed.name)


def _table(parent: Table, *keys: str) -> Table:
    for key in keys:
        if key not in parent:
            # neither [tool] nor [tool.uv] gets a line of its own, as [tool.uv.sources] does
            parent[key] = tomlkit.table(is_super_table=len(keys) > 1)
        parent = parent[key]
    return parent


def _rows(uv: Table, key: str) -> Any:
    if key not in uv:
        uv[key] = tomlkit.aot()
    return uv[key]


def _inline(values: Mapping[str, Any]) -> Any:
    """``{ requirement = "torch", match-runtime = true }``."""
    made = tomlkit.inline_table()
    made.update(values)
    return made


def _array(*items: Any) -> Any:
    array = tomlkit.array()
    array.extend(items)
    return array
