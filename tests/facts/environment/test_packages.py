"""Installed splatting packages in every form of installation, read as source text and as bytes."""

import ast
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from splatfix.core.codec import from_json, to_json
from splatfix.facts import System
from splatfix.facts.checkout import read_package_source
from splatfix.facts.environment import probe as environment
from splatfix.facts.environment.packages import (
    claimed_modules,
    origin_folder,
    read_distributions,
    read_packages,
    read_shadows,
)
from splatfix.facts.source.python_source import guarded_imports
from splatfix.model import BuildRecord, Distribution, EnvironmentFacts, SplatPackage
from tests.binaries.forge_elf import ElfForge
from tests.files import put
from tests.tables import data

from .native_files import NEW_ABI, TAG, extension, library, needs_gcc, torch_in

TABLE = data(__file__)
DGR = "diff_gaussian_rasterization"

# A rasterizer's Python side in the shape that all of them have; the text is this test's own.
RASTERIZER: str = TABLE["texts"]["rasterizer"]


def probe(python: Path) -> EnvironmentFacts:
    return environment.probe(System(), str(python))


def package(found: EnvironmentFacts, module: str = DGR) -> SplatPackage:
    (item,) = (item for item in found.packages.value if item.module == module)
    return item


def dist_info(site: Path, name: str, version: str = "0.0.0", *files: str, **direct: object) -> Path:
    content = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "INSTALLER": "pip\n",
        "RECORD": "".join(f"{file},,\n" for file in files),
    }
    if direct:
        content["direct_url.json"] = json.dumps(direct)
    return put(site / f"{name}-{version}.dist-info", content)


def source_of(folder: Path, text: str = RASTERIZER, name: str = DGR) -> Path:
    return put(folder / name, {"__init__.py": text})


def installed(site: Path, **files: str | bytes) -> Distribution:
    """The one distribution of a site-packages folder, after these files were put there."""
    (found,) = read_distributions(System(), [str(put(site, files))])
    return found


def test_the_face_of_a_package() -> None:
    found = read_package_source(DGR, RASTERIZER)
    assert found.native == (f"{DGR}._C",)
    assert found.settings == ("image_height", "image_width", "bg", "antialiasing")
    assert found.forward == ("means3D", "opacities", "shs", "dc")
    assert (found.settings_defaults, found.forward_required, found.returns) == (1, 2, 3)
    assert set(found.exports) == {"rasterize_gaussians", "rasterize_gaussians_backward"}
    assert "SparseGaussianAdam" in found.classes
    # returns that differ are unknown
    last = "        return image, radii, depth"
    text = RASTERIZER.replace(last, f"        if 1:\n            return image\n{last}")
    assert text != RASTERIZER and read_package_source("m", text).returns is None


@pytest.mark.parametrize(("text", "native", "exports"), TABLE["compiled-parts-however-they-are-imported"])
def test_imports_of_compiled_parts(text: str, native: tuple[str, ...], exports: tuple[str, ...]) -> None:
    found = read_package_source("m", text)
    assert (found.native, found.exports) == (native, exports)


@needs_gcc
def test_a_package_with_its_compiled_part(empty_venv: Path, site_packages: Path) -> None:
    lib = torch_in(site_packages)
    source_of(site_packages)
    built = extension(site_packages, [NEW_ABI], lib / "libc10.so", name=DGR)
    dist_info(site_packages, DGR, "0.0.0", f"{DGR}/__init__.py", f"{DGR}/{built.name}")
    item = package(probe(empty_venv))
    assert (item.distributions, item.native, item.native_missing) == ((DGR,), (f"{DGR}._C",), ())
    assert set(item.exports_missing) == {"rasterize_gaussians", "rasterize_gaussians_backward"}
    with built.open("ab") as file:  # as pybind11 keeps the names of its functions: C strings
        file.write(b"\0rasterize_gaussians\0rasterize_gaussians_backward\0")
    assert package(probe(empty_venv)).exports_missing == ()


def test_packages_that_are_not_whole(empty_venv: Path, site_packages: Path) -> None:
    """One lacks its compiled part, of one the source is not Python."""
    source_of(site_packages, "from fused_ssim_cuda import fusedssim\n", "fused_ssim")
    source_of(site_packages, "<<<<<<< HEAD\n")
    found = probe(empty_venv)
    assert package(found, "fused_ssim").native_missing == ("fused_ssim_cuda",)
    assert "not Python" in package(found).error and package(found).settings is None


@needs_gcc
def test_an_editable_install(empty_venv: Path, site_packages: Path, tmp_path: Path) -> None:
    """It runs from its source."""
    lib, source = torch_in(site_packages), tmp_path / "my source"
    source_of(source)
    for folder in (source, source / "build" / "lib"):
        extension(folder, [NEW_ABI], lib / "libc10.so", name=DGR)
    how = {"url": source.as_uri(), "dir_info": {"editable": True}}
    dist_info(site_packages, DGR, "0.0.0", f"__editable__.{DGR}-0.0.0.pth", **how)
    found = probe(empty_venv)
    (item,) = found.distributions.value or ()
    assert item.editable and not item.source_gone and origin_folder(item) == str(source)
    (native,) = (one for one in found.extensions.value or () if one.links_torch)
    assert (native.folder, native.distribution, native.module) == (str(source), DGR, f"{DGR}._C")
    assert package(found).folder == f"{source}/{DGR}"


def test_an_editable_install_whose_source_is_gone(site_packages: Path, tmp_path: Path) -> None:
    dist_info(site_packages, "gone", url=(tmp_path / "gone").as_uri(), dir_info={"editable": True})
    (site_packages / "linked.egg-link").write_text(f"{tmp_path}/linked\n.\n")
    found = {item.name: item for item in read_distributions(System(), [str(site_packages)])}
    assert found["gone"].source_gone and found["linked"].source_gone


def test_an_egg_link_and_its_version(site_packages: Path, tmp_path: Path) -> None:
    """As ``python setup.py develop`` leaves it."""
    put(tmp_path / "src/simple_knn.egg-info", {"PKG-INFO": "Name: simple-knn\nVersion: 1.2\n"})
    item = installed(site_packages, **{"simple-knn.egg-link": f"{tmp_path}/src\n.\n"})
    assert (item.name, item.version, item.editable, item.source_gone) == ("simple-knn", "1.2", True, False)


@needs_gcc
def test_an_egg_folder(empty_venv: Path, site_packages: Path) -> None:
    """As ``python setup.py install`` of old setuptools leaves it."""
    lib = torch_in(site_packages)
    egg = site_packages / f"simple_knn-0.0.0-py3.{sys.version_info.minor}-linux-x86_64.egg"
    put(egg, {"EGG-INFO/top_level.txt": "simple_knn\n"})
    library(egg / "simple_knn" / f"_C.{TAG}.so", (), [NEW_ABI], links=[lib / "libc10.so"])
    found = probe(empty_venv)
    assert [(item.name, item.version) for item in found.distributions.value] == [("simple_knn", "0.0.0")]
    item = package(found, "simple_knn")
    assert (item.distributions, item.native) == (("simple_knn",), ("simple_knn._C",))


def test_two_distributions_of_one_module(empty_venv: Path, site_packages: Path) -> None:
    source_of(site_packages)
    for name in (DGR, "dgr_mip"):
        dist_info(site_packages, name, "0.0.0", f"{DGR}/__init__.py")
    assert set(package(probe(empty_venv)).distributions) == {DGR, "dgr_mip"}


def test_what_a_record_claims(site_packages: Path) -> None:
    dist_info(site_packages, "x", "1", "pkg/a.py", "single.py", "../../bin/tool", "x-1.dist-info/METADATA")
    assert claimed_modules(System(), installed(site_packages)) == {"pkg", "single"}


def test_exact_requirements_of_torchs_family(site_packages: Path) -> None:
    needs = "Requires-Dist: numpy\nRequires-Dist: torch (==2.9.1)\nRequires-Dist: pillow!=8.3.*\n"
    item = installed(site_packages, **{"torchvision-0.24.1+cu128.dist-info/METADATA": needs})
    assert item.pins == ("torch==2.9.1",)


def test_shadows(empty_venv: Path, site_packages: Path, tmp_path: Path) -> None:
    source_of(site_packages)
    packages = probe(empty_venv).packages.value or ()
    # numpy: a namespace package yields to the real one
    here = put(tmp_path / "here", {"torch.py": "", "numpy/x": "", "own.py": ""})
    source_of(here)

    def found() -> dict[str, bool]:
        return {item.module: item.native for item in read_shadows(System(), str(here), packages)}

    assert found() == {DGR: False, "torch": False}
    (here / DGR / f"_C.{TAG}.so").touch()
    assert found()[DGR]
    assert read_shadows(System(), str(site_packages), packages) == (), "an installed package hides nothing"


@pytest.mark.parametrize(("handler", "catches"), TABLE["guarded-imports"])
def test_guarded_imports(handler: str, catches: str | None) -> None:
    tree = tuple(ast.walk(ast.parse(f"try:\n    from fused_ssim import fused_ssim\n{handler}\n")))
    found = tuple(guarded_imports("t.py", tree))
    assert [item.catches for item in found] == ([catches] if catches else [])
    if found:
        assert (found[0].module, found[0].names, found[0].line) == ("fused_ssim", ("fused_ssim",), 2)


@pytest.mark.parametrize(("text", "imports"), TABLE["who-imports-torch-by-itself"])
def test_who_imports_torch_by_itself(tmp_path: Path, text: str, imports: bool | None) -> None:
    source_of(tmp_path, text, "simple_knn")
    (found,) = read_packages(System(), [str(tmp_path)], (), ())
    assert found.imports_torch is imports


TINY = "tiny-1.0.dist-info"


def test_how_it_was_built(tmp_path: Path) -> None:
    found = installed(tmp_path, **{f"{TINY}/splatfix.json": json.dumps(TABLE["manifest"])})
    assert found.made_by_splatfix == "built" and found.built
    assert found.built == BuildRecord(
        targets=("sm_120",),
        cuda_mismatch="toolkit 12.8, torch 13.0",
        edits=("type-is-cuda",),
        built_with=(("torch", "2.11.0+cu130 13.0"), ("toolkit", "12.8.93")),
    )
    assert found.built.torch == "2.11.0+cu130 13.0"
    assert from_json(Distribution, json.loads(json.dumps(to_json(found)))) == found


@pytest.mark.parametrize("text", TABLE["damaged-manifests"])
def test_a_damaged_manifest_still_says_whose_it_is(tmp_path: Path, text: str) -> None:
    found = installed(tmp_path, **{f"{TINY}/splatfix.json": text})
    assert (found.made_by_splatfix, found.built) == ("built", None)


def test_a_drop_in_is_known_by_its_manifest(empty_venv: Path, site_packages: Path) -> None:
    """Its ``_C`` is a Python file, and no compiled part that is missing."""
    put(source_of(site_packages), {"_C.py": "def rasterize_gaussians(): ...\n"})
    info = dist_info(site_packages, DGR, "0+s", f"{DGR}/__init__.py")
    assert package(probe(empty_venv)).dropin == ""
    put(info, {"splatfix.json": f'{{"kind": "drop-in", "replaces": "{DGR}", "variant": "v1"}}'})
    item = package(probe(empty_venv))
    assert (item.dropin, item.native, item.native_missing) == (f"{DGR}@v1", (), ())


@pytest.mark.parametrize(("named", "held", "code", "error"), TABLE["code-that-a-drop-in-brings"])
def test_code_of_a_drop_in(
    tmp_path: Path, named: dict[str, int], held: int, code: tuple[str, ...], error: str
) -> None:
    """What a file is named for and what is in it are held together; one kernel's code for several GPUs is one group."""
    files: dict[str, str | bytes] = {}
    for name, flags in list(named.items())[:held]:
        forge = ElfForge(machine=190, abi_version=7, flags=flags, dynamic=False)
        files[f"tiny/{name}.cubin"] = forge.build()
    found = drop_in_with(tmp_path, [f"tiny/{name}.cubin" for name in named], files)
    assert tuple(entry.arch for group in found.code for entry in group.entries) == code
    assert len(found.code) == len({name[0] for name in named if code})
    assert error in found.code_error and bool(found.code_error) is bool(error)


def drop_in_with(site: Path, listed: list[str], files: Mapping[str, str | bytes]) -> Distribution:
    """A drop-in whose RECORD lists these files, and that has those."""
    record = "".join(f"{name},sha256=,1\n" for name in listed)
    manifest = '{"kind": "drop-in", "replaces": "tiny"}'
    return installed(site, **{f"{TINY}/splatfix.json": manifest, f"{TINY}/RECORD": record, **files})


def test_ptx_of_a_drop_in(tmp_path: Path) -> None:
    """For a GPU that NVRTC did not know when it was installed."""
    name = "tiny/a-compute_90-1.ptx"
    found = drop_in_with(tmp_path, [name], {name: ".version 9.0\n.target sm_90\n"})
    assert [(entry.kind.value, entry.arch) for entry in found.code[0].entries] == [("ptx", "sm_90")]
    assert found.code_error == ""
