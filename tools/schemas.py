"""Writes ``splatfix/report/schemas``: a JSON Schema for the document of every command, made from the structs in it.

``python -m tools.schemas`` regenerates them; a test holds the committed files and the documents of the commands to them.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import re
import textwrap
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import fields

from splatfix.budget.model import Budget
from splatfix.certify.model import Certificate
from splatfix.certify.monitor import Summary
from splatfix.checks.scene.model import Refusal
from splatfix.containers import Lane
from splatfix.containers.checkout import CheckoutLane
from splatfix.core.errors import Exit
from splatfix.core.step import Step
from splatfix.explain.model import FailureCause, KnownClass
from splatfix.install.journal import Entry
from splatfix.install.outcome import CachedWheel, InstallOutcome, RevertOutcome
from splatfix.knowledge.archs import RequestedTarget
from splatfix.model import Facts, Finding, Source
from splatfix.model.inquiry import Inquiry
from splatfix.plan import InstallPlan, Options
from splatfix.report.comparison import Difference
from splatfix.report.documents import SCHEMA_VERSION
from splatfix.report.dry_run import DryRun
from splatfix.report.merging import Merged

FOLDER = Path(__file__).resolve().parent.parent / "splatfix" / "report" / "schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]


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
    refused: Error | None
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


class Unreadable(typing.TypedDict):
    """A path that could not be read."""

    path: str
    reason: str


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


class Error(typing.TypedDict):
    """What ended a command: what happened, what it means, what to do. ``code`` is stable."""

    code: str
    what: str
    meaning: str
    todo: list[Step]
    exit_code: int
    details: dict[str, Any]


class RefusedLane(typing.TypedDict):
    """A container lane that gave no certificate, and what was said."""

    lane: str
    error: Error


CERTIFIED = {**typing.get_type_hints(Certificate), "options": Options | None, "facts": Facts}
INSTALLED = {
    "dry_run": bool,
    "plan": InstallPlan | None,
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
        "unreadable": list[Unreadable],
        "skipped": list[Unreadable],
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
        **typing.get_type_hints(Merged),
        "unreadable": list[Unreadable],
        "refused": list[RefusedLane],
        "files": list[str],
    },
    "report diff": typing.get_type_hints(Difference),
    "certify dry-run": typing.get_type_hints(DryRun),
    "monitor": {
        "command_exit_code": int | None,
        **{name: kind for name, kind in typing.get_type_hints(Summary).items() if name != "exit_code"},
    },
    "vram": typing.get_type_hints(Budget),
    "certify lanes": {"lanes": list[Lane]},
    "scenes list": {"scenes": list[Sample]},
    "scenes export": {"scenes": list[ExportedScene]},
    "scenes fix": {"folder": str, "changes": list[str], "scene": SceneDocument},
    "scenes check": {"samples": list[CheckedSample], "scenes": list[SceneDocument]},
}
"""What each document holds beside its envelope."""


def schemas() -> dict[str, Schema]:
    """Every schema by its file name; what several share is in ``common.json``."""
    writer = _Writer()
    documents = {UNRECOGNISED: {}, **COMMANDS}
    made = {_file(command): writer.document(command, content) for command, content in documents.items()}
    common = {"$schema": DRAFT, "$id": "common.json", "$defs": dict(sorted(writer.definitions.items()))}
    return {"common.json": common, **made}


def _file(command: str) -> str:
    return f"{command.replace(' ', '-')}.json"


class _Writer:
    """Turns types into schemas and collects those of structs as definitions."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}
        self._kinds: dict[str, Any] = {}

    def document(self, command: str, content: Mapping[str, Any]) -> Schema:
        exits: Schema = {"enum": list(map(int, Exit))}
        if command in ("monitor", "explain"):  # that of the command that was run
            exits = {"type": "integer"}
        envelope: Schema = {
            "schema_version": {"const": SCHEMA_VERSION},
            "command": {"const": command},
            "splatfix_version": {"type": "string"},
            "exit_code": exits,
            "error": self.of(Error | None),
        }
        return {
            "$schema": DRAFT,
            "$id": _file(command),
            "title": f"splatfix {command} --json".replace(f"splatfix {UNRECOGNISED}", "splatfix"),
            "type": "object",
            "properties": {**envelope, **{name: self.of(kind) for name, kind in content.items()}},
            "required": list(envelope),
            "additionalProperties": False,
            # a command that ended in an error may have nothing to show
            "if": {"properties": {"error": {"type": "null"}}},
            "then": {"required": list(content)},
        }

    def of(self, kind: Any) -> Schema:
        simple = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if kind in simple:
            return {"type": simple[kind]}
        if kind is Any:
            return {}
        if origin in (typing.Union, types.UnionType):
            return {"anyOf": [self.of(item) for item in arguments]}
        if origin is tuple and arguments[-1] is not Ellipsis:
            items = [self.of(item) for item in arguments]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "items": False}
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        if isinstance(origin, type) and issubclass(origin, Sequence):
            return {"type": "array", "items": self.of(arguments[0])}
        if isinstance(kind, type) and issubclass(kind, RequestedTarget):
            return {"type": "string"}
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"enum": [item.value for item in kind]}
        return {"$ref": f"common.json#/$defs/{self._define(origin or kind, arguments)}"}

    def _define(self, target: Any, arguments: tuple[Any, ...]) -> str:
        """The name of the definition of a struct or a typed dictionary, which is made where there is none yet."""
        if issubclass(target, Step):
            target = Step
        name = str(target.__name__)
        if arguments:  # a generic: what it is about goes into the name
            words = re.findall(r"\w+", re.sub(r"[\w.]+\.(?=\w)", "", str(arguments[0])))
            # ``tuple_Gpu`` for ``tuple[Gpu, ...]``
            name = "_".join([name, *(word for word in words if word != "class")])
        if self._kinds.setdefault(name, (target, arguments)) != (target, arguments):
            raise ValueError(f"two types are called {name}")
        if name not in self.definitions:
            self.definitions[name] = {}  # it may refer to itself
            hints = _STEP if target is Step else _hints(target, arguments)
            properties = {field: self.of(kind) for field, kind in hints.items()}
            for field, text in _field_docs(target).items():
                if field in properties:
                    properties[field]["description"] = text
            self.definitions[name] = {
                "description": (inspect.getdoc(target) or "").partition("\n")[0],
                "type": "object",
                "properties": properties,
                "required": list(properties),
                # a step that splatfix does itself has the fields of its kind too
                "additionalProperties": target is Step,
            }
        return name


_RENAMED: dict[type, tuple[str, str]] = {
    Finding: ("code", "check"),
    FailureCause: ("name", "class"),
    KnownClass: ("name", "class"),
}
"""Fields that have another name in JSON."""
_STEP = {
    "text": str,
    "argv": list[str],
    "env": dict[str, str | None],
    "prepend": dict[str, str],
    "command": str | None,
}


def _hints(target: Any, arguments: tuple[Any, ...]) -> dict[str, Any]:
    """The types of the fields as they are in JSON."""
    hints = typing.get_type_hints(target)
    if issubclass(target, Struct):
        hints = {field.encode_name: hints[field.name] for field in fields(target)}
    parameters = dict(zip(getattr(target, "__parameters__", ()), arguments, strict=False))
    hints = {name: substitute(kind, parameters) for name, kind in hints.items()}
    if target in _RENAMED:
        old, new = _RENAMED[target]
        hints = {new: hints.pop(old), **hints}
    return hints


def substitute(hint: Any, parameters: dict[Any, Any]) -> Any:
    """Put the type arguments of a generic struct into a field's hint (``T | None`` -> ``str | None``)."""
    if not parameters:
        return hint
    if hint in parameters:
        return parameters[hint]
    arguments = typing.get_args(hint)
    if not arguments:
        return hint
    replaced = tuple(substitute(argument, parameters) for argument in arguments)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.Union[replaced]
    return typing.get_origin(hint)[replaced]


def _field_docs(target: Any) -> dict[str, str]:
    """The strings below the fields of a class, in one line each."""
    docs: dict[str, str] = {}
    for owner in reversed(target.__mro__):
        if not owner.__module__.startswith(("splatfix", "tools", "__main__")):
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(body, ast.ClassDef)
        for field, doc in itertools.pairwise(body.body):
            if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr):
                docs[ast.unparse(field.target)] = " ".join(ast.literal_eval(doc.value).split())
    if target in _RENAMED:
        old, new = _RENAMED[target]
        if old in docs:
            docs[new] = docs.pop(old)
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
    FOLDER.mkdir(exist_ok=True)
    for name, schema in schemas().items():
        (FOLDER / name).write_text(text_of(schema) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
