"""``splatfix scenes``: the sample scenes that a certification trains on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from splatfix.app.result import Result, target_python
from splatfix.certify.scenes import check_sample, export_sample, find_samples
from splatfix.certify.smoke import list_scenes as scenes_of
from splatfix.core.errors import Exit, SplatfixError, usage_error
from splatfix.core.step import say
from splatfix.core.words import counted
from splatfix.report.console import escape, prose, table


def list_scenes() -> Result:
    """Every sample scene: layout, number and size of views, kind."""
    samples = find_samples()
    rows = []
    for sample in samples:
        width, height = sample.size
        rows.append((sample.name, sample.layout, str(sample.views), f"{width}x{height}", sample.kind))
    return Result(
        "scenes list",
        lambda: {"scenes": [sample.summary() for sample in samples]},
        lambda console: table(console, ("scene", "layout", "views", "size", "kind"), rows),
    )


def export_scenes(names: tuple[str, ...], out: Path) -> Result:
    """Copy sample scenes to ``out``.

    Raises:
        SplatfixError: ``unknown-scene`` (exit code 2), ``cannot-write`` (3).
    """
    rows = [{"name": item.name, "folder": str(export_sample(item, out))} for item in find_samples(names)]

    def text(console: Console) -> None:
        for row in rows:
            console.print(escape(row["folder"]), soft_wrap=True)

    return Result("scenes export", lambda: {"scenes": rows}, text)


def check_scenes(names: tuple[str, ...], root: Path | None, python: str | None) -> Result:
    """Compare the files of sample scenes with their checksums, and load scenes of the user's as training would.

    Args:
        names: of sample scenes, or folders.
        python: the environment that loads a folder; only asked for one.

    Raises:
        SplatfixError: ``unknown-scene`` (exit code 2), ``scene-not-found`` (3), an environment that cannot load one (3).
    """
    known = {sample.name for sample in find_samples()}
    folders = [name for name in names if name not in known and Path(name).is_dir()]
    rows: list[dict[str, Any]] = []
    for name in folders:
        rows += _loaded(Path(name), python)
    samples = tuple(name for name in names if name not in folders)
    for name in samples:
        if name not in known:
            todo = say(f"Name the folder of a scene of yours, or a sample: {', '.join(sorted(known))}")
            what = f"There is no folder {name!r}, and no sample scene of that name."
            raise usage_error("unknown-scene", what, todo)
    if samples or not folders:
        for item in find_samples(samples):
            problems = list(check_sample(item, root))
            rows.append({**dict.fromkeys(_ROW), "name": item.name, "readable": True, "problems": problems})
    exit_code = Exit.OK
    # of a scene of the user's a problem may be a remark on what training passes over
    if any(not row["readable"] or (row["folder"] is None and row["problems"]) for row in rows):
        exit_code = Exit.FAILURE

    def text(console: Console) -> None:
        for row in rows:
            parts = list(row["problems"])
            if row["size"]:
                views = f"{counted(row['train'], 'view')} to train on, {row['held_out']} held out"
                width, height = row["size"]
                parts.insert(0, f"{views}, {width}x{height}, {counted(row['points'], 'point')}")
            prose(console, f"{escape(row['name'])}: ", escape("; ".join(parts) or "OK"))

    return Result("scenes check", lambda: {"scenes": rows}, text, exit_code)


_ROW = ("name", "folder", "layout", "readable", "train", "held_out", "size", "points", "problems")
"""Of ``scenes check``; what only a loaded scene has is None for a sample."""


def _loaded(folder: Path, python: str | None) -> list[dict[str, Any]]:
    """The scenes at or below a folder, as the trainer of an environment loads them."""
    try:
        scenes = scenes_of(folder.absolute(), target_python(python), check=True)["scenes"]
    except SplatfixError as error:
        if error.code != "unreadable-scene":
            raise
        sentences = (error.what, error.meaning, *(step.text for step in error.todo))
        problems = [sentence.rstrip(".") for sentence in sentences if sentence]
        return [{**dict.fromkeys(_ROW), "name": str(folder), "readable": False, "problems": problems}]
    return [{key: row.get(key) for key in _ROW} for row in scenes]
