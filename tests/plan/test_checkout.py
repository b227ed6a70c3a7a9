from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.step import commands
from splatfix.install.downloads import FETCHABLE
from splatfix.plan.checkout import expected_extensions, install_name
from splatfix.plan.dropins import choose_dropins
from tests.files import put
from tests.tables import data

from .machines import cuda_source, refused, sources_in, with_submodules
from .test_recipes import checkout_of


def taming(folder: Path) -> Path:
    """A checkout of taming-3dgs without fused-ssim."""
    checkout_of("taming", folder)
    shutil.rmtree(folder / "submodules" / "fused-ssim")
    return folder


TABLES = data(__file__)


@pytest.mark.parametrize(("files", "extensions", "order", "said"), TABLES["below_a_package"])
def test_extensions_below_a_package_that_needs_them_are_built_first(
    tmp_path: Path, files: dict[str, str], extensions: dict[str, str], order: tuple[str, ...], said: str
) -> None:
    for path, name in extensions.items():
        cuda_source(tmp_path / path, name)
    sources, notes = sources_in([str(put(tmp_path, {".git/HEAD": "", **files}))])
    assert tuple(source.name for source in sources) == order
    assert not said or said in notes[0]


@pytest.mark.parametrize(("more", "several"), TABLES["several_setups"])
def test_a_setup_py_of_several_packages_is_refused(tmp_path: Path, more: str, several: bool) -> None:
    """HI-SLAM2: pip ended in "More than one .egg-info directory found"."""
    script = cuda_source(put(tmp_path, {".git/HEAD": ""}), "slam") / "setup.py"
    script.write_text(script.read_text() + more)
    if not several:
        assert [source.name for source in sources_in([str(tmp_path)])[0]] == ["slam"]
        return
    caught = refused(sources_in, [str(tmp_path)])
    assert caught.code == "several-setups" and "slam, " in caught.what


def test_packages_of_one_setup_py_are_told_apart_by_name(tmp_path: Path) -> None:
    script = cuda_source(tmp_path, "slam") / "setup.py"
    with script.open("a") as file:
        file.write("setup(name='poses', ext_modules=[CUDAExtension('poses', ['x.cu'])])\n")
    sources, _ = sources_in([str(tmp_path)])
    assert [(source.label, source.setup_call) for source in sources] == [("slam", 1), ("poses", 2)]


def test_a_program_in_rust_is_called_one(tmp_path: Path) -> None:
    for mark in ({"Cargo.toml": "[package]\n"}, {".git/HEAD": ""}):
        put(tmp_path, mark)
        assert misuse(tmp_path).code == "rust-program"


def test_a_source_named_twice_counts_once(tmp_path: Path) -> None:
    """A part of the recipe that a fork left out is said; an extension beside those of the recipe comes last."""
    folder = taming(tmp_path)
    cuda_source(folder / "submodules" / "aaa", "aaa")
    sources, notes = sources_in([str(folder / "submodules" / "simple-knn"), str(folder)])
    assert [source.name for source in sources] == ["simple_knn", "diff_gaussian_rasterization", "aaa"]
    assert any("submodules/fused-ssim is not in this checkout" in note for note in notes)


def test_only_an_empty_extension_submodule_stops_it(tmp_path: Path) -> None:
    folder = with_submodules(taming(tmp_path), "SIBR_viewers", "submodules/fused-ssim")
    caught = refused(sources_in, [str(folder)])
    assert caught.code == "source-incomplete"
    assert "missing or empty: submodules/fused-ssim." in caught.what and "SIBR" not in caught.what
    cuda_source(folder / "submodules" / "fused-ssim", "fused_ssim")
    assert len(sources_in([str(folder)])[0]) == 3
    # ever_training imports its renderer from a submodule of another place and name
    put(with_submodules(folder, "SIBR_viewers", "ever"), {"train.py": "from ever.tracer import trace\n"})
    assert "empty: ever." in refused(sources_in, [str(folder)]).what


@pytest.mark.parametrize("inside", ["", "bindings/torch"])
def test_a_submodule_above_an_extension(tmp_path: Path, inside: str) -> None:
    """tiny-cuda-nn's bindings compile submodules of the repository; it said "clone again" and named files, not them."""
    put(
        with_submodules(tmp_path, "deps/fmt", "deps/cutlass", "deps/docs"),
        {"bindings/torch/setup.py": TABLES["above"]},
    )
    caught = refused(sources_in, [str(tmp_path / inside)])
    assert (caught.code, caught.exit_code) == ("source-incomplete", Exit.FAILURE)
    assert caught.details["lacking"] == ["deps/fmt", "deps/cutlass"]
    said = " | ".join(step.line() for step in caught.todo)
    assert f"git clone --recursive https://x.org/fmt {tmp_path}/deps/fmt" in said
    assert "--fetch-submodules" in said and "again" not in said


@pytest.mark.parametrize(("path", "module"), TABLES["empty_submodules"])
def test_an_empty_submodule_is_planned_by_its_module(tmp_path: Path, path: str, module: str) -> None:
    """4DGaussians, LangSplat, LightGaussian: the rasterizer was missing in the plan."""
    train = "import simple_knn\nfrom diff_gaussian_rasterization import GaussianRasterizer\n"
    put(with_submodules(tmp_path, path), {"train.py": train})
    assert list(expected_extensions([str(tmp_path)])) == ([module] if module else [])


def misuse(folder: Path | str) -> SplatfixError:
    """What is wrong with naming this folder."""
    refusal = refused(sources_in, [str(folder)])
    assert refusal.exit_code is Exit.USAGE
    return refusal


def test_a_folder_of_checkouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is none itself, and they are named."""
    monkeypatch.chdir(tmp_path)
    taming(tmp_path / "taming")
    cuda_source(tmp_path / "clones" / "simple-knn", "simple_knn")
    cuda_source(tmp_path / "too" / "far" / "down", "down")
    (tmp_path / "photos").mkdir()
    error, named = misuse("."), ["splatfix install ./clones/simple-knn", "splatfix install ./taming"]
    assert error.code == "not-a-checkout"
    assert [step.line() for step in error.todo if step.command] == named
    assert misuse("photos").code == "not-an-extension"
    caught = refused(choose_dropins, ["clones"])
    assert f"{named[0]} --backend pure" in [step.line() for step in caught.todo]


@pytest.mark.parametrize(("text", "said"), TABLES["no_folders"])
def test_what_is_no_folder_is_answered_with_what_to_do(text: str, said: str) -> None:
    assert said in " | ".join(step.line() for step in misuse(text).todo)


def test_the_gsplat_release_named_is_one_install_takes() -> None:
    assert FETCHABLE.fullmatch(install_name("gsplat"))


@pytest.mark.parametrize("inside", [False, True], ids=["checkout", "extension"])
def test_a_refused_drop_in_names_the_source_that_was_given(tmp_path: Path, inside: bool) -> None:
    folder = tmp_path / "a stack" / "plane"
    cuda_source(folder / "submodules" / "diff-plane-rasterization", "diff_plane_rasterization")
    given = folder / "submodules" / "diff-plane-rasterization" if inside else folder
    caught = refused(choose_dropins, [str(given)])
    assert caught.code == "nothing-replaces-it"
    assert caught.todo[0].line() == f"splatfix install '{given}' --target ARCH"


def test_a_folder_of_everything_is_no_checkout(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    cuda_source(tmp_path / "a" / "simple-knn", "simple_knn")
    for number in range(3001):
        (tmp_path / f"photos{number}").mkdir()
    caught = refused(sources_in, [str(tmp_path)])
    assert caught.code == "not-a-checkout" and "3000 folders" in caught.what


def test_what_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_source(tmp_path / "submodules" / "simple-knn", "simple_knn")
    (tmp_path / "locked").mkdir()
    real = os.scandir

    def scandir(path: str | Path = ".") -> object:
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    sources, notes = sources_in([str(tmp_path)])
    assert len(sources) == 1
    assert notes[-1] == f"{tmp_path / 'locked'} cannot be read and was not looked into"


def test_photos_are_no_checkout(tmp_path: Path) -> None:
    put(tmp_path, {f"images/{number}.JPG": "x" for number in range(3)} | {".git/HEAD": ""})
    for read in (sources_in, choose_dropins):
        caught = refused(read, [str(tmp_path)])
        assert (caught.code, caught.exit_code) == ("no-code", Exit.USAGE) and "3 photos" in caught.what
        assert caught.todo[0].line().endswith(f"splatfix scenes check {tmp_path}")
    (tmp_path / "train.py").write_text("")
    assert misuse(tmp_path).code == "not-an-extension"


@pytest.mark.parametrize(("code", "said"), TABLES["at_first_use"])
def test_what_is_compiled_when_it_first_runs(tmp_path: Path, code: str, said: str) -> None:
    """nvdiffrec was told that it holds no extension, as if something were missing."""
    other = "import json\njson.load(x)  # no cpp_extension\n"
    put(tmp_path, {".git/HEAD": "", "render/ops/ops.py": code, "other.py": other})
    found = refused(sources_in, [str(tmp_path)])
    assert found.code == "compiled-at-first-use"
    assert "render/ops/ops.py:2" in found.what and said in found.what and "other.py" not in found.what


def test_how_extensions_come_into_a_checkout_without_any(tmp_path: Path) -> None:
    """HAC keeps its own in archives; the README of GAGAvatar clones one beside the checkout itself."""
    folder, inside = tmp_path / "avatar", tmp_path / "avatar" / "submodules"
    readme = "git clone --recursive https://github.com/a/avatar\ngit clone git@github.com:a/rasterizer.git\n"
    put(folder, {"README.md": readme, "submodules/x": ""})
    for name, member in (("grid.zip", "grid/setup.py"), ("data.zip", "data/1.txt")):
        with ZipFile(inside / name, "w") as archive:
            archive.writestr(member, "")
    whole = (inside / "grid.zip").read_bytes()
    (inside / "cut.zip").write_bytes(whole.replace(b"PK\x01\x02", b"PK\x09\x09"))
    (inside / "gone.zip").symlink_to("nowhere")
    os.mkfifo(inside / "pipe.zip")
    unpack = ("python", "-m", "zipfile", "-e", f"{inside}/grid.zip", str(inside))
    clone = ("git", "clone", "--recursive", "git@github.com:a/rasterizer.git")
    assert [step.argv for step in commands(refused(sources_in, [str(folder)]).todo)] == [unpack, clone]


@pytest.mark.parametrize("recorded", [True, False])
def test_what_git_never_had_is_not_restored_from_it(tmp_path: Path, recorded: bool) -> None:
    """DPVO unpacks Eigen where its README says."""
    folder = cuda_source(tmp_path, flags='"-I", os.path.join(here, "third_party/eigen-3.4.0")')
    file = put(folder, {"third_party/eigen-3.4.0/Eigen": ""}) / "third_party/eigen-3.4.0/Eigen"
    if not recorded:
        file.unlink()
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    file.unlink(missing_ok=True)
    caught = refused(sources_in, [str(folder)])
    assert caught.code == "source-incomplete"
    assert any("checkout" in step.argv for step in commands(caught.todo)) is recorded
    assert any("README" in step.text for step in caught.todo) is not recorded


def test_an_empty_submodule_is_no_folder_of_something_else(tmp_path: Path) -> None:
    """diagnose names it behind the command that fetches it; alone it was "neither a checkout nor an extension"."""
    with_submodules(tmp_path, "submodules/simple-knn")
    found = refused(sources_in, [str(tmp_path / "submodules" / "simple-knn")])
    assert found.code == "source-incomplete"
    assert "missing or empty: submodules/simple-knn" in found.what
    first, *_, last = (step.argv for step in commands(found.todo))
    assert first[:2] == ("git", "clone") and last[-1] == "--fetch-submodules"
