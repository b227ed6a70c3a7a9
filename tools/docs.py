"""Writes the pages of the documentation: docs/ with its markers filled in, a page for each check, and the tables.

``python -m tools.docs OUT`` copies ``docs/`` to OUT and generates the rest from what the program itself knows, so that the
two cannot drift apart. ``make docs`` then builds the site from OUT.

The page "Which torch for my GPU" (:mod:`tools.site`) takes most of the time.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import typer

from splatfix.certify.criteria.criterion import REGISTERED
from splatfix.checks import Check, all_checks
from splatfix.checks.scene import SCENE_CHECKS
from splatfix.cli import app
from splatfix.core.toml import table_beside
from splatfix.knowledge.breakages import breakages
from splatfix.knowledge.failures import KnownFailure, failure_classes
from tools import kernel_estimates, site, vram
from tools.machines import raw_machines

ROOT = Path(__file__).resolve().parent.parent
SCHEMAS = ROOT / "splatfix" / "report" / "schemas"
TABLES = ROOT / "splatfix" / "knowledge" / "data"
RECORDS = ROOT / "tests" / "records"
LISTED = table_beside(__file__)


def main(out: Path) -> None:
    """Write every page below ``out``, which is emptied first."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(ROOT / "docs", out)
    for page in sorted(out.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        text = re.sub(r"<!-- options: (.+?) -->.*", lambda m: options_of(m[1].split()), text)
        text = re.sub(r"<!-- output: (.+?) -->", lambda m: output_of(m[1]), text)
        for marker, table in MARKERS.items():
            if marker in text:
                text = text.replace(marker, table())
        for marker, sentence in LISTED["explain"].items():
            if marker in text:
                text = text.replace(marker, explained(sentence))
        page.write_text(text, encoding="utf-8")
    shutil.copytree(SCHEMAS, out / "schemas")
    _write_checks(out / "checks")
    (out / "compatibility.md").write_text(compatibility(), encoding="utf-8")
    site.write(out / "which-torch.html")
    (out / "breakages.md").write_text(known_breakages(), encoding="utf-8")


def explained(sentence: str) -> str:
    """How often ``explain`` is right, as the record has it."""
    record = json.loads((RECORDS / "explain.json").read_text(encoding="utf-8"))
    template = jinja2.Template(sentence, trim_blocks=True, lstrip_blocks=True)
    return str(template.render(record)).strip()


def kernel_record() -> str:
    """What the CUDA kernels take."""
    return kernel_estimates.markdown(json.loads((RECORDS / "cuda_kernels.json").read_text("utf-8")))


def schemas() -> str:
    """The published JSON Schemas, which are copied beside the pages, as a list of links."""
    return "\n".join(f"- [{path.stem}](schemas/{path.name})" for path in sorted(SCHEMAS.glob("*.json")))


def scene_checks() -> str:
    """The checks of a scene's folder: what each holds to be so, and why."""
    return _table(
        ("code", "holds where", ""),
        [(f"`{check.code}`", check.title, check.page) for check in SCENE_CHECKS.values()],
    )


def criteria() -> str:
    """The criteria of a training: what each requires, and what a failure means."""
    rows = []
    for item in REGISTERED:
        whose = item.of or "smoke and stack"
        rows.append((f"`{item.code}`", _escaped(item.required or item.title), _escaped(item.why), whose))
    return _table(("criterion", "required", "where it fails", "trainer"), rows)


def options_of(arguments: Iterable[str]) -> str:
    """The arguments and options of a command as a table; of each subcommand where it is a group."""
    command: Any = typer.main.get_command(app)  # click's types: typer carries a click of its own
    for word in arguments:
        command = command.commands[word]
    if hasattr(command, "commands"):
        parts: list[str] = []
        for name, item in command.commands.items():
            parts += [f"## {name}", (item.help or "").strip(), _options(item)]
        return "\n\n".join(parts)
    return _options(command)


def _options(command: Any) -> str:
    rows = []
    for item in command.params:
        if getattr(item, "hidden", False):
            continue
        if item.param_type_name == "option":
            names = ", ".join(f"`{name}`" for name in (*item.opts, *item.secondary_opts) if name.strip())
            value = item.metavar or "|".join(getattr(item.type, "choices", ()))
            rows.append((f"{names} {value.replace('|', ' or ')}".strip(), item.help or ""))
        else:
            rows.append((f"`{item.metavar or item.name.upper()}`", getattr(item, "help", None) or ""))
    return _table(("", ""), rows)


def output_of(line: str) -> str:
    """What ``splatfix LINE`` prints at 80 columns, as it is now; ``--facts`` names a simulated machine."""
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "PYTHONPATH": str(ROOT)}
    arguments = shlex.split(line)
    with tempfile.TemporaryDirectory() as folder:
        if "--facts" in arguments:
            name = arguments[arguments.index("--facts") + 1]
            raw_machines()[name].write(Path(folder) / name)
        done = subprocess.run(
            [sys.executable, "-m", "splatfix", *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
    if done.returncode not in (0, 1):
        raise SystemExit(f"splatfix {line} ended with {done.returncode}: {done.stderr}")
    return f"```console\n$ splatfix {line}\n{done.stdout.rstrip()}\n```"


MARKERS = {
    "<!-- vram-table -->": vram.markdown,
    "<!-- kernel-record -->": kernel_record,
    "<!-- schemas -->": schemas,
    "<!-- scene-checks -->": scene_checks,
    "<!-- criteria -->": criteria,
}
"""The marker of a page, and the table that takes its place."""


def _write_checks(folder: Path) -> None:
    folder.mkdir()
    errors = (ROOT / "docs" / "common-errors.md").read_text(encoding="utf-8")
    families: dict[str, list[Check]] = {}
    for item in all_checks():
        families.setdefault(item.family, []).append(item)
        (folder / f"{item.code}.md").write_text(_check_page(item, errors), encoding="utf-8")
    parts = [
        "# Checks",
        f"{sum(map(len, families.values()))} checks; `splatfix diagnose --explain CODE` prints the same pages.",
    ]
    for family, checks in families.items():
        rows = [(f"[`{item.code}`]({item.code}.md)", _escaped(item.title)) for item in checks]
        parts += [f"## {family}", _table(("code", "what is checked"), rows)]
    (folder / "index.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _check_page(item: Check, errors: str) -> str:
    seen = re.findall(rf"^\| (.*?) \|.*\(checks/{item.code}\.md\)", errors, re.MULTILINE)
    cures = []
    for known in failure_classes():
        if known.name in item.predicts:
            seen += [f"`{text}`" for text in _literals(known)]
            issue = r"[\g<0>](https://github.com/\1/issues/\2)"
            reports = ", ".join(re.sub(r"^([^#]*)#(\d+)$", issue, example) for example in known.examples)
            cures.append(f"`{known.name}`: {_escaped(known.definition)}. {_escaped(known.fix)} ({reports})")
    for record in breakages():
        if record.check and record.check.code == item.code:
            seen.append(_escaped(record.symptom))
            cures.append(_escaped(record.no_edit or f"`splatfix install` does it in its copy: {record.cure}"))
    parts = [
        f"# {item.code}",
        f"**{_escaped(item.title)}** (family: {item.family})",
        _escaped(item.page.partition("\n\nPredicts:")[0]),
    ]
    if seen:
        parts += ["## What people see", "\n".join(f"- {text}" for text in dict.fromkeys(seen))]
    todo = "Where it fails, the finding names what was found, and the commands that mend it on this machine:"
    parts += ["## What to do", todo, f"```sh\nsplatfix diagnose --only {item.code}\n```"]
    parts.append("\n".join(f"- {cure}" for cure in cures))
    return "\n\n".join(parts).rstrip() + "\n"


def _literals(known: KnownFailure) -> list[str]:
    """Messages of a failure that are searched for as they are: what of its wordings is no pattern."""
    alternatives = "|".join(wording.text for wording in known.wordings).split("|")
    return [text for text in alternatives if text.isascii() and re.fullmatch(r"\w[\w ,:'/-]{11,}\w", text)][
        :6
    ]


def compatibility() -> str:
    """The tables of docs.toml with their sources, from the data files that the program reads."""
    parts = [
        "# Compatibility tables",
        "What splatfix knows, straight from its data files (`splatfix/knowledge/data/`), each row with its source. "
        "*unverified* marks what could not be confirmed. `splatfix --knowledge FILE` overrides rows.",
    ]
    for table in LISTED["tables"]:
        document = json.loads((TABLES / f"{table['file']}.json").read_text(encoding="utf-8"))
        section = _section(document, document[table["section"]], table.get("columns", ()))
        parts += [f"## {table['heading']}", section]
    return "\n\n".join(parts) + "\n"


def known_breakages() -> str:
    """The records of ``patches/`` as one table."""
    rows = []
    for item in breakages():
        cure = item.cure
        if item.no_edit:
            cure = f"not edited: {item.no_edit}"
        limits = [f"{name} {limit}" for name, limit in item.when.versions.items()]
        when = ", ".join([*limits, *filter(None, [item.when.system, item.when.builder])])
        texts = map(_escaped, (item.symptom, when, cure, "; ".join(item.sources)))
        rows.append((f"`{item.key}`", *texts))
    parts = [
        "# Known source breakages",
        "Changes of a toolkit, compiler or library that stop known sources from building. `splatfix install` edits the "
        "scratch copy of a build, never your checkout unless `--in-place` is given. "
        "[How to add one](extending.md#a-known-breakage).",
        _table(("record", "what fails", "when", "cure", "sources"), rows),
    ]
    return "\n\n".join(parts) + "\n"


def _section(
    document: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]], columns: Sequence[str]
) -> str:
    every: dict[str, None] = {}
    sources: dict[str, None] = {}
    for row in rows.values():
        every.update(dict.fromkeys(row))
        sources.update(dict.fromkeys(re.split(r",\s*", str(row.get("source") or ""))))
    named = columns or tuple(name for name in every if name not in ("source", "verified", "note", "cc"))
    used = [name for name in named if any(row.get(name) is not None for row in rows.values())]
    lines = []
    for key, row in rows.items():
        title = key
        if row.get("verified") is False:
            title += " (unverified)"
        lines.append((title, *(_cell(row.get(column)) for column in (*used, "source"))))
    table = _table(("", *(column.replace("_", " ") for column in used), "source"), lines)
    texts = document["source"]
    explained = [f"- *{key}*: {_escaped(texts[key])}" for key in sources if key in texts]
    if not explained:
        return table
    return "\n".join([table, "", "Sources:", "", *explained])


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        # a version stands as [12, 8] in the tables
        is_version = len(value) in (2, 3) and all(isinstance(item, int) for item in value)
        return ("." if is_version else ", ").join(map(str, value))
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_cell(item)}" for key, item in value.items())
    return _escaped(str(value))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = []
    for row in (head, ("---",) * len(head), *rows):
        cells = " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row)
        lines.append(f"| {cells} |")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Markdown that shows ``<cstdint>`` outside of code as it is."""
    return re.sub(r"`[^`]*`|[<*]", lambda match: {"<": "&lt;", "*": "\\*"}.get(match[0], match[0]), text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
