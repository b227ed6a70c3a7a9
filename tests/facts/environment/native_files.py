"""Builds small native files with gcc: a stand-in torch, and extensions that link it, with the symbols a test asks for.

Mangled C++ names are valid names in C, so that a line of C exports or imports any symbol of torch.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

needs_gcc = pytest.mark.skipif(
    shutil.which("gcc") is None or sys.platform != "linux", reason="needs gcc and ELF"
)
TAG = f"cpython-{sys.version_info.major}{sys.version_info.minor}-x86_64-linux-gnu"

CHECK_FAIL = "_ZN3c106detail14torchCheckFailEPKcS2_jRK"
NEW_ABI = CHECK_FAIL + "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
OLD_ABI = CHECK_FAIL + "Ss"
EMPTY = "_ZN2at4_ops5empty4callEv"


def library(
    path: Path,
    exports: Iterable[str] = (),
    imports: Iterable[str] = (),
    *,
    links: Iterable[Path] = (),
    flags: Iterable[str] = (),
) -> Path:
    """Compile a shared library that exports and imports these functions and needs these libraries."""
    path.parent.mkdir(parents=True, exist_ok=True)
    wanted, word = list(imports), re.sub(r"\W", "_", path.name)
    lines = [f"int {name}(void) {{ return 1; }}" for name in exports]
    lines += [f"extern int {name}(void);" for name in wanted]
    lines.append(f"int uses_{word}(void) {{ return 0{''.join(f' + {name}()' for name in wanted)}; }}")
    command = ["gcc", "-shared", "-fPIC", "-O0", "-w", "-x", "c", "-"]
    command += ["-o", str(path), f"-Wl,-soname,{path.name}"]
    command += ["-Wl,--no-as-needed", *flags, "-x", "none", *map(str, links)]
    subprocess.run(command, input="\n".join(lines), text=True, check=True, capture_output=True)
    return path


def torch_in(site: Path, c10: Iterable[str] = (NEW_ABI,), cpu: Iterable[str] = (EMPTY,)) -> Path:
    """A folder that looks like an installed CPU torch 2.9 with two libraries; gives its ``lib``."""
    lib = site / "torch" / "lib"
    library(lib / "libc10.so", c10)
    library(lib / "libtorch_cpu.so", cpu)
    (site / "torch" / "__init__.py").write_text("")
    (site / "torch" / "version.py").write_text("__version__ = '2.9.0+cpu'\ncuda = None\nhip = None\n")
    return lib


def extension(
    site: Path, imports: Iterable[str], *links: Path, name: str = "pkg", flags: Iterable[str] = ()
) -> Path:
    """``name/_C.<tag>.so`` in a site-packages folder."""
    return library(site / name / f"_C.{TAG}.so", (), imports, links=links, flags=flags)


def load(path: Path, *first: Path) -> str:
    """What the real loader says to a file, with others loaded before it, in a child process; "" when it loads."""
    script = """if True:
        import ctypes, os, sys
        for name in sys.argv[2:]: ctypes.CDLL(name, os.RTLD_NOW | os.RTLD_LOCAL)
        ctypes.CDLL(sys.argv[1], os.RTLD_NOW)"""
    argv = [sys.executable, "-c", script, str(path), *map(str, first)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]
