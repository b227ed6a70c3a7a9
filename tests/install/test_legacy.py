"""Development installs and eggs, as setuptools before 80 made them, are replaced and come back with all that was theirs.

Their layout is that of setuptools 57.5 and 65.5, whose ``develop`` and ``install`` were run for every case here.
"""

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from splatfix.install.backup import Backup, JournalPaths, make_backup, note_written, read_backup, restore
from splatfix.install.environment import Environment, pip_install
from splatfix.install.installed import find_installed
from splatfix.install.wheels import open_wheel, write_wheel
from tests.files import put
from tests.plan.machines import refused

from .environments import snapshot

ENTRY_POINTS = "[console_scripts]\nold-tool = probe:run\n"


def share(target: Environment, line: str) -> None:
    """Add a line to the list that all of them share."""
    with (target.purelib / "easy-install.pth").open("a") as file:
        file.write(f"{line}\n")


def develop(target: Environment, folder: Path, name: str) -> None:
    """``python setup.py develop``, which writes every character but letters, digits and dots as a hyphen."""
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.9\n"
    files = {"PKG-INFO": metadata, "entry_points.txt": ENTRY_POINTS, "SOURCES.txt": ""}
    put(folder / f"{name.replace('-', '_')}.egg-info", files)
    (target.purelib / f"{name.replace('_', '-')}.egg-link").write_text(f"{folder}\n.")
    (target.scripts / "old-tool").write_text(f"#!{target.python}\n")
    share(target, str(folder))


def egg(target: Environment, name: str, *, zipped: bool) -> None:
    """``python setup.py install``."""
    stem = name.replace("-", "_")
    place = target.purelib / f"{stem}-0.9-py3.11.egg"
    files = {
        f"{stem}/__init__.py": "old = True\n",
        "EGG-INFO/PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.9\n",
        "EGG-INFO/entry_points.txt": ENTRY_POINTS,
        "EGG-INFO/scripts/tool.sh": "#!/bin/sh\n",
        "EGG-INFO/top_level.txt": f"{stem}\n",
    }
    if zipped:
        with zipfile.ZipFile(place, "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
    else:
        put(place, files)
    for script in ("old-tool", "tool.sh"):
        (target.scripts / script).write_text(f"#!{target.python}\n")
    share(target, f"./{place.name}")


def replace(target: Environment, name: str, tmp_path: Path) -> tuple[Backup, Path]:
    """Install a wheel of that name over it; the backup and its folder."""
    stem = name.replace("-", "_").replace(".", "_")
    path = write_wheel(tmp_path / "wheels", name, "1.0", {f"{stem}/__init__.py": b"old = False\n"}, "")
    folder = tmp_path / f"backup-{name}"
    backup = make_backup(target, open_wheel(path), folder)
    pip_install(target, tmp_path / "pip.log", path)
    note_written(backup, folder, JournalPaths.of(target))
    return read_backup(folder, JournalPaths.of(target)), folder


MAKERS: dict[str, Callable[[Environment, Path, str], None]] = {
    "develop": develop,
    "egg": lambda target, _, name: egg(target, name, zipped=False),
    "zipped egg": lambda target, _, name: egg(target, name, zipped=True),
}


NAMES = ("fused-ssim", "diff_gaussian_rasterization", "a.b-C_d")


@pytest.mark.parametrize(("maker", "name"), list(zip(MAKERS, NAMES, strict=True)))
def test_it_comes_back(environment: Environment, tmp_path: Path, maker: str, name: str) -> None:
    MAKERS[maker](environment, tmp_path / "checkout", name)
    share(environment, "/another/checkout")
    before = snapshot(environment)
    backup, folder = replace(environment, name, tmp_path)
    assert not (environment.scripts / "old-tool").exists(), "pip left it"
    assert [item.version for item in find_installed(environment, name)] == ["1.0"]
    for _ in range(2):
        restore(environment, backup, folder)
        assert snapshot(environment) == before


def test_the_shared_list_in_any_order(environment: Environment, tmp_path: Path) -> None:
    names = ("simple-knn", "fused-ssim", "other")
    for name in names:
        develop(environment, tmp_path / name, name)
    before = snapshot(environment)
    made = [replace(environment, name, tmp_path) for name in names]
    for backup, folder in made:  # the first one first
        restore(environment, backup, folder)
    assert snapshot(environment) == before


def test_what_others_added_to_the_shared_list_stays(environment: Environment, tmp_path: Path) -> None:
    develop(environment, tmp_path / "fused-ssim", "fused-ssim")
    backup, folder = replace(environment, "fused-ssim", tmp_path)
    share(environment, "/later/checkout")
    restore(environment, backup, folder)
    lines = (environment.purelib / "easy-install.pth").read_text().splitlines()
    assert sorted(lines) == sorted([str(tmp_path / "fused-ssim"), "/later/checkout"])


FIFO = b"a pipe"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("pkg.egg-link", FIFO),
        ("pkg-1.0.egg", FIFO),
        ("pkg-1.0.egg", b"no zip"),
        ("pkg-1.0.egg/EGG-INFO/entry_points.txt", b"\xff\xfe"),
        ("pkg-1.0.egg-info/installed-files.txt", FIFO),
        ("pkg-1.0.egg-info/PKG-INFO", b"Name: pkg"),
        ("pkg-1.0.dist-info/RECORD", FIFO),
        ("pkg-1.0.dist-info/RECORD", b'"' + b"x" * 200_000 + b'",,\n'),
        ("pkg-1.0.dist-info/METADATA", b"Name: pkg"),
    ],
)
def test_what_cannot_be_read_is_not_replaced(environment: Environment, file: str, content: bytes) -> None:
    path = environment.purelib / file
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path) if content is FIFO else path.write_bytes(content)
    error = refused(find_installed, environment, "pkg")
    assert error.code == "cannot-back-up" and file.split("/")[0] in error.what


def test_a_link_to_nothing(environment: Environment, tmp_path: Path) -> None:
    for content in ("", "/gone\n.", "\x00\n", f"{tmp_path}/\udce9\n."):
        link = environment.purelib / "fused-ssim.egg-link"
        link.write_text(content, errors="surrogateescape")
        (found,) = find_installed(environment, "fused_ssim")
        assert found.files == (link, environment.purelib / "easy-install.pth")
