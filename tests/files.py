"""Files as a dictionary, for tests that need a folder of them."""

import json
import os
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any


def put(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files by their names below ``folder``, which comes back; a text may hold any surrogates."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            content = (
                os.fsencode(content) if "\udcff" in content else content.encode("utf-8", "surrogatepass")
            )
        path.write_bytes(content)
    return folder


def edit_json(path: Path, edit: Callable[[Any], object]) -> None:
    """Change a document in its place."""
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


def contents(folder: Path, without: Container[str] = ()) -> dict[str, tuple[int, bytes]]:
    """Mode and content of all that lies below ``folder``, by its path there, but for files of these names."""
    paths = [path for path in folder.rglob("*") if path.name not in without]
    found = {}
    for path in paths:
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(folder))] = path.lstat().st_mode, data
    return found


def assert_golden(golden: Path, text: str) -> None:
    """It holds this text; with SPLATFIX_UPDATE_GOLDENS=1 it is written anew. Read it before it is committed."""
    if os.environ.get("SPLATFIX_UPDATE_GOLDENS"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8"), "if the new one is right: SPLATFIX_UPDATE_GOLDENS=1"
