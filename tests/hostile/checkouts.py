"""Hostile checkouts: what `diagnose --repo` and `install --dry-run` may be pointed at."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.files import put
from tests.tables import data

from .bad_files import bad_files, replace
from .spelled import spelled_table

Write = Callable[[Path], None]
"""Writes a checkout into an empty folder."""

_DATA = data(__file__)
SETUP: str = _DATA["files"]["setup.py"]
FILES: dict[str, str] = {
    **_DATA["files"],
    "submodules/simple-knn/setup.py": SETUP.replace("splat_probe", "simple_knn"),
}
"""A harmless checkout with every kind of file that is looked at."""
RENDER, COMMIT = FILES["train.py"], FILES[".git/refs/heads/main"].strip()

_USES = """\
setup(name=packages, version=version, packages=packages, install_requires=packages, ext_modules=[CUDAExtension(
    packages, packages, extra_compile_args={"nvcc": packages, "cxx": packages}, include_dirs=packages)])
"""
PYTHON = spelled_table(_DATA["python"])
UNFOLDING = {name: text + _USES for name, text in spelled_table(_DATA["unfolding"]).items()}
CFG = spelled_table(_DATA["setup.cfg"])


def _other_types() -> Iterator[tuple[str, str]]:
    """pyproject.toml files in which a table or a key has another type than it should."""
    for kind, value in _DATA["values"].items():
        yield from ((f"{table}-{kind}", f"{table} = {value}\n") for table in _DATA["tables"])
        for table, keys in _DATA["keys"].items():
            yield from ((f"{table}.{key}-{kind}", f"[{table}]\n{key} = {value}\n") for key in keys)


TOML = {**dict(_other_types()), **spelled_table(_DATA["pyproject.toml"])}


def write_checkout(folder: Path) -> None:
    """The harmless checkout, to be spoiled."""
    put(folder, FILES)


def bad_file_checkouts() -> Iterator[tuple[str, Write]]:
    """One file of a checkout replaced by what is no proper file."""
    for name in (*FILES, ".git", ".git/commondir", "submodules/simple-knn/.git"):
        for kind, bad in bad_files():

            def write(folder: Path, name: str = name, bad: Write = bad) -> None:
                write_checkout(folder)
                if (folder / name).is_dir():
                    (folder / name).rename(folder / "moved")
                replace(folder / name, bad)

            yield f"{name}-{kind}".replace("/", "_"), write


def content_checkouts() -> Iterator[tuple[str, Write]]:
    """One file of a checkout with a content that is made to exhaust, to confuse or to break its reader."""
    before_setup = {name: f"{text}\n{SETUP}" for name, text in {**PYTHON, **UNFOLDING}.items()}
    families = {
        "setup.py": {**before_setup, "big": SETUP + "#" * 3_000_000},
        "pyproject.toml": TOML,
        "setup.cfg": CFG,
        "train.py": {name: RENDER + text for name, text in PYTHON.items()},
        "splat_probe/__init__.py": PYTHON,
    }
    for file in (".gitmodules", ".git/config", "requirements.txt", "environment.yml", "ext.cu"):
        families[file] = spelled_table(_DATA[file])
    for file, contents in families.items():
        for name, text in contents.items():

            def write(folder: Path, file: str = file, text: str = text) -> None:
                put(folder, {**FILES, file: text})

            yield f"{file}-{name}".replace("/", "_"), write


def folder_checkouts() -> Iterator[tuple[str, Write]]:
    """Checkouts whose folders are deep, full, looped or oddly named."""
    many: dict[str, Callable[[], dict[str, str]]] = {
        "files": lambda: {f"f{n}.py": "" for n in range(20_000)},
        "renderers": lambda: {f"f{n}.py": RENDER + "x = " + "1," * 50_000 for n in range(700)},
        "folders": lambda: {f"d{n}/.gitkeep": "" for n in range(4_000)},
        "extensions": lambda: {f"e{n}/setup.py": SETUP for n in range(1_000)},
        "wide-extensions": lambda: {f"e{n}/setup.py": SETUP + "x = " + "1," * 200_000 for n in range(60)},
        "sources": lambda: {f"f{n}.cu": "a " * 300_000 for n in range(650)},
        "requirements": lambda: {f"requirements{n}.txt": "torch==1.0\n" * 20_000 for n in range(300)},
        "git-above": lambda: {".git/HEAD": "ref: ../../../../../../../../../../dev/zero\n"},
        "git-nul": lambda: {".git/HEAD": "ref: a\0b\n", ".git/commondir": "a\0b\n"},
        "odd-names": lambda: {
            **{f"{name}.py": RENDER for name in ("\udcff\udcfe", "\x1b[2J", "\u202e", "a\nb")},
            "requirements\udcff.txt": RENDER,
            **{
                f"{name}/{file}": SETUP
                for name in ("gsplat\udcff", "e\x1b]0;x\x07", "e\nb", "\u202esub")
                for file in ("setup.py", "__init__.py")
            },
        },
    }
    for kind, files in many.items():

        def write(folder: Path, files: Callable[[], dict[str, str]] = files) -> None:
            write_checkout(folder)
            put(folder, files())

        yield f"folders-{kind}", write
    for below in (".", "submodules/simple-knn"):

        def deep(folder: Path, below: str = below) -> None:
            write_checkout(folder)
            nest(folder / below, "d", 1_500)

        yield f"folders-deep-{below.partition('/')[0]}", deep
    yield "folders-deep-package", _deep_package
    yield "folders-loops", _loops
    for kind, text in (("elsewhere", "gitdir: /proc/self/fd\n"), ("nul", "gitdir: a\0b\n")):

        def git_file(folder: Path, text: str = text) -> None:
            write_checkout(folder)
            (folder / ".git").rename(folder / "moved")
            put(folder, {".git": text})

        yield f"folders-git-file-{kind}", git_file


def _deep_package(folder: Path) -> None:
    write_checkout(folder)
    (folder / "submodules/simple-knn/ext.cu").unlink()
    nest(folder / "submodules/simple-knn", "d", 1_500)


def _loops(folder: Path) -> None:
    write_checkout(folder)
    for name, target in (("up", ".."), ("here", "."), ("root", "/"), ("submodules/proc", "/proc")):
        (folder / name).symlink_to(target)
    (folder / "submodules/all").symlink_to(folder)


def nest(folder: Path, name: str, depth: int) -> None:
    """Folders in folders, deeper than a path may be long, with a .cu file at the bottom."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("deep.cu", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)
