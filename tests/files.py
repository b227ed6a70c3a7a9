"""Files as a dictionary, for tests that need a folder of them."""

import os
from collections.abc import Mapping
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
