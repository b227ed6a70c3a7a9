"""The wheel that a stranger gets: complete, and working from an unrelated folder in another environment."""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
MIB = 2**20


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
        text=True,
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``splatfix`` program of a fresh venv that holds the wheel; its dependencies are seen through a .pth file, in
    which the checkout's own editable installation takes no part."""
    folder = tmp_path_factory.mktemp("stranger") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    install = ["install", "-q", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([*pip, *install], check=True, capture_output=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin" / "splatfix"


def run(program: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [str(program), *words], cwd=cwd, env=clean, capture_output=True, text=True, check=False, timeout=900
    )


def test_everything_travels_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for wanted in ("patches", "dockerfiles", "constraints.txt"):
        assert any(name.startswith(f"splatfix/_bundled/{wanted}") for name in names), wanted
    data = {".json", ".toml", ".txt", ".html", ".md", ".tex", ".form"}
    for folder, suffixes in (("splatfix", data), ("smoke_trainer", {".png", ".jpg", ".bin"})):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".py", *suffixes} and "__pycache__" not in path.parts:
                assert path.relative_to(ROOT).as_posix() in names
    assert not [name for name in names if name.startswith("tests/") or "__pycache__" in name]


def test_the_samples_stay_small(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        samples = sum(item.compress_size for item in archive.infolist() if "samples/" in item.filename)
    assert 0 < samples <= 8 * MIB
    assert wheel.stat().st_size <= 12 * MIB


def test_the_core_does_not_ask_for_torch(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(next(n for n in archive.namelist() if n.endswith("METADATA"))).decode()
    core = [
        line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line
    ]
    names = {Requirement(line.partition(":")[2]).name for line in core}
    ours = "typer msgspec rich packaging nvidia-ml-py jinja2 fastjsonschema filelock tomli"
    assert names == set(ours.split())


def test_it_runs_from_an_unrelated_folder(installed: Path, tmp_path: Path) -> None:
    assert run(installed, "--version", cwd=tmp_path).stdout.startswith("splatfix 0.")
    done = run(installed, "diagnose", "--json", cwd=tmp_path)
    document = json.loads(done.stdout)
    assert document["command"] == "diagnose", done.stderr
    python = installed.with_name("python")
    place = run(python, "-c", "import splatfix, smoke_trainer; print(splatfix.__file__)", cwd=tmp_path)
    assert "stranger" in place.stdout, place.stderr
    assert not any(tmp_path.iterdir()), "diagnose writes nothing"


@pytest.mark.slow
@pytest.mark.every_push
def test_it_certifies_from_an_unrelated_folder(installed: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (site,) = (installed.parent.parent / "lib").glob("python*/site-packages")
    scene = str(site / "smoke_trainer" / "samples" / "figurine")
    short = ["--iterations", "60", "--resolution", "64"]
    done = run(installed, "certify", "--data", scene, *short, "--out", "report", "--json", cwd=tmp_path)
    document = json.loads(done.stdout)
    assert done.returncode == 0, document.get("reasons") or done.stderr
    assert document["verdict"] == "certified"
    assert json.loads((tmp_path / "report" / "certificate.json").read_text()) == document
