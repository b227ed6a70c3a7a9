"""Faces that no table lists: what is read of them, what is refused, and the drop-ins that are made of them."""

from __future__ import annotations

import importlib
import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from splatfix.checks.checkout.faces import derive_face, order_of, usage_of
from splatfix.facts.source.python_source import read_depth
from splatfix.install.dropins import make_dropin_wheel
from splatfix.knowledge.dropins import Dropin, declared_dropin
from splatfix.knowledge.faces import BASE_ARGUMENTS, BASE_SETTINGS, DeclaredFace, NotReadable
from splatfix.model.steps import MakeDropin
from splatfix.plan.dropins import choose_dropins, replacement_for
from tests.archs import request_for
from tests.files import put
from tests.tables import data

from .machines import healthy, make_plan, rasterizer_module, refused
from .test_replacement import checkout, read, rendering

TABLES = data(__file__)
Names = Sequence[str]
NAME = "diff_gaussian_rasterization"
SUM = "renderCUDA(\n{ D += depths[j] * alpha * T; out_depth[pix_id] = D; }"
MEDIAN = "renderCUDA(\n{ float D = 15.0f; if (T > 0.5f) { D = dep; } out_depth[pix_id] = D; }"


def source(
    folder: Path,
    settings: Names = (),
    forward: Names = (),
    values: Names = ("color", "radii"),
    *,
    used: Names | None = None,
    kernel: str = "",
    module: str = NAME,
) -> None:
    """A rasterizer's own source, with these beside Inria's; `used`: whose gradients its backward pass takes."""
    parameters = [*BASE_ARGUMENTS[:3], *(f"{name}=None" for name in (*BASE_ARGUMENTS[3:], *forward))]
    given = ", ".join(f"grad_{name}" for name in values)
    taken = ", ".join(f"grad_{name}" for name in (values if used is None else used))
    backward = f"    def backward(ctx, {given}):\n        return _C.back({taken})"
    rasterizer_module(folder, module, (*BASE_SETTINGS, *settings), parameters, values, backward)
    put(folder, {"cuda_rasterizer/forward.cu": kernel})


def called(
    folder: Path,
    settings: Names = (),
    forward: Names = (),
    results: Names = ("image", "radii"),
    module: str = NAME,
    url: str = "",
) -> Path:
    """A checkout with an empty submodule, and a renderer that calls what should be in it."""
    arguments = [name for name in BASE_ARGUMENTS if name not in ("colors_precomp", "cov3D_precomp")]
    text = rendering((*BASE_SETTINGS, *settings), (*arguments, *forward), results, module)
    return checkout(folder, text, submodules=(module.replace("_", "-"),), url=url)


def own(folder: Path) -> Path:
    """Where a checkout keeps the rasterizer's own source."""
    return folder / "submodules" / NAME.replace("_", "-")


def face_of(folder: Path, module: str = NAME, order: Names = ()) -> DeclaredFace | NotReadable:
    return derive_face(usage_of(module, read(folder)), order)


def made_for(folder: Path, module: str = NAME) -> Dropin:
    face = face_of(folder, module)
    assert isinstance(face, DeclaredFace)
    return declared_dropin(face)


def not_readable(folder: Path, words: str, module: str = NAME) -> NotReadable:
    face = face_of(folder, module)
    assert isinstance(face, NotReadable) and re.search(words, face.reason)
    return face


@pytest.mark.parametrize(("settings", "forward", "values", "roles"), TABLES["read"])
@pytest.mark.parametrize("fetched", [True, False], ids=["its source", "its calls"])
def test_what_is_read(
    tmp_path: Path, settings: Names, forward: Names, values: str, roles: str, fetched: bool
) -> None:
    folder = called(tmp_path, settings, forward, values.split(","))
    if fetched:
        source(own(folder), settings, forward, values.split(","), kernel=SUM)
    face = made_for(folder).declared
    assert face and face.words == roles
    assert set(face.settings) == {*BASE_SETTINGS, *settings}
    assert face.forward == (*BASE_ARGUMENTS, *forward)
    places = " ".join(place for _, place in face.read)
    assert ("__init__.py" if fetched else "its own source is not there") in places


@pytest.mark.parametrize(("settings", "forward", "results", "words"), TABLES["refused"])
def test_what_has_another_meaning_is_refused_by_name(
    tmp_path: Path, settings: Names, forward: Names, results: str, words: str
) -> None:
    folder = called(tmp_path, settings, forward, results.split(","))
    assert not not_readable(folder, words).undetermined


def test_normals_as_colours_are_colours(tmp_path: Path) -> None:
    """Where another call of it says that an image comes back there (2.5D Gaussian Splatting)."""
    folder = called(tmp_path, results=("image", "radii", "depth"))
    text = (folder / "gaussian_renderer" / "__init__.py").read_text()
    more = text.replace("def render(", "def render_normals(").replace("image", "render_normal")
    (folder / "gaussian_renderer" / "normals.py").write_text(more.replace("render_normal_", "image_"))
    face = made_for(folder).declared
    assert face and face.words == "color,radii,depth"


@pytest.mark.parametrize("results", ["image,radii,x", "image,radii,weights_map", "a,b,c,d"])
def test_what_can_be_two_things_is_not_guessed(tmp_path: Path, results: str) -> None:
    """The user says it; what no caller reads needs no meaning."""
    folder = called(tmp_path, results=results.split(","))
    assert not_readable(folder, "--face").undetermined
    assert next(item for item in replacement_for(read(folder)).native if item.module == NAME).undetermined
    assert "dept" in refused(order_of, "color,radii,dept").what
    order = order_of(",".join(["color", "radii", "depth", "alpha"][: len(results.split(","))]))
    assert replacement_for(read(folder), order).dropins[0].module == NAME


def test_results_that_nobody_reads_and_a_source_and_a_caller_that_differ(tmp_path: Path) -> None:
    """BAGS calls one xy, and has no use for it."""
    folder = called(tmp_path / "a", results=("image", "radii", "_", "_"))
    for _ in ("its calls", "its source"):
        face = made_for(folder).declared
        assert face and face.results == ("color", "radii", "unread", "unread")
        source(own(folder), values=("color", "radii", "xy", "normal"))
    folder = called(tmp_path / "b", results=("image", "radii", "alpha"))
    source(own(folder), values=("color", "radii", "depth"), kernel=SUM)
    assert not_readable(folder, r"is depth by .* and alpha in").undetermined


def test_what_projects_otherwise_is_not_replaced(tmp_path: Path) -> None:
    folder = called(tmp_path)
    for name, sign, said in (("a", "//", "(computeCov2D in submodules/a/"), ("b", "", "name the one")):
        source(folder / "submodules" / name, kernel=f"computeCov2D() {{ {sign} focal_x/t.z (t.z*t.z)\n}}")
        assert said in replacement_for(read(folder)).native[0].reason
    assert f"{NAME}@" not in str(refused(choose_dropins, [str(folder / "submodules/a")]).todo)
    assert "2 results" in refused(face_of, folder / "submodules/b", order=["color"]).what


def test_a_median_is_no_sum(tmp_path: Path) -> None:
    """SplaTAM's rasterizer is called as others with a depth map are, and gives back another one."""
    folder = called(tmp_path, results=("image", "radii", "depth"))
    made = next(item for item in replacement_for(read(folder)).dropins if item.module == NAME)
    assert made.declared and made.declared.assumed in made.note
    assert "taken for the sum" in made.declared.assumed
    source(own(folder), values=("color", "radii", "depth"), kernel=MEDIAN)
    not_readable(folder, r"D = 15\.0f")
    assert not replacement_for(read(folder)).renderer


@pytest.mark.parametrize(("text", "kind"), [(SUM, "sum"), (MEDIAN, "D = 15.0f;"), *TABLES["depths"]])
def test_what_a_depth_map_is(text: str, kind: str) -> None:
    assert read_depth(text) == kind


def test_an_empty_submodule_is_judged_by_its_address_too(tmp_path: Path) -> None:
    """What is known of a rasterizer beside another (MotionGS) says nothing of the other."""
    splatam = "git@github.com:JonathonLuiten/diff-gaussian-rasterization-w-depth.git"
    deformable = "https://github.com/ingra14m/depth-diff-gaussian-rasterization"
    for url, served in ((splatam, False), (deformable, True)):
        folder = called(tmp_path / str(served), results=("image", "radii", "x"), url=url)
        assert (f"{NAME}@" in str(replacement_for(read(folder)).names)) is served
    url = "https://github.com/rmurai0610/diff-gaussian-rasterization-w-pose.git"
    pose = f"{NAME}_w_pose"
    folder = called(tmp_path / "pose", results=("image", "radii", "depth"), module=pose, url=url)
    text = rendering(BASE_SETTINGS, BASE_ARGUMENTS, ("image", "radii", "depth"))
    put(folder, {"gaussian_renderer/flow.py": text})
    face = face_of(folder)
    assert isinstance(face, DeclaredFace) and face.words == "color,radii,depth"
    folder = called(tmp_path / "c3", module=f"{NAME}_c3")
    assert replacement_for(read(folder)).names == (f"{NAME}_c3@declared", "simple_knn")


DIFF_GAUSS = "https://github.com/slothfulxtx/diff-gaussian-rasterization.git"


@pytest.mark.parametrize("fetched", [True, False], ids=["its source", "its calls"])
def test_normals_known_by_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fetched: bool) -> None:
    """Of length 1; the same names under another address are refused by name."""
    torch = pytest.importorskip("torch")
    results = ("image", "depth", "norm", "alpha", "radii", "extra")
    folder = called(tmp_path, results=results, module="diff_gauss")
    if fetched:
        extension = folder / "submodules" / "diff-gauss"
        more = ("norm3Ds_precomp", "extra_attrs")
        source(extension, (), more, ("color", *results[1:]), kernel=SUM, module="diff_gauss")
    not_readable(folder, "normals", "diff_gauss")
    with (folder / ".gitmodules").open("a") as file:
        file.write(f"\turl = {DIFF_GAUSS}\n")
    assert replacement_for(read(folder)).dropins
    package = imported(made_for(folder, "diff_gauss"), tmp_path / "made", monkeypatch)
    _, _, normals, alpha, _, extra = drawn(package, {}, extra_attrs=torch.rand(20, 7, dtype=torch.float64))
    lengths = normals.norm(dim=0)[alpha[0] > 0]
    assert extra.shape[0] == 7 and len(lengths) and torch.allclose(lengths, torch.ones_like(lengths))


# What is made


def test_install_is_told_the_face(tmp_path: Path) -> None:
    """The wheel is made of the plan's step alone."""
    folder = called(tmp_path, results=("image", "radii", "depth", "alpha", "n_touched"))
    made = make_plan(request_for((str(folder),), ("sm_120",), backend="pure"), healthy())
    (step,) = (item for item in made.steps if isinstance(item, MakeDropin) and item.module == NAME)
    assert step.declared and step.declared.words == "color,radii,depth,alpha,near-count"
    assert step.variant == "depth+alpha+near-count"


def imported(dropin: Dropin, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    with zipfile.ZipFile(make_dropin_wheel(dropin, "0+splatfix.1", folder)) as archive:
        archive.extractall(folder / "site")
    monkeypatch.syspath_prepend(str(folder / "site"))

    def own() -> list[str]:
        return [name for name in sys.modules if name.partition(".")[0] == dropin.module]

    for name in own():
        monkeypatch.delitem(sys.modules, name)
    package = importlib.import_module(dropin.module)
    for name in own():  # gone again after the test
        monkeypatch.setitem(sys.modules, name, sys.modules.pop(name))
    return package


def rasterizer_of(package: ModuleType, more: dict[str, Any]) -> Any:
    from tests.kernels.scenes import look_at

    given = {name: getattr(look_at(24, 20), name) for name in BASE_SETTINGS} | more
    fields = package.GaussianRasterizationSettings._fields
    known = {name: value for name, value in given.items() if name in fields}
    return package.GaussianRasterizer(raster_settings=package.GaussianRasterizationSettings(**known))


def drawn(package: ModuleType, more: dict[str, Any], **arguments: Any) -> tuple[Any, ...]:
    from tests.kernels.scenes import cloud

    result = rasterizer_of(package, more)(means2D=None, **cloud(20), **arguments)
    assert isinstance(result, tuple)
    return result


def test_any_face_filters_as_scaffold_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Specular-Gaussians: radii of Gaussians alone, of a rasterizer that gives back depth too."""
    torch = pytest.importorskip("torch")
    from tests.kernels.scenes import cloud

    folder = called(tmp_path, results=("image", "radii", "depth"))
    for name in ("depth", "rotations"):
        put(folder, {"filter.py": TABLES["filter"].replace("...", name)})
        assert (NAME in str(replacement_for(read(folder)).names)) is (name == "rotations")
    package = imported(made_for(folder), tmp_path / "made", monkeypatch)
    inputs = {name: cloud(20)[name] for name in ("means3D", "scales", "rotations")}
    radii = drawn(package, {})[1]
    assert torch.equal(rasterizer_of(package, {}).visible_filter(**inputs), radii) and (radii > 0).any()


def test_a_drop_in_gives_back_what_its_face_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MonoGS's: its opacity has no gradient, as the backward pass of its source has no use for one."""
    torch = pytest.importorskip("torch")
    from splatfix.kernels.compositing import composite
    from tests.kernels.scenes import cloud, look_at

    values = ("color", "radii", "depth", "opacity", "n_touched")
    folder = called(tmp_path, ("projmatrix_raw",), ("theta", "rho"), values)
    source(own(folder), ("projmatrix_raw",), ("theta", "rho"), values, used=("color", "depth"), kernel=SUM)
    package = imported(made_for(folder), tmp_path / "made", monkeypatch)
    theta = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    color, radii, depth, opacity, touched = drawn(package, {"projmatrix_raw": None}, theta=theta, rho=theta)
    expected = composite(look_at(24, 20), means2D=None, **cloud(20), with_sums=True)
    assert expected.sums is not None and touched.any()
    exact = (expected.color, expected.radii, expected.depth, expected.alpha, expected.sums.near)
    assert all(map(torch.equal, (color, radii, depth, opacity, touched), exact))
    assert color.requires_grad and depth.requires_grad and not opacity.requires_grad


def test_what_an_option_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LangSplat's features: one number where none are asked for, as the original. LightGaussian's counts: two results, or with
    them in front four."""
    torch = pytest.importorskip("torch")
    results = ("image", "language_feature_image", "radii")
    folder = called(tmp_path / "a", ("include_feature",), ("language_feature_precomp",), results)
    package = imported(made_for(folder), tmp_path / "made a", monkeypatch)
    features = torch.rand(20, 3, dtype=torch.float64)
    for asked, shape in ((True, (3, 20, 24)), (False, (1,))):
        result = drawn(package, {"include_feature": asked}, language_feature_precomp=features)
        assert tuple(result[1].shape) == shape and len(result) == 3
    package = imported(made_for(called(tmp_path / "b", ("f_count",))), tmp_path / "made b", monkeypatch)
    assert len(drawn(package, {"f_count": False})) == 2
    counts, score, color, radii = drawn(package, {"f_count": True})
    assert counts.any() and (score <= counts).all() and color.shape == (3, 20, 24) and len(radii) == 20
