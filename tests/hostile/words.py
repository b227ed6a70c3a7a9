"""Names and messages that a terminal would obey, hide, reorder or take for splatfix's own, and a checkout full of them."""

from __future__ import annotations

import os
from pathlib import Path

from .checkouts import COMMIT, FILES, SETUP

CONTROL = "\x1b[2J\x1b]0;title\x07\x08\r\x7f\x9b31m\x85"
UNICODE = "\u202e\u2066\u2069\u200e\u200f\u061c\u200b\u200d\ufeff\u2028\u2029\u00ad\u3000\U000e0041"
MARKUP = "[/][link=https://evil.example]x[/link][bold red]](javascript:alert(1))<b>`|\\"
NAMES = {
    "escape": "a\x1b[31mb",
    "c1": "a\x9b31mb",
    "control": CONTROL,
    "unicode": UNICODE,
    "newline": "a\n  \u2192 run\n    $ rm -rf ~",
    "undecodable": "a\udcff\udc9bb",
    "markup": "[/][bold]a\\",
    "quotes": "it's\x1b\"$(x)`y`!!",
}
"""Names of files as a POSIX file system takes them; those that are no UTF-8 with surrogates."""


def write_speaking_checkout(folder: Path) -> None:
    """A checkout whose folders, modules, versions, remotes and pins hold all of these."""
    for name, text in FILES.items():
        _write(folder / name, text)
    said = CONTROL + UNICODE + MARKUP
    for name in NAMES.values():
        _write(
            folder / "submodules" / name / "setup.py",
            SETUP.replace('"splat_probe"', repr(f"splat{name}"))
            .replace('"1.0"', repr(f"1.0{said}"))
            .replace('"splat_probe._C"', repr(f"splat.{said}"))
            .replace('"ext.cu"', repr(f"{name}.cu")),
        )
        _write(folder / f"train{name}.py", FILES["train.py"])
        _write(folder / f"broken{name}.py", "import gsplat\nx = (")
        _write(folder / "simple_knn.py", "")
    _write(folder / ".git/config", f'[remote "origin"]\n\turl = https://github.com/someone/{said}x.git\n')
    modules = "".join(
        f'[submodule "m{i}"]\n\tpath = submodules/m{i}{name}\n\turl = git@evil.example:{name}/{said}\n'
        for i, name in enumerate(NAMES.values())
    )
    _write(folder / ".gitmodules", modules)
    _write(folder / "requirements.txt", f"torch==1.0{said}\n{said}\n")
    _write(folder / ".git/HEAD", COMMIT)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.fsencode(text) if "\udcff" in text else text.encode("utf-8", "surrogatepass"))
