from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

from packaging.requirements import Requirement

from splatfix import __version__
from splatfix.containers.lanes import find_lane
from splatfix.containers.package import own_metadata, pack_own_wheel, requirements_for
from splatfix.containers.wheelhouse import marker_environment


def contents(wheel: Path) -> dict[str, bytes]:
    """Every file of a wheel, requirements in any spelling left to the other tests."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith(("METADATA", "RECORD"))]
        return {name: archive.read(name) for name in names}


def test_the_packed_wheel_is_what_runs_here(tmp_path: Path) -> None:
    """Installed by pip into an empty folder it imports from there, brings its data, and its script starts."""
    wheel = pack_own_wheel(tmp_path)
    target = tmp_path / "site"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--quiet",
        "--target",
        target,
        wheel,
    ]
    subprocess.run(command, check=True, timeout=120)
    code = (
        "import splatfix, smoke_trainer, sys, importlib.metadata as m\n"
        "from splatfix.core.resources import bundled\n"
        "from splatfix.containers import load_lanes\n"
        "print(splatfix.__file__); print(smoke_trainer.__file__); print(bundled('dockerfiles'))\n"
        "print(','.join(load_lanes())); print(m.version('splatfix'))\n"
        "from pathlib import Path; from splatfix.containers.package import pack_own_wheel\n"
        "Path('again').mkdir(); pack_own_wheel(Path('again'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={"PYTHONPATH": str(target)},
    )
    package, trainer, data, lanes, version = done.stdout.splitlines()
    assert all(Path(line).is_relative_to(target) for line in (package, trainer, data))
    assert "cpu" in lanes.split(",")
    assert version == __version__
    assert (target / "bin" / "splatfix").exists()
    again = tmp_path / "again" / wheel.name
    assert contents(again) == contents(wheel), "an installed splatfix packs itself as its checkout does"


def test_equal_sources_give_an_equal_wheel(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    digests = {hashlib.sha256(pack_own_wheel(tmp_path / x).read_bytes()).hexdigest() for x in "ab"}
    assert len(digests) == 1


def test_the_wheel_names_its_requirements_and_extras(tmp_path: Path) -> None:
    with zipfile.ZipFile(pack_own_wheel(tmp_path)) as archive:
        name = next(n for n in archive.namelist() if n.endswith("METADATA"))
        lines = archive.read(name).decode().splitlines()
        assert not [n for n in archive.namelist() if "__pycache__" in n]
    assert "Provides-Extra: containers" in lines
    assert "Provides-Extra: certify" in lines
    assert any(line.startswith("Requires-Dist: docker") and 'extra == "containers"' in line for line in lines)


def test_requirements_are_judged_for_the_lane_and_leave_torch_to_it() -> None:
    environment = marker_environment(find_lane("cpu"), "amd64")
    names = {Requirement(line).name for line in requirements_for("certify", environment)}
    assert {"typer", "numpy", "pillow"} <= names
    assert not names & {"torch", "docker", "tomli"}
    older = {**environment, "python_version": "3.10", "python_full_version": "3.10.0"}
    assert "tomli" in {Requirement(line).name for line in requirements_for("certify", older)}


def test_metadata_of_the_checkout() -> None:
    metadata = own_metadata()
    assert metadata.version == __version__
    assert metadata.scripts["splatfix"].startswith("splatfix.")
