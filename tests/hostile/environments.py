"""Hostile environments: what lies in the site-packages of somebody else's environment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from .bad_files import bad_files, replace
from .checkouts import PYTHON, nest

Write = Callable[[Path], None]
"""Writes into a site-packages folder."""

FILES = {
    "torch/__init__.py": "",
    "torch/version.py": "__version__ = '2.4.0'\ncuda = '12.4'\nhip = None\n",
    "torch/lib/libtorch_cuda.so": "\x7fELF",
    "torch/lib/libc10.so": "\x7fELF",
    "torch/utils/cpp_extension.py": "supported_arches = ['8.0', '9.0']\nimport setuptools\n",
    "torch-2.4.0.dist-info/METADATA": "Name: torch\nVersion: 2.4.0\nRequires-Dist: triton==3.0\n",
    "torch-2.4.0.dist-info/RECORD": "torch/__init__.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n",
    "simple_knn/__init__.py": "from . import _C\n",
    "simple_knn/_C.cpython-311-x86_64-linux-gnu.so": "\x7fELF",
    "simple_knn-1.0.dist-info/RECORD": "simple_knn/__init__.py,,\n",
    "simple_knn-1.0.dist-info/direct_url.json": '{"url": "file:///nowhere", "dir_info": {"editable": true}}',
    "simple_knn-1.0.dist-info/splatfix.json": '{"kind": "built"}',
    "fused-ssim.egg-link": "/nowhere\n.\n",
    "gsplat-1.0.egg-info/top_level.txt": "gsplat\n",
}
CONTENTS = {
    "simple_knn-1.0.dist-info/direct_url.json": {
        "deep": "[" * 100_000,
        "list": "[]",
        "odd-address": '{"url": "https://[x/"}',
        "odd-types": '{"url": 3, "dir_info": 3}',
        "long-int": '{"url": ' + "9" * 100_000 + "}",
        "nul": json.dumps({"url": "file:///a\0b", "dir_info": {"editable": True}}),
        "device": json.dumps({"url": "file:///dev", "dir_info": {"editable": True}}),
        "everything": json.dumps({"url": "file:///", "dir_info": {"editable": True}}),
    },
    "simple_knn-1.0.dist-info/splatfix.json": {
        "deep": "[" * 100_000,
        "types": '{"kind": 3, "targets": 3, "edits": {}, "built_with": []}',
        "text": '{"targets": "abc"}',
        "nan": '{"targets": [NaN]}',
    },
    "fused-ssim.egg-link": {"nul": "a\0b", "device": "/dev\n", "long": "/" + "a" * 100_000, "everything": "/\n", "address": "https://[x/"},
    "torch/version.py": {
        **PYTHON,
        "numbers": "__version__ = 3\ncuda = 4\n",
        "one-number": "__version__ = '2'\ncuda = '12'\n",
        "superscript": "__version__ = '\u00b2'\n",
        "long": f"__version__ = '{'9' * 5000}'\n",
        "bytes": "__version__ = b'2.4.0'\n",
    },
    "torch/utils/cpp_extension.py": {
        "brackets": "supported_arches = [" * 40_000,
        "blank": "\n" * 900_000,
        "odd": "supported_arches = ['1.2.3', '...', '99.9', '\u00b2.0']",
        "spaces": "from" + " " * 900_000,
    },
    "simple_knn/__init__.py": {**PYTHON, "blank": "\n" * 900_000, "dots": "from " + "." * 900_000},
    "torch-2.4.0.dist-info/METADATA": {
        "blank": "Requires-Dist:" + "\n" * 900_000,
        "many": "Requires-Dist: torch==1\n" * 40_000,
    },
    "simple_knn-1.0.dist-info/RECORD": {
        "quotes": '"' * 900_000,
        "many": "".join(f"m{n}/a.so,,\n" for n in range(60_000)),
        "commas": "," * 900_000,
        "long": "a" * 900_000 + ".so,,",
    },
}  # fmt: skip


def write_environment(site: Path) -> None:
    """Something like a stack's environment, to be spoiled."""
    for name, text in FILES.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def environments() -> Iterator[tuple[str, Write]]:
    """Every hostile environment: its name, and what writes its site-packages."""
    for name in FILES:
        for kind, put in bad_files():

            def write(site: Path, name: str = name, put: Write = put) -> None:
                write_environment(site)
                replace(site / name, put)

            yield f"{name}-{kind}".replace("/", "_"), write
    for name, texts in CONTENTS.items():
        for kind, text in texts.items():

            def fill(site: Path, name: str = name, text: str = text) -> None:
                write_environment(site)
                (site / name).write_text(text, encoding="utf-8")

            yield f"{name}-{kind}".replace("/", "_"), fill
    yield "folders-loops", _loops
    yield "folders-crossing", _crossing
    yield "folders-deep", _deep
    yield "folders-many", _many


def _loops(site: Path) -> None:
    write_environment(site)
    for number in range(6):
        (site / f"simple_knn/l{number}").symlink_to(".")


def _crossing(site: Path) -> None:
    write_environment(site)
    for one in range(6):
        (site / f"p{one}").mkdir()
        (site / f"p{one}/m.so").write_text("\x7fELF")
        for other in range(6):
            (site / f"p{one}/q{other}").symlink_to(f"../p{other}")


def _deep(site: Path) -> None:
    write_environment(site)
    nest(site, "d", 1_500)


def _many(site: Path) -> None:
    write_environment(site)
    for number in range(20_000):
        (site / f"n{number}-1.0.dist-info").mkdir()
