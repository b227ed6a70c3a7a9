"""Writes ``splatfix/report/schemas``: a JSON Schema for the document of every command, made by msgspec from the structs in it.

``python -m tools.schemas`` regenerates them; a test holds the committed files and the documents of the commands to them.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import textwrap
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import fields

from smoke_trainer import record
from splatfix.budget.model import Budget
from splatfix.certify.model import Certificate
from splatfix.certify.monitor import Summary
from splatfix.checks.scene.model import Refusal
from splatfix.containers import Lane
from splatfix.containers.checkout import CheckoutLane
from splatfix.core.errors import Exit, Rejected
from splatfix.core.reading import Unread
from splatfix.core.step import Step
from splatfix.explain.model import FailureCause, KnownClass
from splatfix.install.journal import Entry
from splatfix.install.outcome import CachedWheel, InstallOutcome, RevertOutcome
from splatfix.knowledge.archs import RequestedTarget
from splatfix.model import Facts, Finding, Source
from splatfix.model.inquiry import Inquiry
from splatfix.plan import Options, Plan
from splatfix.report.comparison import Difference
from splatfix.report.documents import SCHEMA_VERSION
from splatfix.report.dry_run import DryRun
from splatfix.report.merging import Merged

FOLDER = Path(__file__).resolve().parent.parent / "splatfix" / "report" / "schemas"
_SHARED = "common.json#/$defs/"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]


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


class CheckRow(typing.TypedDict):
    """A row of ``diagnose --list``."""

    code: str
    family: str
    title: str
    page: str


class GoalDocument(typing.TypedDict):
    """What the person wants the machine to be good for."""

    targets: list[str]
    """Architectures (``sm_120``) or ``auto``; empty means the machine's own GPUs."""
    device: str
    """``cuda`` or ``cuda:1`` where one of the machine's GPUs is meant; "" for all that programs see."""
    stack: str
    extensions: list[str]
    keep: list[str]
    sources: list[str]
    dropins: list[str]
    no_dropins: dict[str, str]
    prepare: list[Step]
    fetch: bool
    refused: Rejected | None
    built_from: dict[str, Source]
    variants: dict[str, list[str]]


class CheckPage(CheckRow):
    """``diagnose --explain``."""

    predicts: list[str]


class Sample(typing.TypedDict):
    """A row of ``scenes list``. ``size``: width and height in pixels."""

    name: str
    kind: str
    layout: str
    views: int
    size: list[int]
    points: int


class ExportedScene(typing.TypedDict):
    """A row of ``scenes export``."""

    name: str
    folder: str


class CheckedSample(typing.TypedDict):
    """A row of ``scenes check`` on a sample; no problems: intact."""

    name: str
    problems: list[str]


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


class RefusedLane(typing.TypedDict):
    """A container lane that gave no certificate, and what was said."""

    lane: str
    error: Rejected


CERTIFIED = {**_hints(Certificate), "options": Options | None, "facts": Facts}
INSTALLED = {
    "dry_run": bool,
    "plan": Plan | None,
    "options": Options | None,
    "inquiries": list[Inquiry],
    "outcome": InstallOutcome | None,
}
UNRECOGNISED = "splatfix"
"""The document of words that name no command: an error and nothing else."""
COMMANDS: dict[str, dict[str, Any]] = {
    "diagnose": {
        "summary": dict[str, int],
        "goal": GoalDocument,
        "findings": list[Finding],
        "options": Options | None,
        "facts": Facts,
    },
    "inspect": {
        "targets": list[str],
        "files": list[InspectedFileDocument],
        "unreadable": list[Unread],
        "skipped": list[Unread],
    },
    "explain": {
        "recognised": bool,
        "causes": list[FailureCause],
        "first_error": list[str],
        "collect": list[Step],
        "facts": str,
        "lines_read": int,
        "bytes_read": int,
        "command_exit_code": int | None,
        "classes": list[KnownClass],
    },
    "diagnose list": {"checks": list[CheckRow]},
    "diagnose explain": {"check": CheckPage},
    "install": INSTALLED,
    "dockerfile": {"image": CheckoutLane, "files": dict[str, str], "written": list[str]},
    "revert": {"outcomes": list[RevertOutcome], "journal": list[Entry] | None},
    "cache list": {"folder": str, "wheels": list[CachedWheel], "refused": list[str], "others": list[str]},
    "cache clear": {"folder": str, "removed": int, "others": list[str]},
    "certify": CERTIFIED,
    "report show": {"file": str, "issued_by": str, "sha256": str, **CERTIFIED},
    "report merge": {
        **_hints(Merged),
        "unreadable": list[Unread],
        "refused": list[RefusedLane],
        "files": list[str],
    },
    "report diff": _hints(Difference),
    "certify dry-run": _hints(DryRun),
    "monitor": {
        "command_exit_code": int | None,
        **{name: kind for name, kind in _hints(Summary).items() if name != "exit_code"},
    },
    "vram": _hints(Budget),
    "certify lanes": {"lanes": list[Lane]},
    "scenes list": {"scenes": list[Sample]},
    "scenes export": {"scenes": list[ExportedScene]},
    "scenes fix": {"folder": str, "changes": list[str], "scene": SceneDocument},
    "scenes check": {"samples": list[CheckedSample], "scenes": list[SceneDocument]},
}
"""What each document holds beside its envelope."""
_RENAMED = {"Finding": ("code", "check"), "FailureCause": ("name", "class"), "KnownClass": ("name", "class")}
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
        made[_file(command)] = _document(command, error, {name: contents.pop(0) for name in content})
    # those of msgspec are Python's, which other validators read otherwise
    text = json.dumps(definitions)
    definitions = json.loads(text, object_hook=_without_pattern)
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
    raise NotImplementedError


def _document(command: str, error: Schema, content: Mapping[str, Schema]) -> Schema:
    exits: Schema = {"enum": list(map(int, Exit))}
    if command in ("monitor", "explain"):  # that of the command that was run
        exits = {"type": "integer"}
    envelope: Schema = {
        "schema_version": {"const": SCHEMA_VERSION},
        "command": {"const": command},
        "splatfix_version": {"type": "string"},
        "exit_code": exits,
        "error": error,
    }
    return {
        "$schema": DRAFT,
        "$id": _file(command),
        "title": f"splatfix {command} --json".replace(f"splatfix {UNRECOGNISED}", "splatfix"),
        "type": "object",
        "properties": {**envelope, **content},
        "required": list(envelope),
        "additionalProperties": False,
        # a command that ended in an error may have nothing to show
        "if": {"properties": {"error": {"type": "null"}}},
        "then": {"required": list(content)},
    }


def _file(command: str) -> str:
    return f"{command.replace(' ', '-')}.json"


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
    docs: dict[tuple[str, ...], dict[str, str]] = {}
    for kind in vars(record).values():
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            names = {field.name: field.name for field in dataclasses.fields(kind)}
            docs[tuple(sorted(names))] = _docs_in(kind, names)
    pending = msgspec.Struct.__subclasses__()
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
        texts = docs.setdefault(tuple(sorted(names.values())), {})
        for owner in reversed(kind.__mro__):
            if owner.__module__.startswith("splatfix."):
                texts |= _docs_in(owner, names)
    return docs


def _docs_in(owner: type, names: Mapping[str, str]) -> dict[str, str]:
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(body, ast.ClassDef)
    texts = {}
    for field, doc in itertools.pairwise(body.body):
        if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr):
            name = ast.unparse(field.target)
            if name in names:
                texts[names[name]] = " ".join(ast.literal_eval(doc.value).split())
    return texts


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
    FOLDER.mkdir(exist_ok=True)
    for name, schema in schemas().items():
        (FOLDER / name).write_text(text_of(schema) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
