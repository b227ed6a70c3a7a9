"""What the loader would find, told from bytes, against what the real loader says when it is let loose on the same file."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from splatfix.facts import System
from splatfix.facts.environment import probe as environment
from splatfix.facts.environment.linkage import abi_of
from splatfix.facts.machine.libraries import Loader
from splatfix.model import Extension, Linkage
from tests.tables import data

from .native_files import EMPTY, NEW_ABI, OLD_ABI, extension, library, load, needs_gcc, torch_in

pytestmark = needs_gcc
Names = tuple[str, ...]
GONE = "_ZN3c1010TensorImpl4goneEv"


def looked_at(python: Path, name: str = "pkg") -> tuple[Extension, Linkage]:
    found = environment.probe(System(), str(python))
    item = next(item for item in found.extensions.value if item.path.startswith(name))
    return item, item.linkage


OWN = "_Z18rasterizeForwardiRKN2at6TensorE"
"""The extension's own, and not torch's by the mere mention of a tensor."""


@pytest.mark.parametrize(
    ("linked", "imports", "lost", "own", "abi"),
    [
        ((NEW_ABI,), (NEW_ABI, EMPTY), (), (), True),
        ((NEW_ABI, GONE), (NEW_ABI, GONE), (GONE,), (), True),  # built for another torch
        ((OLD_ABI,), (OLD_ABI,), (OLD_ABI,), (), False),
        ((NEW_ABI,), (NEW_ABI, OWN, "malloc"), (), (OWN,), True),
    ],
)
def test_symbols(
    empty_venv: Path,
    site_packages: Path,
    tmp_path: Path,
    linked: Names,
    imports: Names,
    lost: Names,
    own: Names,
    abi: bool,
) -> None:
    """Of an extension that was linked with a torch of these exports, beside one of the new ABI."""
    older = torch_in(tmp_path / "older", c10=linked)
    lib = torch_in(site_packages)
    built = extension(site_packages, imports, older / "libc10.so", lib / "libtorch_cpu.so")
    item, linkage = looked_at(empty_venv)
    assert item.links_torch and item.importable and linkage.error == "" == "".join(linkage.unresolved)
    assert (linkage.torch_missing, linkage.own_missing, linkage.cxx11_abi) == (lost, own, abi)
    assert linkage.torch_symbols == len(imports) - len(set(imports) & {OWN, "malloc"})
    said = load(built, lib / "libc10.so", lib / "libtorch_cpu.so")
    assert bool(said) == bool(lost + own), "the real loader agrees"
    assert all(name in said for name in lost + own)


@pytest.mark.parametrize(("exports", "abi"), [((OLD_ABI,), False), ((NEW_ABI,), True), ((), True)])
def test_the_abi_of_torch_is_that_of_its_exports(
    empty_venv: Path, site_packages: Path, exports: tuple[str, ...], abi: bool
) -> None:
    """Where libc10 exports neither name, the rule for wheels from 2.7 on remains."""
    torch_in(site_packages, c10=exports)
    found = environment.probe(System(), str(empty_venv))
    assert found.torch.value.cxx11_abi is abi


def test_names_found_only_behind_another_library_count(empty_venv: Path, site_packages: Path) -> None:
    lib, beside = torch_in(site_packages), "-Wl,-rpath,$ORIGIN"
    inner = library(site_packages / "pkg" / "libinner.so", ["deep"], flags=[beside])
    outer = library(site_packages / "pkg" / "libouter.so", links=[inner], flags=[beside])
    flags = [beside, "-Wl,--allow-shlib-undefined"]
    built = extension(site_packages, [NEW_ABI, "deep"], lib / "libc10.so", outer, flags=flags)
    assert looked_at(empty_venv)[1].own_missing == ()
    assert load(built, lib / "libc10.so") == ""


def test_a_needed_library_that_is_nowhere(empty_venv: Path, site_packages: Path, tmp_path: Path) -> None:
    lib = torch_in(site_packages)
    gone = library(tmp_path / "libcudart.so.12", ["cudaMalloc"])
    built = extension(site_packages, ["cudaMalloc"], lib / "libc10.so", gone)
    gone.unlink()
    _, linkage = looked_at(empty_venv)
    assert linkage.unresolved == ("libcudart.so.12",)
    assert linkage.own_missing == (), "what a library exports that is not there, nobody knows"
    assert "libcudart.so.12" in load(built, lib / "libc10.so")


@pytest.mark.parametrize(
    ("rpath", "tags"),
    [("$ORIGIN/../other", "--enable-new-dtags"), ("${ORIGIN}/../other", "--disable-new-dtags")],
)
def test_rpath_and_runpath_are_followed(empty_venv: Path, site_packages: Path, rpath: str, tags: str) -> None:
    lib = torch_in(site_packages)
    other = library(site_packages / "other" / "libhelper.so.1", ["helps"])
    flags = [f"-Wl,{tags}", f"-Wl,-rpath,{rpath}"]
    built = extension(site_packages, ["helps"], lib / "libc10.so", other, flags=flags)
    assert looked_at(empty_venv)[1].unresolved == ()
    assert load(built, lib / "libc10.so") == ""


def test_libraries_of_nvidias_wheels(empty_venv: Path, site_packages: Path) -> None:
    """They are there once torch has loaded them; the loader alone does not find them."""
    lib = torch_in(site_packages)
    runtime = library(site_packages / "nvidia" / "cu13" / "lib" / "libcudart.so.99", ["cudaFree"])
    built = extension(site_packages, ["cudaFree"], lib / "libc10.so", runtime)
    assert looked_at(empty_venv)[1].unresolved == ()
    assert "libcudart.so.99" in load(built, lib / "libc10.so")
    assert load(built, lib / "libc10.so", runtime) == ""


def test_library_path_is_searched(empty_venv: Path, site_packages: Path, tmp_path: Path) -> None:
    lib = torch_in(site_packages)
    helper = library(tmp_path / "extra" / "libhelper.so", ["helps"])
    extension(site_packages, ["helps"], lib / "libc10.so", helper)
    assert looked_at(empty_venv)[1].unresolved == ("libhelper.so",)
    system = System(env={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(helper.parent)})
    found = environment.probe(system, str(empty_venv))
    (linkage,) = (item.linkage for item in found.extensions.value if item.path.startswith("pkg"))
    assert linkage.unresolved == ()


def test_versions_wanted_and_versions_there(empty_venv: Path, site_packages: Path, tmp_path: Path) -> None:
    """A stand-in libstdc++ that is newer than any real one; the extension is linked against it and then finds ours."""
    lib = torch_in(site_packages)
    script = tmp_path / "versions"
    script.write_text("GLIBCXX_3.4.9 { global: one; };\nGLIBCXX_3.4.99 { global: other; } GLIBCXX_3.4.9;\n")
    newer = library(tmp_path / "libstdc++.so.6", ["one", "other"], flags=[f"-Wl,--version-script,{script}"])
    built = extension(site_packages, ["one", "other"], lib / "libc10.so", newer)
    found = environment.probe(System(), str(empty_venv))
    _, linkage = looked_at(empty_venv)
    assert ("libstdc++.so.6", "GLIBCXX_3.4.99") in linkage.versions
    assert not any(text == "GLIBCXX_3.4.9" for _, text in linkage.versions), (
        "the highest of a family is enough"
    )
    runtime = {item.name: item for item in found.runtime_libraries.value or ()}
    assert any(text.startswith("GLIBC_2.") for text in runtime["libc.so.6"].versions)
    assert "GLIBCXX_3.4.99" not in runtime["libstdc++.so.6"].versions
    assert "GLIBCXX_3.4.99" in load(built, lib / "libc10.so")


def test_the_system_libraries_are_those_the_loader_takes() -> None:
    """Against the memory map of a process that really loaded them."""
    script = "import ctypes; ctypes.CDLL('libstdc++.so.6'); print(open('/proc/self/maps').read())"
    maps = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    found = environment.probe(System(), sys.executable)
    assert found.runtime_libraries.value
    for item in found.runtime_libraries.value:
        assert item.path in maps, item


def test_bundled_copies(empty_venv: Path, site_packages: Path) -> None:
    torch_in(site_packages)
    library(site_packages / "pkg.libs" / "libc10-1a2b3c4d.so")
    library(site_packages / "pkg.libs" / "libcudart-0badcafe.so.12.6.77")
    found = environment.probe(System(), str(empty_venv))
    copies = {(item.library, item.version, item.bundled) for item in found.runtime_copies.value or ()}
    assert {("libc10", "", False), ("libc10", "", True), ("libcudart", "12.6.77", True)} <= copies


def test_torch_lost_or_damaged_is_unknown(empty_venv: Path, site_packages: Path, tmp_path: Path) -> None:
    extension(site_packages, [NEW_ABI], torch_in(tmp_path / "elsewhere") / "libc10.so")
    _, linkage = looked_at(empty_venv)
    assert (linkage.error, linkage.torch_missing) == ("torch is not installed", ())
    assert linkage.unresolved == ("libc10.so",)
    damaged = torch_in(site_packages) / "libc10.so"
    damaged.write_bytes(damaged.read_bytes()[: damaged.stat().st_size // 8])
    _, linkage = looked_at(empty_venv)
    assert linkage.error and linkage.torch_missing == ()


@pytest.mark.parametrize(("name", "abi"), data(__file__)["names"])
def test_which_string_a_name_speaks_of(name: str, abi: bool | None) -> None:
    assert abi_of([name]) is abi


def test_where_conda_looks(tmp_path: Path) -> None:
    """conda's Python carries RPATH $ORIGIN/../lib: its libstdc++ comes before the system's."""
    library(tmp_path / "lib" / "libstdc++.so.6")
    system = System(env={})
    plain = Loader(system, "python", str(tmp_path), (), None)
    conda = Loader(system, "python", str(tmp_path), (), None, conda=True)
    assert plain.find("libstdc++.so.6") != conda.find("libstdc++.so.6") == f"{tmp_path}/lib/libstdc++.so.6"


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.20.1", "0.22.0"])
def test_published_torchvisions(empty_venv: Path, site_packages: Path, tmp_path: Path, version: str) -> None:
    """The published wheel beside a torch it was not made for: what we name is what the loader stumbles over."""
    torch = pytest.importorskip("torch")
    argv = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    argv += ["-d", str(tmp_path), f"torchvision=={version}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        pytest.skip(f"no wheel to download: {done.stderr.strip()[-200:]}")
    with zipfile.ZipFile(next(tmp_path.glob("torchvision*.whl"))) as wheel:
        wheel.extractall(site_packages)
    (site_packages / "torch.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    item, linkage = looked_at(empty_venv, "torchvision/_C")
    assert linkage.torch_missing, "a torchvision of an older torch must miss something"
    script = "import torch, ctypes, sys, os; ctypes.CDLL(sys.argv[1], os.RTLD_NOW)"
    argv = [str(empty_venv), "-c", script, f"{item.folder}/{item.path}"]
    said = subprocess.run(argv, capture_output=True, text=True, check=False).stderr
    assert any(name in said for name in (*linkage.torch_missing, *linkage.unresolved)), said.strip()[-400:]
