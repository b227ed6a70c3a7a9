"""Reads pyproject.toml as uv, pip and Poetry do, with the lock file beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from packaging.utils import canonicalize_name

from splatfix.core.data import replace
from splatfix.core.redact import without_credentials
from splatfix.core.toml import TomlTable, parse_toml
from splatfix.facts.project.model import BuildSettings, Dependency, Locked, Manager, Manifest
from splatfix.facts.project.requirements import constrained, dependency_of

Toml = Mapping[str, Any]
_KEY = re.compile(r"""^\s*(?:([\w-]+)|"([^"]+)"|'([^']+)')\s*[=.]""")
_QUOTED = re.compile(r""""([^"]*)"|'([^']*)'""")


def table(values: Toml, *keys: str) -> Toml:
    """The table at that place; empty where there is none."""
    for key in keys:
        inner = values.get(key)
        values = inner if isinstance(inner, Mapping) else {}
    return values


def rows(values: Toml, key: str) -> list[Toml]:
    """The tables of an array, or one alone; none where there is none."""
    value = values.get(key)
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, Mapping)]


def texts(values: Toml, key: str) -> list[str]:
    """The strings of an array; none where there is none."""
    value = values.get(key)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def manager_of(tool: Toml, *, locked: bool = False) -> Manager:
    """Who installs from a pyproject.toml with these tools."""
    if "uv" in tool or locked:
        return Manager.UV
    return Manager.POETRY if "poetry" in tool else Manager.PIP


def line_of_key(text: str, key: str) -> int:
    """The line on which a key of a table is set; 1 where none is."""
    return _first_lines(text, _KEY).get(key, 1)


# a file can have as many names as lines, and every one of them is asked for
@lru_cache(maxsize=4)
def _first_lines(text: str, pattern: re.Pattern[str]) -> dict[str, int]:
    """By what the pattern's groups take, the line on which it is first."""
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for match in pattern.finditer(line):
            lines.setdefault(match[match.lastindex or 0], number)
    return lines


def read(file: str, text: str, document: Toml, text_of: Callable[[str], str]) -> Manifest:
    """The manifest of a pyproject.toml."""
    tool, project = table(document, "tool"), table(document, "project")
    uv_lock = text_of("uv.lock")
    manager = manager_of(tool, locked=bool(uv_lock))
    requires = project.get("requires-python")
    manifest = Manifest(
        file,
        manager,
        tuple(_of_project(text, document)),
        requires_python=requires if isinstance(requires, str) else "",
        wrong=tuple(_wrong_types(file, document)),
    )
    if manager is Manager.POETRY:
        manifest = _with_poetry(manifest, text, tool)
        return _with_lock(manifest, "poetry.lock", text_of("poetry.lock"), project)
    if manager is Manager.UV:
        manifest = _with_uv(manifest, table(tool, "uv"))
        return _with_lock(manifest, "uv.lock", uv_lock, project)
    return _with_lock(manifest, "pylock.toml", text_of("pylock.toml"), project)


def _wrong_types(file: str, document: Toml) -> Iterator[str]:
    """What has another type than pip and uv take, a clause each; what they refuse is not to be edited."""
    checked = TomlTable(document, file)
    project, uv = checked.table("project"), checked.table("tool").table("uv")
    project.text("requires-python")
    project.texts("dependencies")
    for key in ("override-dependencies", "constraint-dependencies"):
        uv.texts(key)
    for key in ("index", "dependency-metadata"):
        uv.tables(key)
    checked.table("dependency-groups")
    uv.table("sources")
    extra, variables = uv.table("extra-build-dependencies"), uv.table("extra-build-variables")
    for name in table(document, "tool", "uv", "extra-build-dependencies"):
        extra.array(name)
    for name in table(document, "tool", "uv", "extra-build-variables"):
        variables.table(name)
    yield from (reason.removeprefix(f"{file}: ") for reason in dict.fromkeys(checked.wrong))


def _of_project(text: str, document: Toml) -> Iterator[Dependency]:
    """Those of the project, of uv's groups that are installed by default, and of its constraints."""
    project = table(document, "project")
    groups = table(document, "dependency-groups")
    uv = table(document, "tool", "uv")
    default = uv.get("default-groups", ["dev"])
    chosen = groups if default == "all" else default
    listed = texts(project, "dependencies")
    for name in chosen if isinstance(chosen, (list, Mapping)) else ():
        listed += texts(groups, str(name))
    for words in listed:
        dependency = dependency_of(words, 0)
        if dependency is not None:
            yield replace(dependency, line=_first_lines(text, _QUOTED).get(words, 1))


def _with_uv(manifest: Manifest, uv: Toml) -> Manifest:
    """Where uv's sources send each dependency, and what its tables say of builds."""
    names: dict[str, str] = {}
    indexes: list[str] = []
    replaces = isinstance(uv.get("index-url"), str)
    for row in rows(uv, "index"):
        url = without_credentials(str(row.get("url", "")))
        names[str(row.get("name", url))] = url
        if row.get("explicit") is not True:
            indexes.append(url)
        replaces = replaces or row.get("default") is True
    indexes += texts(uv, "extra-index-url") + texts(uv, "find-links")
    if isinstance(uv.get("index-url"), str):
        indexes.append(str(uv["index-url"]))
    sources: dict[str, Any] = {canonicalize_name(name): row for name, row in table(uv, "sources").items()}
    dependencies: list[Dependency] = []
    for item in _overridden(manifest.dependencies, uv):
        given = sources.get(item.name)
        entries = [given] if isinstance(given, Mapping) else given if isinstance(given, list) else []
        dependencies += _from_sources(item, [row for row in entries if isinstance(row, Mapping)], names)
    return replace(
        manifest,
        dependencies=tuple(dependencies),
        indexes=tuple(indexes),
        replaces_pypi=replaces,
        builds=_builds(uv, [item.name for item in dependencies]),
    )


def _overridden(dependencies: tuple[Dependency, ...], uv: Toml) -> Iterator[Dependency]:
    """Each as uv's overrides and constraints leave it; then those of what other packages bring."""
    overrides = [item for text in texts(uv, "override-dependencies") if (item := dependency_of(text, 1))]
    constraints = [item for text in texts(uv, "constraint-dependencies") if (item := dependency_of(text, 1))]
    specifiers = {item.name: item.specifier for item in overrides}
    own = [replace(item, specifier=specifiers.get(item.name, item.specifier)) for item in dependencies]
    yield from constrained(own, constraints)
    named = {item.name for item in dependencies}
    yield from (item for item in (*overrides, *constraints) if item.name not in named)


def _from_sources(item: Dependency, entries: list[Toml], names: Mapping[str, str]) -> Iterator[Dependency]:
    if not entries:
        yield item
    for row in entries:
        marker = " and ".join(f"({part})" for part in (item.marker, str(row.get("marker", ""))) if part)
        dependency = replace(item, marker=marker, extra=str(row.get("extra") or row.get("group") or ""))
        if "index" in row:
            yield replace(dependency, index=names.get(str(row["index"]), str(row["index"])))
        elif "git" in row:
            yield replace(dependency, address=f"git+{without_credentials(str(row['git']))}")
        elif "path" in row:
            path = str(row["path"]).rstrip("/")
            yield replace(
                dependency, address=path, folder="" if path.endswith((".whl", ".gz", ".zip")) else path
            )
        elif "url" in row:
            yield replace(dependency, address=without_credentials(str(row["url"])))
        else:
            yield dependency
    if entries and all(row.get("marker") and not row.get("extra") for row in entries):
        # where none of the markers holds, the indexes of the file are asked
        negated = " and ".join(f"({_negated(str(row['marker']))})" for row in entries)
        yield replace(item, marker=" and ".join(filter(None, (item.marker and f"({item.marker})", negated))))


def _negated(marker: str) -> str:
    """The opposite of a marker of one comparison, or of several joined by ``or``."""
    opposite = {"==": "!=", "!=": "==", "<": ">=", ">": "<=", "<=": ">", ">=": "<"}
    parts = marker.split(" or ")
    return " and ".join(re.sub(r"[<>=!]=|[<>]", lambda sign: opposite[sign[0]], part) for part in parts)


def _builds(uv: Toml, names: list[str]) -> dict[str, BuildSettings]:
    extra: dict[str, Any] = {
        canonicalize_name(key): value for key, value in table(uv, "extra-build-dependencies").items()
    }
    variables: dict[str, Any] = {
        canonicalize_name(key): value for key, value in table(uv, "extra-build-variables").items()
    }
    alone = set(map(canonicalize_name, texts(uv, "no-build-isolation-package")))
    described = {
        canonicalize_name(str(row.get("name"))) for row in rows(uv, "dependency-metadata") if "version" in row
    }
    builds = {}
    for name in dict.fromkeys((*names, *extra, *variables, *alone)):
        given = extra.get(name)
        entries = given if isinstance(given, list) else []
        torch = [item for item in entries if re.match(r"torch\b", requirement_text(item))]
        builds[name] = BuildSettings(
            torch=bool(torch),
            match_runtime=any(
                isinstance(item, Mapping) and item.get("match-runtime") is True for item in torch
            ),
            isolated=name not in alone and uv.get("no-build-isolation") is not True,
            variables={key: str(value) for key, value in table(variables, name).items()},
            metadata=name in described,
        )
    return builds


def requirement_text(item: Any) -> str:
    """A requirement of uv's tables of builds: a string, or a table that has it."""
    return str(item.get("requirement", "")) if isinstance(item, Mapping) else str(item)


def _with_poetry(manifest: Manifest, text: str, tool: Toml) -> Manifest:
    """Poetry's own table, which a [project] beside it may leave out."""
    poetry = table(tool, "poetry")
    indexes = {
        str(row.get("name")): without_credentials(str(row.get("url", ""))) for row in rows(poetry, "source")
    }
    explicit = {str(row.get("name")) for row in rows(poetry, "source") if row.get("priority") == "explicit"}
    dependencies, python = list(manifest.dependencies), manifest.requires_python
    for name, value in table(poetry, "dependencies").items():
        entries = value if isinstance(value, list) else [value]
        for entry in entries:
            row: Toml = entry if isinstance(entry, Mapping) else {"version": entry}
            specifier = pep440(str(row.get("version", "*")))
            if name == "python":
                python = python or specifier
                continue
            address, folder = place_of(row)
            dependencies.append(
                Dependency(
                    canonicalize_name(name),
                    specifier,
                    line_of_key(text, name),
                    str(row.get("markers", "")),
                    address,
                    folder,
                    indexes.get(str(row.get("source", "")), ""),
                )
            )
    others = tuple(url for name, url in indexes.items() if name not in explicit)
    return replace(manifest, dependencies=tuple(dependencies), requires_python=python, indexes=others)


def place_of(row: Toml) -> tuple[str, str]:
    """Address and folder of a dependency of Poetry's or pixi's that no index has; "" each for another."""
    folder = str(row.get("path", "")).rstrip("/")
    address = str(row.get("url") or folder)
    if "git" in row:
        address = f"git+{row['git']}"
    return without_credentials(address), folder


def pep440(text: str) -> str:
    """A constraint of Poetry's or conda's as PEP 440 has it: ``^2.1`` is ``>=2.1,<3``, ``~2.1`` is ``>=2.1,<2.2``.

    Source: Poetry's documentation of dependency specification.
    """
    parts = []
    for part in re.split(r"[,\s]+", text.strip()):
        caret = re.fullmatch(r"([\^~])(\d{1,9}(?:\.\d{1,9})*)(?:\+\w+)?", part)
        if caret:
            numbers = list(map(int, caret[2].split(".")))
            at = 1 if caret[1] == "~" and len(numbers) > 1 else 0
            while caret[1] == "^" and at < len(numbers) - 1 and numbers[at] == 0:
                at += 1
            parts.append(f">={caret[2]},<{'.'.join(map(str, (*numbers[:at], numbers[at] + 1)))}")
        elif re.match(r"\d", part):
            parts.append(f"=={part}")
        elif part not in ("*", ""):
            parts.append(re.sub(r"^=(?!=)", "==", part))
    return ",".join(parts)


def _with_lock(manifest: Manifest, file: str, text: str, project: Toml) -> Manifest:
    if not text:
        return manifest
    try:
        document = parse_toml(text)
    except ValueError as error:
        return replace(manifest, wrong=(*manifest.wrong, f"{file} is no TOML: {error}"))
    packages = rows(document, "package") or rows(document, "packages")
    locked = tuple(_locked(row) for row in packages if isinstance(row.get("name"), str))
    name = canonicalize_name(str(project.get("name", "")))
    for row in packages:
        if canonicalize_name(str(row.get("name"))) == name and not _agrees(
            manifest, rows(table(row, "metadata"), "requires-dist")
        ):
            return replace(manifest, stale=file)
    return replace(manifest, lock=file, locked=locked)


def _agrees(manifest: Manifest, recorded: list[Toml]) -> bool:
    """uv's lock was made of the same requirements of torch's: it writes down each with its specifier and index."""
    was = {
        (row.get("name"), _sorted(str(row.get("specifier", ""))), str(row.get("index", "")).rstrip("/"))
        for row in recorded
    }
    for item in manifest.dependencies:
        row = (item.name, _sorted(item.specifier), item.index.rstrip("/"))
        if item.name in ("torch", "torchvision", "torchaudio") and not item.address and row not in was:
            return False
    return True


def _sorted(specifier: str) -> tuple[str, ...]:
    return tuple(sorted(part.replace(" ", "") for part in specifier.split(",")))


def _locked(row: Toml) -> Locked:
    source = table(row, "source")
    index = source.get("registry") or source.get("url") or row.get("index") or ""
    wheels = [
        str(item.get("name") or item.get("url") or item.get("path") or "") for item in rows(row, "wheels")
    ]
    wheels += [str(item.get("file")) for item in rows(row, "files") if str(item.get("file")).endswith(".whl")]
    sdists = [item for item in rows(row, "files") if not str(item.get("file")).endswith(".whl")]
    return Locked(
        canonicalize_name(str(row["name"])),
        str(row.get("version", "")),
        without_credentials(str(index)),
        tuple(name.rpartition("/")[2].replace("%2B", "+") for name in wheels),
        bool(sdists or "sdist" in row),
        " or ".join(f"({marker})" for marker in texts(row, "resolution-markers"))
        or str(row.get("marker", "")),
    )
