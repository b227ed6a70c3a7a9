"""Libraries that only development packages name get a name for the linker; what it finds by itself is left alone."""

import subprocess
from pathlib import Path

import pytest

from splatfix.core.runner import Completed, Runner
from splatfix.install.link_names import link_names
from tests.files import put

from .environments import Interposed, Run

PIP = "site/nvidia/cu13/lib"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return put(tmp_path, {"cuda/lib/libown.so": "", f"{PIP}/libm.so.6": "", f"{PIP}/libnvrtc.so.13": ""})


def names(place: Path, *libraries: str, runner: Runner | None = None) -> dict[str, str]:
    """The names that were made, and what each stands for."""
    made = place / "names"
    link_names(libraries, "gcc", place / "cuda", place / "site", made, runner or Runner())
    return {path.name: str(path.resolve().relative_to(place)) for path in made.glob("*.so")}


def test_what_gets_a_plain_name(place: Path) -> None:
    put(place, {"cuda/lib/stubs/libsplatcu.so": "", f"{PIP}/libsplatcu.so.1": ""})
    # the stub comes before that of the wheels; the linker finds m and own, and nobody has the last
    found = names(place, "nvrtc", "splatcu", "m", "own", "not_a_library_of_anybody")
    assert found == {"libnvrtc.so": f"{PIP}/libnvrtc.so.13", "libsplatcu.so": "cuda/lib/stubs/libsplatcu.so"}


def test_without_a_driver_libcuda_can_be_linked(place: Path) -> None:
    def finds_none(argv: list[str], env: object, run: Run) -> Completed:
        return Completed(tuple(argv), 1, "", "", 0.0) if "-print" in argv[1] else run()

    assert names(place, "cuda", runner=Interposed(finds_none)) == {"libcuda.so": "names/libcuda.so"}
    put(place, {"x.c": "int cuInit(unsigned); int f(void) { return cuInit(0); }"})
    argv = ["gcc", "-shared", "-fPIC", "x.c", "-Lnames", "-Wl,--no-as-needed", "-lcuda", "-o", "x.so"]
    subprocess.run(argv, cwd=place, check=True)
    needed = subprocess.run(["readelf", "-d", place / "x.so"], capture_output=True, text=True, check=True)
    assert "[libcuda.so.1]" in needed.stdout
