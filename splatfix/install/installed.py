"""What is installed in an environment, and every file that replacing it would remove or change."""

import csv
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from msgspec import Struct
from packaging.utils import canonicalize_name

from splatfix.core.errors import SplatfixError
from splatfix.core.files import sha256_of
from splatfix.core.reading import read_bytes, read_text
from splatfix.facts import name_and_version
from splatfix.install.environment import Environment
from splatfix.install.wheels import UNREADABLE, WheelFile, launchers_in

EASY_INSTALL = "easy-install.pth"
"""The list of folders that ``setup.py develop`` and ``setup.py install`` share among all packages of an environment."""


class InstalledDistribution(Struct, frozen=True):
    """One installed distribution with its files."""

    name: str
    version: str
    info: Path
    """Its dist-info folder, egg-info, egg, or egg-link file."""
    files: tuple[Path, ...]
    """Everything that uninstalling it would remove or change."""

    @property
    def digest(self) -> str:
        """A fingerprint of its RECORD: it changes when anything about the installation does."""
        record = self.info / "RECORD"
        return sha256_of(record) if record.is_file() else ""


def find_installed(environment: Environment, name: str) -> tuple[InstalledDistribution, ...]:
    """Find every distribution of that name in the environment's own folders (normally none or one).

    Where the files of one are not recorded (installed by bare distutils), or not readable, ``cannot-back-up`` is raised.
    """
    found: list[InstalledDistribution] = []
    for info in (path for site in environment.sites for path in sorted(site.glob("*"))):
        project, version = name_and_version(info.name)
        if info.suffix not in _READERS or canonicalize_name(project) != canonicalize_name(name):
            continue
        try:
            files = tuple(dict.fromkeys(_READERS[info.suffix](environment, info)))
        except (*UNREADABLE, csv.Error) as error:
            reason = f"its files are not known ({error})"
            raise SplatfixError.of(
                "install.unsafe-to-replace", info_name=info.name, reason=reason, info=info
            ) from error
        found.append(InstalledDistribution(project, version, info, files))
    return tuple(found)


def is_installed(wheel: WheelFile, environment: Environment) -> bool:
    """Tell whether every file of the wheel is where pip would put it, with the same bytes, and the distribution has no others.

    A script whose first line pip rewrites always differs; such a wheel is installed again.
    """
    distributions = find_installed(environment, wheel.name)
    if [found.info.name for found in distributions] != [wheel.dist_info]:
        return False
    info, ours = distributions[0].info, set(wheel.destinations(environment))
    for path in distributions[0].files:
        # pip adds to the dist-info (INSTALLER, REQUESTED), and whoever imports adds bytecode
        is_known = path in ours or info in path.parents
        if path.suffix != ".pyc" and not (is_known and path.is_file()):
            return False
    with zipfile.ZipFile(wheel.path) as archive:
        for member, path in wheel.placed(environment):
            size = archive.getinfo(member).file_size
            # pip writes its own RECORD
            if member != f"{wheel.dist_info}/RECORD" and read_bytes(path, size) != archive.read(member):
                return False
    return True


def bytecode_of(path: Path) -> Iterator[Path]:
    """Yield compiled copies of a module that lie beside it, of any Python version."""
    # a link would lead to what somebody else imports
    if path.suffix == ".py" and not (path.parent / "__pycache__").is_symlink():
        yield from sorted((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))


def _dist_info(_: Environment, info: Path) -> Iterator[Path]:
    for row in csv.reader(_lines(info / "RECORD", "it has no RECORD of its files")):
        if row and (info.parent / row[0]).is_dir():
            raise ValueError(f"its RECORD lists the folder {row[0]}, and pip would remove all that is in it")
        if row:
            # "a/../b" is "b" without following links, as RECORD means it
            path = Path(os.path.normpath(info.parent / row[0]))
            yield from (path, *bytecode_of(path))
    yield from _files_below(info)


def _egg_link(environment: Environment, info: Path) -> Iterator[Path]:
    """Yield of a development install the link to the source folder, and the scripts that the metadata there names."""
    yield from (info, info.parent / EASY_INSTALL)
    source = Path(next(iter(_lines(info, "it is gone")), "").strip())
    for metadata in source.glob("*.egg-info"):
        # setuptools writes no other than an absolute one, and "." would be the folder that splatfix runs in
        if source.is_absolute() and canonicalize_name(metadata.stem) == canonicalize_name(info.stem):
            yield from _scripts(environment, metadata)


def _egg_info(_: Environment, info: Path) -> Iterator[Path]:
    for line in _lines(info / "installed-files.txt", "distutils installed it, which keeps no list of files"):
        path = (info / line.strip()).resolve()
        yield from (path, *bytecode_of(path))
    yield from _files_below(info)


def _egg(environment: Environment, info: Path) -> Iterator[Path]:
    yield info.parent / EASY_INSTALL
    if info.is_dir():
        yield from _files_below(info)
        yield from _scripts(environment, info / "EGG-INFO")
    elif info.is_file():
        yield info
        yield from _scripts(environment, zipfile.Path(info, "EGG-INFO/"))
    else:
        raise OSError("neither a folder nor a file")


def _scripts(environment: Environment, metadata: Path | zipfile.Path) -> Iterator[Path]:
    """Yield the programs that setuptools made of a package's metadata; pip removes them with it."""
    entry_points, folder = metadata / "entry_points.txt", metadata / "scripts"
    names: list[str] = []
    if entry_points.is_file():
        names += launchers_in(entry_points.read_text(encoding="utf-8"))
    if folder.is_dir():
        names += [item.name for item in folder.iterdir()]
    for name in names:
        # of a path whoever wrote it means a file elsewhere
        if PurePosixPath(name).name == name:
            yield from (environment.scripts / f"{name}{ending}" for ending in ("", ".exe", "-script.py"))


_READERS: Mapping[str, Callable[[Environment, Path], Iterator[Path]]] = {
    ".dist-info": _dist_info,
    ".egg-link": _egg_link,
    ".egg-info": _egg_info,
    ".egg": _egg,
}


def _lines(path: Path, absent: str) -> list[str]:
    """Read a list of files; raises OSError, with ``absent`` when there is none."""
    text = read_text(path)
    if isinstance(text, str):
        return text.split("\n")
    raise OSError(absent if text is None else f"{path.name}: {text.reason}")


def _files_below(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())
