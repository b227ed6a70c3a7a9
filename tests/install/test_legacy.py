"""Development installs and eggs, as setuptools before 80 made them, are replaced and come back with all that was theirs.

Their layout is that of setuptools 57.5 and 65.5, whose ``develop`` and ``install`` were run for every case here.
"""

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from splatfix.install.environment import Environment
from splatfix.install.installed import find_installed
from tests.files import put
from tests.plan.machines import refused
from tests.tables import data

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
    put(target.scripts, dict.fromkeys(("old-tool", "tool.sh"), f"#!{target.python}\n"))
    share(target, f"./{place.name}")


MAKERS: dict[str, Callable[[Environment, Path, str], None]] = {
    "develop": develop,
    "egg": lambda target, _, name: egg(target, name, zipped=False),
    "zipped egg": lambda target, _, name: egg(target, name, zipped=True),
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
@pytest.mark.parametrize(("file", "content"), data(__file__)["unreadable"])
def test_the_unreadable_is_not_replaced(environment: Environment, file: str, content: str | None) -> None:
    path = environment.purelib / file
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path) if content is None else path.write_text(content.replace("...", "x" * 200_000), "latin-1")
    error = refused(find_installed, environment, "pkg")
    assert error.code == "cannot-back-up" and file.split("/")[0] in error.what


def test_a_link_to_nothing(environment: Environment, tmp_path: Path) -> None:
    for content in ("", "/gone\n.", "\x00\n", f"{tmp_path}/\udce9\n."):
        link = environment.purelib / "fused-ssim.egg-link"
        link.write_text(content, errors="surrogateescape")
        (found,) = find_installed(environment, "fused_ssim")
        assert found.files == (link, environment.purelib / "easy-install.pth")
