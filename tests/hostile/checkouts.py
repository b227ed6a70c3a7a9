"""Hostile checkouts: what `diagnose --repo` and `install --dry-run` may be pointed at."""

from collections.abc import Callable, Iterator
from pathlib import Path

from tests.files import put

from .bad_files import bad_files, replace

Write = Callable[[Path], None]
"""Writes a checkout into an empty folder."""

SETUP = """\
import os
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

here = os.path.dirname(os.path.abspath(__file__))
setup(
    name="splat_probe",
    version="1.0",
    packages=["splat_probe"],
    ext_modules=[
        CUDAExtension(
            "splat_probe._C",
            ["ext.cu"],
            extra_compile_args={"nvcc": ["-I" + os.path.join(here, "third_party/glm/")]},
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
"""
RENDER = """\
from diff_gaussian_rasterization import GaussianRasterizationSettings, GaussianRasterizer
def render(xyz):
    rasterizer = GaussianRasterizer(raster_settings=GaussianRasterizationSettings(image_height=1))
    image, radii = rasterizer(means3D=xyz)
"""
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "setup.py": SETUP,
    "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\n[project]\nname = "splat_probe"\nversion = "1.0"\n',
    "setup.cfg": "[options]\npython_requires = >=3.8\n",
    "CMakeLists.txt": "project(splat_probe)\n",
    "ext.cu": '#include "ext.h"\n__global__ void f() {}\n',
    "ext.h": "#pragma once\n",
    "splat_probe/__init__.py": "from . import _C\n",
    "requirements.txt": "torch==2.1.0\n",
    "environment.yml": "dependencies:\n  - pytorch=1.12.1\n",
    "convert.py": "--SiftExtraction.use_gpu\n",
    "train.py": RENDER,
    ".gitmodules": '[submodule "glm"]\n\tpath = third_party/glm\n\turl = https://github.com/g-truc/glm.git\n',
    ".git/HEAD": "ref: refs/heads/main\n",
    ".git/config": '[remote "origin"]\n\turl = https://github.com/someone/splats.git\n',
    ".git/packed-refs": f"{COMMIT} refs/heads/main\n",
    ".git/refs/heads/main": f"{COMMIT}\n",
    "submodules/simple-knn/setup.py": SETUP.replace("splat_probe", "simple_knn"),
    "submodules/simple-knn/ext.cu": "__global__ void f() {}\n",
}
"""A harmless checkout with every kind of file that is looked at."""


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
    families = {
        "setup.py": {
            **_texts_with_setup(PYTHON),
            **_texts_with_setup(UNFOLDING),
            "big": SETUP + "#" * 3_000_000,
        },
        "pyproject.toml": TOML,
        "setup.cfg": CFG,
        ".gitmodules": GITMODULES,
        ".git/config": GIT_CONFIG,
        "requirements.txt": {
            "long-lines": ("torch" + "[" * 50_000 + "\n") * 5,
            "nul": "to\0rch==1\n",
            "spaces": "a" + " " * 200_000 + "==\n",
        },
        "environment.yml": {
            "long-lines": "dependencies:\n - " + "a " * 100_000 + ":\n",
            "colons": "dependencies:\n- " + ":" * 100_000,
        },
        "train.py": {name: RENDER + text for name, text in PYTHON.items()},
        "splat_probe/__init__.py": PYTHON,
        "ext.cu": CUDA,
    }
    for file, contents in families.items():
        for name, text in contents.items():

            def write(folder: Path, file: str = file, text: str = text) -> None:
                put(folder, {**FILES, file: text})

            yield f"{file}-{name}".replace("/", "_"), write


def _texts_with_setup(texts: dict[str, str]) -> dict[str, str]:
    return {name: text + "\n" + SETUP for name, text in texts.items()}


def _many(depth: int, opening: str, inner: str, closing: str = "") -> str:
    return opening * depth + inner + closing * depth


PYTHON = {
    "minuses": "x = " + "-" * 50_000 + "1",
    "many-minuses": "x = " + "-" * 500_000 + "1",
    "nots": "x = " + "not " * 50_000 + "1",
    "brackets-90": "x = " + _many(90, "[", "1", "]"),
    "brackets-190": "x = " + _many(190, "[", "1", "]"),
    "brackets": "x = " + _many(50_000, "(", "1", ")"),
    "lambdas": "x = " + "lambda: " * 20_000 + "1",
    "attributes": "x = a" + ".b" * 100_000,
    "calls": "x = a" + "()" * 100_000,
    "subscripts": "x = a" + "[0]" * 50_000,
    "sum": "x = 1" + " + 1" * 100_000,
    "powers": "x = 2" + "**9" * 20_000,
    "text-sum": "x = 'a'" + " + 'a'" * 100_000,
    "ifs": "x = " + "1 if a else " * 20_000 + "1",
    "elifs": "if a: pass\n" + "elif a: pass\n" * 50_000,
    "indented": "".join(" " * i + "if a:\n" for i in range(99)) + " " * 99 + "pass\n",
    "deep-indent": "".join(" " * i + "if a:\n" for i in range(1_000)) + " " * 1_000 + "pass\n",
    "f-strings": "x = f'{a}" + "{a}" * 50_000 + "'",
    "commas": "x = " + "1," * 400_000,
    "statements": "a=1;" * 200_000,
    "names": "".join(f"n{i}=n{i + 1}\n" for i in range(60_000)),
    "long-int": "x = " + "9" * 200_000,
    "nul": "x = 'a\0b'",
    "escapes": "x = '" + "\\ud800" * 50_000 + "'",
    "bad-escape": "x = '\\N{no such character}'",
    "tabs": "if a:\n\tb\n        c\n",
    "open-string": "x = '''" + "a" * 500_000,
    "walrus": "x = " + _many(60, "(a := ", "1", ")"),
    "decorators": "@a\n" * 50_000 + "def f(): pass\n",
    "comparisons": "x = 1" + " < 1" * 100_000,
    "awaits": "async def f():\n x = " + "await " * 20_000 + "a",
    "dicts": "x = {" + "'nvcc': ['-O3']," * 50_000 + "}",
    "same-names": "x = []\n" + "x += x\n" * 50_000,
    "globals": "".join(f"from diff_gaussian_rasterization import a{i}\n" for i in range(20_000)),
    "try": "try:\n import gsplat\nexcept Exception: pass\n" * 10_000,
}
"""Python that is hard to parse or to walk through."""

UNFOLDING = {
    "lists": "a0 = ['x'] * 9\n"
    + "".join(f"a{i + 1} = [{', '.join([f'a{i}'] * 9)}]\n" for i in range(12))
    + "packages = a12\n",
    "sums": "a0 = ['-O3']\n" + "".join(f"a{i + 1} = a{i} + a{i}\n" for i in range(40)) + "packages = a40\n",
    "texts": "a0 = 'abcdefgh'\n"
    + "".join(f"a{i + 1} = a{i} + a{i}\n" for i in range(40))
    + "packages = [a40]\nname = a40\n",
    "products": "packages = ['x' * 9999999999] * 9999999999\n",
    "formatted": "packages = [f\"{'x':>9999999999}\", '%9999999999d' % 1]\n",
    "powers": "version = 9 ** 9 ** 9 ** 9\n",
    "circle": "a = b + b\nb = a + a\npackages = a\n",
    "own-circle": "packages = [packages, packages]\n",
    "flags-circle": "a = [b]\nb = [a]\nflags = {'nvcc': a + b}\nflags['nvcc'] += b\n",
}
"""Small literals that are large when they are worked out. They are bound to the names that follow them into setup()."""

_USES = """\
setup(name=packages, version=version, packages=packages, install_requires=packages, ext_modules=[CUDAExtension(
    packages, packages, extra_compile_args={"nvcc": packages, "cxx": packages}, include_dirs=packages)])
"""
UNFOLDING = {name: text + _USES for name, text in UNFOLDING.items()}

_TABLES = ("project", "build-system", "tool", "tool.setuptools")
_VALUES = {
    "number": "3",
    "list": "[]",
    "lists": "[[], [[1]]]",
    "truth": "true",
    "text": '"x"',
    "date": "1979-05-27",
    "float": "nan",
    "table": "{a = {b = 1}}",
}
TOML = {
    **{f"{table}-{kind}": f"{table} = {value}\n" for table in _TABLES for kind, value in _VALUES.items()},
    **{
        f"{table}.{key}-{kind}": f"[{table}]\n{key} = {value}\n"
        for table, key in (
            ("project", "name"),
            ("project", "version"),
            ("project", "dependencies"),
            ("project", "requires-python"),
            ("project", "dynamic"),
            ("project", "optional-dependencies"),
            ("build-system", "requires"),
            ("build-system", "build-backend"),
            ("build-system", "backend-path"),
        )
        for kind, value in _VALUES.items()
    },
    "array-of-project": "[[project]]\nname = 'x'\n",
    "deep-arrays": "x = " + _many(50_000, "[", "", "]"),
    "deep-tables": "x = " + _many(20_000, "{a = ", "1", "}"),
    "deep-keys": "a" + ".a" * 50_000 + " = 1\n",
    "deep-header": "[a" + ".a" * 50_000 + "]\nb = 1\n",
    "nul-name": '[project]\nname = "a\\u0000b"\nversion = "\\u0000"\n',
    "nul-byte": '[project]\nname = "a\0b"\n',
    "escape": '[project]\nname = "\\u001b[2J"\n',
    "dependencies-nul": '[project]\ndependencies = ["to\\u0000rch==1"]\n[build-system]\nrequires = ["\\u0000"]\n',
    "dependencies-odd": (
        '[project]\ndependencies = ["torch @ https://[x/", "", "==", "torch==\u00b2", "torch[", "a; b < 1"]\n'
        'requires-python = "\u00b2"\n[build-system]\nrequires = ["torch @ https://[x/", "", "torch==\u00b2"]\n'
    ),
    "long-int": "x = " + "9" * 100_000 + "\n",
    "many-keys": "".join(f"k{i} = 1\n" for i in range(50_000)),
    "many-tables": "".join(f"[t{i}]\n" for i in range(50_000)),
    "duplicate": "[project]\n[project]\n",
    "after-a-byte-order-mark": "\ufeff[project]\nname = 'x'\n",
    "conflict": "<<<<<<< HEAD\n[project]\n=======\n>>>>>>> other\n",
    "big": "# " + "x" * 3_000_000,
    "surrogate": '[project]\nname = "\udce9"\n',
    "long-dependencies": "[project]\ndependencies = [" + '"torch>=1",' * 50_000 + "]\n",
    "quoted": "x = " + '"""' + '"' * 200_000,
}
"""pyproject.toml files that are no proper project, and TOML that is hard to read."""

CFG = {
    "duplicate-section": "[options]\n[options]\npython_requires = >=3\n",
    "duplicate-option": "[options]\npython_requires = >=3\npython_requires = >=4\n",
    "no-section": "python_requires = >=3\n",
    "interpolated": "[options]\npython_requires = %(python_requires)s\n",
    "open-section": "[options\n",
    "after-a-byte-order-mark": "\ufeff[options]\npython_requires = >=3\n",
    "nul": "[options]\npython_requires = \0\n",
    "superscript": "[options]\npython_requires = >=\u00b2\n",
    "no-versions": "[options]\npython_requires = three\n",
    "long-value": "[options]\npython_requires =\n" + "    >=3\n" * 100_000,
    "many-sections": "".join(f"[s{i}]\n" for i in range(50_000)),
    "default": "[DEFAULT]\npython_requires = >=99\n",
    "brackets": "[" * 200_000 + "\n",
    "spaces": "[options]\n" + "a" + " " * 300_000 + "b\n",
}
GITMODULES = {
    "absolute": '[submodule "a"]\n path = /dev\n url = x\n',
    "above": '[submodule "a"]\n path = ../../../../../../../../../proc\n url = x\n',
    "nul": '[submodule "a"]\n path = a\0b\n url = x\n',
    "long-name": f'[submodule "a"]\n path = {"a" * 100_000}\n url = x\n',
    "same": '[submodule "a"]\n path = .\n url = x\n',
    "many": '[submodule "a"]\n path = a\n' * 30_000,
    "odd-address": '[submodule "a"]\n path = a\n url = https://[x/\n',
    "spaces": '[submodule "a"]\n path = a' + " " * 300_000 + "b\n",
    "surrogate": '[submodule "a"]\n path = \udce9\n url = \udce9\n',
}
GIT_CONFIG = {
    "odd-address": '[remote "origin"]\n url = https://[x/\n',
    "odd-port": '[remote "origin"]\n url = https://a:99999999/\n',
    "nul": '[remote "origin"]\n url = https://a\0b/\n',
    "many": '[remote "origin"]\n' * 30_000,
    "spaces": '[remote "origin"]' + " \n" * 200_000,
    "long": f'[remote "origin"]\n url = {"x" * 500_000}\n',
}
CUDA = {
    "includes": '#include "ext.h"\n' * 50_000,
    "include-device": '#include "/dev/zero"\n#include "/dev/tty"\n#include "/proc/kmsg"\n',
    "include-nul": '#include "a\0b"\n',
    "include-itself": '#include "ext.cu"\n' * 100,
    "include-spaces": "#" + " " * 300_000 + "include",
    "hashes": "# " * 200_000,
    "open-comments": "/*" * 300_000,
    "slashes": "/" * 600_000,
    "spaces": " " * 600_000,
    "underscores": "_" * 600_000,
    "angles": "<" * 600_000,
    "words": "a " * 300_000,
    "asm": 'asm volatile("' * 40_000,
    "launches": "f<<<1, 2>>>(" * 40_000,
}


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
    import os

    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("deep.cu", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)
