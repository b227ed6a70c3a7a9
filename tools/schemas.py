"""Writes ``splatfix/report/schemas``: a JSON Schema for the document of every command, made by msgspec from the structs in it.

``python -m tools.schemas`` regenerates them; a test holds the committed files and the documents of the commands to them.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import itertools
import json
import pkgutil
import sys
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import fields

from smoke_trainer import record
from splatfix import app
from splatfix.certify.model import Certificate
from splatfix.checks.scene.model import Refusal
from splatfix.context.model import Goal
from splatfix.core.errors import Exit, Rejected, SplatfixError
from splatfix.core.reading import Unread
from splatfix.core.step import Step
from splatfix.knowledge.archs import RequestedTarget
from splatfix.model import Facts, Finding
from splatfix.plan import Options
from splatfix.report import forms

FOLDER = Path(__file__).resolve().parent.parent / "splatfix" / "report" / "schemas"
_SHARED = "common.json#/$defs/"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]
for _module in pkgutil.iter_modules(app.__path__, "splatfix.app."):
    importlib.import_module(_module.name)  # with every document, whose text is entered beside it


def _hints(kind: Any) -> dict[str, Any]:
    if not issubclass(kind, msgspec.Struct):
        return typing.get_type_hints(kind)
    return {field.encode_name: field.type for field in fields(kind)}


class StepDocument(typing.TypedDict):
    """What to do: text for people and, apart from it, the command that does it. A step that splatfix does itself has the
    fields of its kind too."""

    text: str
    argv: list[str]
    env: dict[str, str | None]
    prepend: dict[str, str]
    command: str | None


class LoaderVerdict(typing.TypedDict):
    """Whether the loader of one trainer, or of several, takes a scene: as it is, or with options of its own."""

    reader: str
    stacks: list[str]
    source: str
    takes_it: bool
    refusals: list[Refusal]


class SceneDocument(typing.TypedDict):
    """A row of ``scenes check`` on a folder. ``held_out`` is null where the layout has no split."""

    name: str
    folder: str
    layout: str
    problems: list[str]
    images: int
    held_out: int | None
    photos: int
    points: int | None
    host_bytes: int | None
    findings: list[Finding]
    stacks: list[LoaderVerdict]


class FatbinEntry(typing.TypedDict):
    """SASS or PTX for one architecture."""

    kind: str
    arch: str
    ptx_version: str | None
    compressed: bool
    debug: bool


class CoverageDocument(typing.TypedDict):
    """Whether a file can run on a target; ``usable`` is null where it carries no GPU code."""

    usable: bool | None
    via: str
    reason: str
    fatbins_without_code: list[int]


class InspectedFileDocument(typing.TypedDict):
    """A native file; ``fatbins`` holds the entries of each."""

    path: str
    format: str
    machine: str
    size: int
    needed: list[str]
    fatbins: list[list[FatbinEntry]]
    sections: list[str]
    verdicts: dict[str, CoverageDocument]


CERTIFIED = {
    **_hints(Certificate),
    "options": Options | None,
    "facts": Facts,
    "page": str,
    "next_steps": list[Step],
}
UNRECOGNISED = "splatfix"
"""The document of words that name no command: an error and nothing else."""
COMMANDS: dict[str, dict[str, Any]] = {
    **{command: _hints(kind) for command, kind in forms.COMMANDS.items()},
    "diagnose": {
        "summary": dict[str, int],
        "goal": Goal,
        "findings": list[Finding],
        "options": Options | None,
        "facts": Facts,
        "why": Step | None,
        "next_steps": list[Step],
        "not_examined": str,
        "unused_gpus": dict[str, str],
    },
    "inspect": {
        "targets": list[str],
        "files": list[InspectedFileDocument],
        "unreadable": list[Unread],
        "skipped": list[Unread],
        "next_steps": list[Step],
    },
    "certify": CERTIFIED,
    "report show": {"file": str, "issued_by": str, "sha256": str, **CERTIFIED},
    "scenes fix": {"folder": str, "changes": list[str], "scene": SceneDocument},
    "scenes check": {"scenes": list[SceneDocument]},
}
"""What each document holds beside its envelope."""
_RENAMED = {"Finding": ("code", "check")}
"""Fields that have another name in JSON."""


def schemas() -> dict[str, Schema]:
    """Return every schema by its file name; what several share is in ``common.json``."""
    documents = {UNRECOGNISED: {}, **COMMANDS}
    kinds = [kind for content in documents.values() for kind in content.values()]
    schemas, definitions = msgspec.json.schema_components(
        [Rejected | None, *kinds, StepDocument], schema_hook=_own_form, ref_template=f"{_SHARED}{{name}}"
    )
    error, *contents = schemas
    made = {}
    for command, content in documents.items():
        name = f"{command.replace(' ', '-')}.json"
        made[name] = _document(name, command, error, {field: contents.pop(0) for field in content})
    # those of msgspec are Python's, which other validators read otherwise
    definitions = json.loads(json.dumps(definitions), object_hook=_without_pattern)
    docs = _field_docs()
    for name, schema in definitions.items():
        _complete(schema, docs, *_RENAMED.get(name, ("", "")))
    # a step that splatfix does itself has the fields of its kind too
    definitions["StepDocument"]["additionalProperties"] = True
    common = {"$schema": DRAFT, "$id": "common.json", "$defs": dict(sorted(definitions.items()))}
    return {"common.json": common, **made}


def _without_pattern(schema: Schema) -> Schema:
    return {name: part for name, part in schema.items() if name != "pattern" or isinstance(part, dict)}


def _own_form(kind: type) -> Schema:
    """Return the schema of what has a form of its own in JSON."""
    if issubclass(kind, Step):
        return {"$ref": f"{_SHARED}StepDocument"}
    if issubclass(kind, RequestedTarget):
        return {"type": "string"}
    if issubclass(kind, SplatfixError):
        return {"$ref": f"{_SHARED}Rejected"}
    raise NotImplementedError


def _document(name: str, command: str, error: Schema, content: Mapping[str, Schema]) -> Schema:
    exits: Schema = {"enum": list(map(int, Exit))}
    if command in ("monitor", "explain"):  # that of the command that was run
        exits = {"type": "integer"}
    envelope: Schema = {
        "schema_version": {"const": forms.SCHEMA_VERSION},
        "command": {"const": command},
        "splatfix_version": {"type": "string"},
        "exit_code": exits,
        "error": error,
    }
    return {
        "$schema": DRAFT,
        "$id": name,
        "title": f"splatfix {command} --json".replace(f"splatfix {UNRECOGNISED}", "splatfix"),
        "type": "object",
        "properties": {**envelope, **content},
        "required": list(envelope),
        "additionalProperties": False,
        # a command that ended in an error may have nothing to show
        "if": {"properties": {"error": {"type": "null"}}},
        "then": {"required": list(content)},
    }


def _complete(schema: Schema, docs: Mapping[tuple[str, ...], dict[str, str]], old: str, new: str) -> None:
    """State what splatfix promises beyond the types: every field is written, and no other; with what each means."""
    schema.pop("title")
    if "description" in schema:
        schema["description"] = schema["description"].partition("\n")[0]
    if "properties" not in schema:
        return
    properties = schema["properties"]
    for name, text in docs.get(tuple(sorted(properties)), {}).items():
        properties[name]["description"] = text
    for field in properties.values():
        field.pop("default", None)
    if new:
        properties[new] = properties.pop(old)
    schema |= {"required": list(properties), "additionalProperties": False}


def _field_docs() -> dict[tuple[str, ...], dict[str, str]]:
    """Return the strings below the fields of every struct, and of the trainer's record, in one line each, by the names of all
    its fields."""
    kinds: list[Any] = [kind for kind in vars(record).values() if dataclasses.is_dataclass(kind)]
    pending = msgspec.Struct.__subclasses__()
    while pending:
        kinds.append(pending.pop())
        pending += kinds[-1].__subclasses__()
    parse = functools.cache(lambda module: ast.parse(inspect.getsource(sys.modules[module])))
    docs: dict[tuple[str, ...], dict[str, str]] = {}
    for kind in kinds:
        own = kind.__struct_fields__ if issubclass(kind, msgspec.Struct) else tuple(kind.__dataclass_fields__)
        names = dict(zip(own, getattr(kind, "__struct_encode_fields__", own), strict=True))
        texts = docs.setdefault(tuple(sorted(names.values())), {})
        for owner in reversed(kind.__mro__):
            if not owner.__module__.startswith(("splatfix.", "smoke_trainer.")):
                continue
            classes = (node for node in parse(owner.__module__).body if isinstance(node, ast.ClassDef))
            (body,) = (node.body for node in classes if node.name == owner.__name__)
            for field, doc in itertools.pairwise(body):
                if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr):
                    name = ast.unparse(field.target)
                    if name in names:
                        texts[names[name]] = " ".join(ast.literal_eval(doc.value).split())
    return docs


def text_of(value: Any, indent: str = "") -> str:
    """JSON in which whatever fits on a line is on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= 118 or not isinstance(value, (dict, list)) or not value:
        return line
    deeper = indent + "  "
    if isinstance(value, list):
        rows = [deeper + text_of(item, deeper) for item in value]
        return "[\n" + ",\n".join(rows) + f"\n{indent}]"
    rows = [f"{deeper}{json.dumps(key)}: {text_of(item, deeper)}" for key, item in value.items()]
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"


def main() -> None:
    """Write every schema."""
    for name, schema in schemas().items():
        (FOLDER / name).write_text(text_of(schema) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
