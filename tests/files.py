"""Files as a dictionary, for tests that need a folder of them."""

import os
from collections.abc import Container, Mapping
from pathlib import Path


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


def contents(folder: Path, without: Container[str] = ()) -> dict[str, tuple[int, bytes]]:
    """Mode and content of all that lies below ``folder``, by its path there, but for files of these names."""
    paths = [path for path in folder.rglob("*") if path.name not in without]
    return {str(path.relative_to(folder)): (path.lstat().st_mode, _content(path)) for path in paths}


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() and not path.is_symlink() else b""


def assert_golden(golden: Path, text: str) -> None:
    """It holds this text; with SPLATFIX_UPDATE_GOLDENS=1 it is written anew. Read it before it is committed."""
    if os.environ.get("SPLATFIX_UPDATE_GOLDENS"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8"), "if the new one is right: SPLATFIX_UPDATE_GOLDENS=1"
