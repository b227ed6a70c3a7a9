"""Libraries that only development packages name get a name for the linker; what it finds by itself is left alone."""

import subprocess
from pathlib import Path

import pytest

from splatfix.core.runner import ProcessRunner
from splatfix.install.link_names import link_names

RUNNER = ProcessRunner()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for folder in ("cuda/lib", "site/nvidia/cu13/lib"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def names(place: Path, *libraries: str) -> dict[str, str]:
    """The names that were made, and what each stands for."""
    made = place / "names"
    there = link_names(libraries, "gcc", place / "cuda", place / "site", made, RUNNER)
    assert there is made.is_dir()
    return {path.name: str(path.resolve().relative_to(place)) for path in made.glob("*.so")}


def test_the_wheels_library_gets_its_plain_name(place: Path) -> None:
    (place / "site/nvidia/cu13/lib/libnvrtc.so.13").touch()
    assert names(place, "nvrtc") == {"libnvrtc.so": "site/nvidia/cu13/lib/libnvrtc.so.13"}


def test_the_toolkits_stub_comes_first(place: Path) -> None:
    (stubs := place / "cuda/lib/stubs").mkdir()
    (stubs / "libsplatcu.so").touch()
    (place / "site/nvidia/cu13/lib/libsplatcu.so.1").touch()
    assert names(place, "splatcu") == {"libsplatcu.so": "cuda/lib/stubs/libsplatcu.so"}


@pytest.mark.parametrize("library", ["m", "own"])
def test_what_the_linker_finds_is_left_alone(place: Path, library: str) -> None:
    (place / "cuda/lib/libown.so").touch()
    (place / "site/nvidia/cu13/lib/libm.so.6").touch()
    assert names(place, library) == {}


def test_what_nobody_has_gets_none(place: Path) -> None:
    assert names(place, "not_a_library_of_anybody") == {}


def test_without_a_driver_libcuda_can_be_linked(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatfix.install.link_names._finds", lambda *_: False)
    assert names(place, "cuda") == {"libcuda.so": "names/libcuda.so"}
    (place / "x.c").write_text("int cuInit(unsigned); int f(void) { return cuInit(0); }")
    argv = ["gcc", "-shared", "-fPIC", "x.c", "-Lnames", "-Wl,--no-as-needed", "-lcuda", "-o", "x.so"]
    subprocess.run(argv, cwd=place, check=True)
    needed = subprocess.run(["readelf", "-d", place / "x.so"], capture_output=True, text=True, check=True)
    assert "[libcuda.so.1]" in needed.stdout
