"""Real environments and real sources for the installer's tests: venvs without network, and small C extensions."""

import atexit
import functools
import hashlib
import shutil
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from msgspec.structs import fields

from splatfix.core.runner import Completed, Runner
from splatfix.facts import gather
from splatfix.install import InstallOutcome, InstallProgress, WheelCache, execute
from splatfix.install.environment import Environment, open_environment
from splatfix.model import Installer, MachineFacts
from tests.archs import request_for
from tests.files import put
from tests.plan.machines import make_plan
from tests.tables import data

HERE = Path(sysconfig.get_paths()["purelib"])
_EXTENSION: dict[str, str] = data(__file__)["extension"]
TOOLS = ("pip", "setuptools", "wheel", "_distutils_hack", "pkg_resources", "packaging")


def make_environment(folder: Path, *, torch: bool = False, pip: bool = False) -> Environment:
    """A fresh venv that sees setuptools of the Python that runs the tests, and with ``torch`` all it has.

    Args:
        pip: it sees pip too. Without it the environment is as uv and Poetry make them, and uv, which takes a third of the
            time, builds and installs.
    """
    template = _template()
    shutil.copytree(template.prefix, folder, symlinks=True)
    moved = {
        field.name: folder / getattr(template, field.name).relative_to(template.prefix)
        for field in fields(template)
        if isinstance(getattr(template, field.name), Path)
    }
    installer = Installer() if pip or torch else template.installer
    python = str(folder / "bin" / "python")
    environment = Environment(python, installer=installer, version=template.version, **moved)
    shown = HERE if torch else _tools_only(folder / "tools" / "site-packages", TOOLS if pip else TOOLS[1:])
    (environment.purelib / "shown.pth").write_text(f"{shown}\n")
    return environment


@functools.cache
def _template() -> Environment:
    """One venv for each process that runs tests; copied, because it names its own place only in what nobody reads."""
    folder = tempfile.TemporaryDirectory(prefix="venv-template-")
    atexit.register(folder.cleanup)
    place = Path(folder.name).resolve() / "env"
    venv.create(place, symlinks=True, with_pip=False)
    return open_environment(str(place / "bin" / "python"))


def _tools_only(folder: Path, tools: Sequence[str]) -> Path:
    folder.mkdir(parents=True)
    for name in tools:
        for entry in [HERE / name, *HERE.glob(f"{name}-*.dist-info")]:
            if entry.exists():
                (folder / entry.name).symlink_to(entry)
    return folder


@functools.cache
def machine_facts() -> MachineFacts:
    """Of the machine that runs the tests."""
    return gather("").machine


def install(
    environment: Environment,
    *sources: Path,
    runner: Runner | None = None,
    progress: InstallProgress | None = None,
    cache: WheelCache | None = None,
    reinstall: bool = False,
    afresh: bool = False,
    **options: Any,
) -> InstallOutcome:
    """Plan and execute; wheels come from the cache that tests share, unless ``afresh``."""
    facts = gather(environment.python)
    plan = make_plan(request_for(tuple(map(str, sources)), **options), facts)
    if not afresh:
        cache = cache or WheelCache()
    return execute(plan, facts, runner=runner, progress=progress, cache=cache, reinstall=reinstall)


Run = Callable[[], Completed]


class Interposed(Runner):
    """Asks ``instead`` with the words of a command, its variables, and what runs it."""

    def __init__(self, instead: Callable[[list[str], Mapping[str, str], Run], Completed]) -> None:
        self.instead = instead

    def run(self, argv: Sequence[str | Path], **options: Any) -> Completed:
        words, run = [str(word) for word in argv], super().run
        return self.instead(words, options.get("env") or {}, lambda: run(argv, **options))


Files = dict[str, tuple[int, str]]
"""Mode and content by path."""


class Stages:
    """One environment with the copies of it that were kept on its way: a test goes on from any of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = make_environment(folder / "env")
        self.files: dict[str, Files] = {}

    def keep(self, name: str) -> None:
        shutil.copytree(self.environment.prefix, self.folder / name, symlinks=True)
        self.files[name] = snapshot(self.environment)

    def at(self, name: str) -> Environment:
        """The environment as it was then, at the same place: a journal knows it."""
        shutil.rmtree(self.environment.prefix, ignore_errors=True)
        shutil.copytree(self.folder / name, self.environment.prefix, symlinks=True)
        return self.environment


def snapshot(target: Environment) -> Files:
    """Every file of the environment except splatfix's own journal; folders too."""
    found: Files = {}
    for path in sorted(target.prefix.rglob("*")):
        name = str(path.relative_to(target.prefix))
        if name.startswith((".splatfix", "tools")):
            continue
        if path.is_symlink():
            found[name] = (0, f"-> {path.readlink()}")
        elif path.is_dir():
            found[name] = (path.stat().st_mode, "folder")
        else:
            found[name] = (path.stat().st_mode, hashlib.sha256(path.read_bytes()).hexdigest())
    return found


def write_extension(
    folder: Path, *, answer: int = 42, name: str = "tiny_probe", version: str = "1.0", **code: str
) -> Path:
    """Source of a C extension ``tiny_probe`` whose ``tiny_probe._C.answer()`` says ``answer``; nothing of torch in it.

    Args:
        code: ``extra`` is C code at file scope: a syntax error, or a fat binary in its own section; ``module`` and ``before``
            are Python code at the top of its package and of its setup.py; ``said`` are more arguments of ``setup``.
    """
    blanks = dict.fromkeys(("module", "before", "said", "extra"), "")
    given = {**blanks, **code, "name": name, "version": version, "answer": answer}
    for path, text in _EXTENSION.items():
        put(folder, {Template(path).substitute(given): Template(text).substitute(given)})
    return folder


def fat_binary(*archs: int) -> str:
    """C code that puts one fat-binary container with machine code for these architectures where nvcc would."""
    entries = b""
    for number in archs:
        head = bytearray(64)
        head[0:8] = bytes((2, 0, 1, 1, 64, 0, 0, 0))
        head[8:16] = (8).to_bytes(8, "little")
        head[24:32] = (7).to_bytes(2, "little") + (1).to_bytes(2, "little") + number.to_bytes(4, "little")
        head[40:48] = (0x11).to_bytes(8, "little")
        entries += bytes(head) + bytes(8)
    blob = bytes.fromhex("50ed55ba01001000") + len(entries).to_bytes(8, "little") + entries
    numbers = ",".join(str(byte) for byte in blob)
    attributes = '__attribute__((used, aligned(8), section(".nv_fatbin")))'
    return f"static const unsigned char code_{'_'.join(map(str, archs))}[] {attributes} = {{{numbers}}};"


def run_in(target: Environment, code: str) -> str:
    """What a child of the environment's interpreter prints."""
    done = Runner().run([target.python, "-B", "-c", code], timeout=60.0)
    assert done.ok, done.stderr
    return done.stdout.strip()


def pip(target: Environment, *arguments: str) -> Completed:
    """As a person calls it."""
    argv = [sys.executable, "-B", "-m", "pip", "--python", target.python, *arguments]
    return Runner().run(argv, timeout=120.0)


def entry_file(target: Environment) -> Path:
    """The last entry of its journal."""
    return sorted((target.state_folder / "journal").glob("*.json"))[-1]


def backup_file(target: Environment, kind: str = "backup") -> Path:
    """The one of the last entry."""
    (path,) = entry_file(target).with_suffix("").glob(f"{kind}-*/backup.json")
    return path


LEAVES: str = data(__file__)["texts"]["leaves"]
"""At the top of a setup.py, as LiDAR-RT's does: a folder in site-packages, whatever becomes of the build."""

PYTHON_TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
