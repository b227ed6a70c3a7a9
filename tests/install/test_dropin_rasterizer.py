"""The rasterizer's drop-ins: called as each variant's trainers call them, held against the kernel they carry."""

from __future__ import annotations

import inspect
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from splatfix.core.step import commands
from splatfix.facts.checkout import read_package_source
from splatfix.install.dropins import make_dropin_wheel
from splatfix.install.wheels import open_wheel
from splatfix.knowledge.dropins import DROPINS, IRREPLACEABLE_VARIANTS, Dropin, dropin_for_variant, face_of
from splatfix.knowledge.stacks import Traits, explain_mismatch, variant, variants
from splatfix.plan.dropins import choose_dropins
from tests.cli.conftest import Document
from tests.plan.machines import refused
from tests.plan.test_faces import imported
from tests.plan.test_replacement import row_of

from .environments import make_environment

torch = pytest.importorskip("torch")
from splatfix.kernels import contributions, helpers, rasterizer, surfels  # noqa: E402
from tests.kernels.compare import in_precision  # noqa: E402
from tests.kernels.scenes import cloud, look_at  # noqa: E402

NAME = "diff_gaussian_rasterization"
VARIANTS = [dropin.variant for dropin in DROPINS if dropin.variant]
FASTGS, SURFEL = "diff_gaussian_rasterization_fastgs", "diff_surfel_rasterization"


def one(name: str) -> Dropin:
    """By its variant, or where no other package has the module's name, by that."""
    return next(item for item in DROPINS if name in (item.variant, item.module))


@pytest.fixture
def drop_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    """The drop-in of the variant that the test names, imported from its own wheel."""
    return imported(one(request.param), tmp_path, monkeypatch)


def of(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("drop_in", names, indirect=True)


def camera(package: ModuleType, **options: Any) -> Any:
    values = in_precision(look_at(40, 32), torch.float32)._asdict() | {
        "antialiasing": True,
        "kernel_size": 0.1,
        "subpixel_offset": torch.full((32, 40, 2), 0.25),
        "mult": 1.0,
        "metric_map": torch.zeros(32 * 40, dtype=torch.int32),
    }
    given = dict.fromkeys(("pixel_weights", "get_flag")) | values | options
    fields = package.GaussianRasterizationSettings._fields
    return package.GaussianRasterizationSettings(**{name: given[name] for name in fields})


def before(settings: Any, *points: tuple[float, float, float]) -> Any:
    """Points that lie so as the camera sees them."""
    view = settings.viewmatrix
    return (torch.tensor(points) - view[3, :3]) @ torch.linalg.inv(view[:3, :3])


def detached(count: int = 25) -> dict[str, Any]:
    return {name: tensor.float() for name, tensor in cloud(count).items()}


def scene() -> dict[str, Any]:
    return {name: tensor.requires_grad_(True) for name, tensor in detached().items()}


def screen(inputs: dict[str, Any]) -> Any:
    """As every trainer makes it: a leaf's copy whose gradient is kept."""
    points = torch.zeros_like(inputs["means3D"], requires_grad=True) + 0
    points.retain_grad()
    return points


def as_called(inputs: dict[str, Any], package: ModuleType) -> dict[str, Any]:
    """Where the variant keeps the constant band apart, so does its caller."""
    if "dc" not in inspect.signature(package.GaussianRasterizer.forward).parameters:
        return inputs
    bands = {"dc": inputs["shs"][:, :1], "shs": inputs["shs"][:, 1:]}
    return {**inputs, **bands}


@of(*VARIANTS, FASTGS)
def test_renders_and_differentiates_as_the_kernel_does(drop_in: ModuleType) -> None:
    inputs, same = scene(), scene()
    points, same_points = screen(inputs), screen(same)
    settings = camera(drop_in)
    result = drop_in.GaussianRasterizer(raster_settings=settings)(
        means2D=points, **as_called(inputs, drop_in), colors_precomp=None, cov3D_precomp=None
    )
    fields = rasterizer.GaussianRasterizationSettings._fields
    own = {name: value for name, value in settings._asdict().items() if name in fields}
    if drop_in.__name__ == FASTGS:
        own["compact_box"] = settings.mult
    kernel_settings = rasterizer.GaussianRasterizationSettings(**own)
    wanted = rasterizer.rasterize(kernel_settings, means2D=same_points, **same)
    assert torch.equal(result[0], wanted.color) and torch.equal(result[1], wanted.radii)
    assert result[0].shape == (3, 32, 40) and result[1].dtype == torch.int32
    weight = torch.randn(3, 32, 40)
    (result[0] * weight).sum().backward()
    (wanted.color * weight).sum().backward()
    assert points.grad.abs().sum() > 0 and torch.equal(points.grad, same_points.grad)
    for name, tensor in inputs.items():
        assert torch.equal(tensor.grad, same[name].grad) and tensor.grad.abs().sum() > 0, name


def drawn(package: ModuleType, inputs: dict[str, Any], **options: Any) -> Any:
    """What a trainer gets of a rasterizer with these settings."""
    draw = package.GaussianRasterizer(camera(package, **options))
    return draw(means2D=screen(inputs), **as_called(inputs, package))


@of("v1", "dr_aa", "mip")
def test_upstream_gradients_by_a_variable(drop_in: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    images, gradients = [], []
    for value in ("", "1"):
        monkeypatch.setenv("SPLATFIX_UPSTREAM_GRADIENTS", value)
        inputs = scene()
        image = drawn(drop_in, inputs, scale_modifier=0.5)[0]
        image.square().sum().backward()
        images.append(image.detach())
        gradients.append(inputs["scales"].grad)
    assert torch.equal(*images) and not torch.allclose(*gradients, rtol=0.01)


@of("dr_aa")
def test_inverse_depth_has_a_gradient(drop_in: ModuleType) -> None:
    inputs = scene()
    color, radii, invdepths = drawn(drop_in, inputs)
    assert invdepths.shape == (1, 32, 40) and 0 < invdepths.max() < 1 / 2
    invdepths.sum().backward()
    assert inputs["means3D"].grad[:, 2].abs().sum() > 0 and len(radii) == 25 and color.isfinite().all()


@of("v1")
def test_precomputed_colours_and_covariances_and_the_function(drop_in: ModuleType) -> None:
    inputs, settings = scene(), camera(drop_in)
    means, opacities = inputs["means3D"], inputs["opacities"]
    covariance = cloud(25, covariance=True)["cov3D_precomp"].float()
    colors, none = torch.rand(25, 3), torch.Tensor([])
    draw = drop_in.GaussianRasterizer(settings)
    color, _ = draw(means, screen(inputs), opacities, colors_precomp=colors, cov3D_precomp=covariance)
    shape = (inputs["scales"], inputs["rotations"], none)
    again, _ = drop_in.rasterize_gaussians(means, screen(inputs), none, colors, opacities, *shape, settings)
    assert torch.allclose(color, again, atol=1e-5) and color.std() > 0.01
    copied = drop_in.cpu_deep_copy_tuple((means, 3))
    assert torch.equal(copied[0], means) and copied[0] is not means and copied[1] == 3


@of(*VARIANTS, FASTGS, SURFEL)
def test_errors_are_the_originals(drop_in: ModuleType) -> None:
    inputs = scene()
    draw = drop_in.GaussianRasterizer(camera(drop_in))
    base = {"means3D": inputs["means3D"], "means2D": screen(inputs), "opacities": inputs["opacities"]}
    pair = {"scales": inputs["scales"], "rotations": inputs["rotations"]}
    one = {"colors_precomp": torch.rand(25, 3)}
    message = "^Please provide excatly one of either SHs or precomputed colors!$"
    for wrong in ({}, {"shs": inputs["shs"], **one}):
        with pytest.raises(Exception, match=message):
            draw(**base, **pair, **wrong)
    message = "^Please provide exactly one of either scale/rotation pair or precomputed 3D covariance!$"
    for wrong in ({}, {"scales": inputs["scales"]}, {**pair, "cov3D_precomp": torch.rand(25, 6)}):
        with pytest.raises(Exception, match=message):
            draw(**base, **one, **wrong)
    with pytest.raises(RuntimeError, match=r"means3D must have dimensions \(num_points, 3\)"):
        draw(**(base | {"means3D": torch.rand(25, 4)}), **pair, **one)
    with pytest.raises(NotImplementedError, match="drop-in by splatfix"):
        drop_in._C.rasterize_gaussians(1, 2, 3)


def weights_of(drop_in: ModuleType, **options: Any) -> dict[str, Any]:
    """Taming's score pass: the eleven results after image and radii, by the names of its own source."""
    draw = drop_in.GaussianRasterizer(camera(drop_in, **options))
    found = draw(means2D=torch.zeros(25, 3), **as_called(detached(), drop_in))
    return dict(zip(row_of("taming").returns or (), found, strict=True))


@of("taming")
def test_tamings_eleven_other_results(drop_in: ModuleType) -> None:
    weights = torch.rand(32, 40)
    found, without = weights_of(drop_in, pixel_weights=weights), weights_of(drop_in)
    of_each = ("depths", "accum_weights", "accum_blend", "accum_dist")
    empty = ("listBufferRender", "listBufferDistance")
    assert {name: (tuple(item.shape), item.dtype) for name, item in found.items()} == {
        "color": ((3, 32, 40), torch.float32),
        # the original returns the buffer of offsets, which it never fills
        "countBuffer": ((32, 40), torch.int32),
        "centers": ((25, 2), torch.float32),
        "listBuffer": ((0,), torch.int32),
        **dict.fromkeys(empty, ((0,), torch.float32)),
        **dict.fromkeys(of_each, ((25,), torch.float32)),
        **dict.fromkeys(("radii", "my_radii", "accum_count"), ((25,), torch.int32)),
    }
    assert not any(item.requires_grad for item in found.values())
    for name in ("color", "radii", "centers", "depths", "my_radii"):
        assert torch.equal(found[name], without[name]), name
    for name in ("countBuffer", "accum_weights", "accum_count", "accum_blend", "accum_dist"):
        assert without[name].numel() == 0 and without[name].dtype == found[name].dtype, name
    assert torch.equal(found["my_radii"], found["radii"]) and found["accum_count"].sum() > 100
    ours = camera(drop_in)._asdict()
    del ours["pixel_weights"]
    inputs = {name: item for name, item in detached().items() if name != "shs"}
    settings = rasterizer.GaussianRasterizationSettings(**ours)
    expected = contributions.contributions(settings, **inputs, pixel_weights=weights)
    for theirs, name in {
        "weights": "weight",
        "count": "pixels",
        "blend": "blend",
        "dist": "distance",
    }.items():
        assert torch.equal(found[f"accum_{theirs}"], getattr(expected, name)), name
    depths = inputs["means3D"] @ settings.viewmatrix[:3, 2] + settings.viewmatrix[3, 2]
    assert torch.allclose(found["depths"], depths * (found["radii"] > 0))
    # Taming's score writes 0 over NaN in what comes back, also in `my_radii` and not in `radii`
    before = found["radii"].clone()
    for name in (*of_each, "my_radii", "accum_count"):
        found[name][:] = 0
    assert torch.equal(found["radii"], before)


@of(FASTGS)
def test_fastgs_counts_marked_pixels_and_cuts_by_mult(drop_in: ModuleType) -> None:
    inputs = detached()
    marked = (torch.rand(32, 40) > 0.5).int()

    def draw(**options: Any) -> Any:
        given = as_called(inputs, drop_in)
        return drop_in.GaussianRasterizer(camera(drop_in, **options))(means2D=torch.zeros(25, 4), **given)

    image, radii, none = draw(metric_map=marked)
    assert (none.shape, none.dtype) == ((0,), torch.int32)
    counts, rest, whole = (
        draw(metric_map=item, get_flag=True)[2] for item in (marked, 1 - marked, torch.ones(1280).int())
    )
    assert counts.dtype == torch.int32 and torch.equal(counts + rest, whole) and (counts > 0).sum() > 10
    assert draw(metric_map=2 * marked, get_flag=True)[2].sum() == 0, "only 1 marks a pixel"
    small = draw(mult=0.05)
    assert not torch.equal(small[0], image) and ((small[1] == 0) | (small[1] == radii)).all()


@of(FASTGS)
def test_fastgs_gets_absolute_gradients_of_the_screen(drop_in: ModuleType) -> None:
    inputs = scene()
    points = torch.zeros(25, 4, requires_grad=True)
    image = drop_in.GaussianRasterizer(camera(drop_in))(means2D=points, **as_called(inputs, drop_in))[0]
    (image * torch.randn(3, 32, 40)).sum().backward()
    signed, absolute = points.grad[:, :2], points.grad[:, 2:]
    assert (absolute >= signed.abs() * (1 - 1e-5)).all() and (absolute > 1.5 * signed.abs()).any()


@of(SURFEL)
def test_surfels_are_drawn_as_their_kernel_does(drop_in: ModuleType) -> None:
    inputs, settings = scene(), camera(drop_in)
    inputs["scales"] = inputs["scales"][:, :2].detach().requires_grad_(True)
    same = {name: item.detach().requires_grad_(True) for name, item in inputs.items()}
    points, same_points = screen(inputs), screen(same)
    draw = drop_in.GaussianRasterizer(raster_settings=settings)
    found = draw(means2D=points, **inputs)
    kernel = rasterizer.GaussianRasterizationSettings(**settings._asdict())
    wanted = surfels.rasterize_surfels(kernel, means2D=same_points, **same)
    assert len(found) == 3 and all(map(torch.equal, found, wanted))
    assert found[2].shape == (7, 32, 40) and found[1].dtype == torch.int32
    weight = torch.randn(7, 32, 40)
    for image, leaf in ((found[2], points), (wanted.allmap, same_points)):
        (image * weight).sum().backward()
        assert leaf.grad.abs().sum() > 0
    assert torch.equal(points.grad, same_points.grad)
    for name in ("means3D", "opacities", "scales", "rotations"):
        assert torch.equal(inputs[name].grad, same[name].grad) and inputs[name].grad.abs().sum() > 0, name
    given = {"shs": inputs["shs"], "cov3D_precomp": torch.rand(25, 9)}
    assert draw(inputs["means3D"], points, inputs["opacities"], **given)[2].isfinite().all()


@of("v1")
def test_mark_visible(drop_in: ModuleType) -> None:
    points = before(camera(drop_in), (0, 0, 1), (0, 0, -1), (0, 0, 0.1), (50, 0, 1))
    seen = drop_in.GaussianRasterizer(camera(drop_in)).markVisible(points)
    assert seen.tolist() == [True, False, False, True] and not seen.requires_grad


@of("3dgs_accel")
def test_sparse_adam(drop_in: ModuleType) -> None:
    """The formula is held in tests/kernels."""
    param = torch.nn.Parameter(torch.ones(4, 2))
    optimizer = drop_in.SparseGaussianAdam([{"params": [param], "lr": 0.1}], lr=0.0, eps=1e-15)
    param.grad = torch.ones(4, 2)
    visible = torch.tensor([True, False, True, False])
    optimizer.step(visible, 4)
    assert ((param != 1).any(dim=1) == visible).all()
    flat, zeros = torch.ones(8), torch.zeros(8)
    drop_in._C.adamUpdate(flat, torch.ones(8), zeros, zeros.clone(), visible, 0.1, 0.9, 0.999, 1e-15, 4, 2)
    assert torch.allclose(flat, param.detach().reshape(-1), atol=1e-6)


@of("mcmc")
def test_relocation_and_used_gaussians(drop_in: ModuleType) -> None:
    given = (torch.tensor([0.5]), torch.ones(1, 3), torch.tensor([2.0]), helpers.binomial_table(51), 51)
    assert all(map(torch.equal, drop_in.compute_relocation(*given), helpers.compute_relocation(*given)))
    inputs = detached(3)
    # in front; behind; too faint for any pixel
    inputs["means3D"] = before(camera(drop_in), (0, 0, 3), (0, 0, -3), (0, 0, 5))
    inputs["opacities"] = torch.tensor([[0.9], [0.9], [0.001]])
    for grads in (True, False):
        with torch.set_grad_enabled(grads):
            used = drop_in.GaussianRasterizer(camera(drop_in))(means2D=torch.zeros(3, 3), **inputs)[2]
        assert used.tolist() == [1, 0, 0] and used.dtype == torch.int32


@of("scaffold")
def test_visible_filter(drop_in: ModuleType) -> None:
    inputs = scene()
    draw = drop_in.GaussianRasterizer(camera(drop_in))
    radii = draw.visible_filter(**{name: inputs[name] for name in ("means3D", "scales", "rotations")})
    assert torch.equal(radii, draw(means2D=screen(inputs), **inputs)[1]) and (radii > 0).any()


@pytest.mark.parametrize("name", [*VARIANTS, FASTGS, SURFEL])
def test_the_api_has_the_fingerprint_of_its_variant(name: str, tmp_path: Path) -> None:
    """What diagnose reads of an original is what it reads of the drop-in."""
    dropin = one(name)
    wheel = open_wheel(make_dropin_wheel(dropin, "0+splatfix.1", tmp_path))
    with zipfile.ZipFile(wheel.path) as archive:
        shown = read_package_source(dropin.module, archive.read(dropin.api).decode())
        compiled = archive.read(f"{dropin.module}/_C.py").decode()
    row = variant(dropin.serves[0])
    assert row is not None
    assert not explain_mismatch(row.key, Traits(settings=shown.settings, forward=shown.forward))
    assert shown.forward_required == 3 and shown.settings_defaults == 0
    for export in row.exports:
        assert f"def {export}(" in compiled or f"import {export}" in compiled, export


def test_a_drop_in_has_what_its_face_says(tmp_path: Path) -> None:
    """The face decides which checkouts it is offered to; each is imported in silence."""
    lines = ["import importlib, inspect, sys"]
    for dropin in DROPINS:
        wheel = make_dropin_wheel(dropin, "0+splatfix.1", tmp_path / dropin.name)
        lines += [f"sys.path.insert(0, {str(wheel)!r})"]
        lines += [f"for name in [one for one in sys.modules if one.startswith({dropin.module!r})]:"]
        lines += ["    del sys.modules[name]"]
        for name, words in face_of(dropin).functions.items():
            inner = f"{dropin.module}._C" if name.startswith("_C.") else dropin.module
            lines += [f"made = importlib.import_module({inner!r}).{name.removeprefix('_C.')}"]
            lines += [
                "names = [word for word in inspect.signature(made).parameters if word != 'self']"
            ] * bool(words)
            lines += [f"assert names[:{len(words)}] == {list(words)!r}" if words else "assert callable(made)"]
    argv = [sys.executable, "-W", "error", "-c", "\n".join(lines)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_rasterizer_variant_is_served_or_refused() -> None:
    declared = {row.key for row in variants() if row.module == "diff_gauss"}  # by its address, in faces.toml
    assert declared == {"diff-gauss"}
    for row in variants():
        if row.kind == "rasterizer" and row.key not in declared:
            assert (dropin_for_variant(row.key) is None) == (row.key in IRREPLACEABLE_VARIANTS), row.key


STACKS = (f"{NAME}@gof", f"{NAME}@rade", "diff-plane-rasterization", "diff_triangle_rasterization", "effrdel")


@pytest.mark.parametrize("named", STACKS)
def test_a_refusal_names_the_drop_ins_of_its_stack(named: str) -> None:
    problem = refused(choose_dropins, [named])
    advice = [command.argv for command in commands(problem.todo) if "pure" in command.argv]
    assert advice == [("splatfix", "install", "simple_knn", "--backend", "pure")]


def test_names() -> None:
    assert choose_dropins([f"{NAME}@inria-2024-dr_aa"]).dropins[0].variant == "dr_aa"
    for code, *names in (
        ("variant-not-said", NAME),
        ("nothing-replaces-it", f"{NAME}@gof"),
        ("unknown-drop-in", f"{NAME}@nonsense"),
        ("same-name-twice", f"{NAME}@v1", f"{NAME}@mip"),
    ):
        assert refused(choose_dropins, names).code == code


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v1", "mip"])
def test_verify_measures_the_drop_in(name: str, tmp_path: Path, document: Document) -> None:
    """From the command line: install it, and hold it against the float64 reference in its environment."""
    target = make_environment(tmp_path / "env", torch=True)
    python = ("--python", target.python)
    assert document("install", f"{NAME}@{name}", "--backend", "pure", *python)["exit_code"] == 0
    certified = document("certify", "--level", "2", *python, "--out", tmp_path / "report")
    assert certified["exit_code"] == 0
    measured = next(item for item in certified["kernels"] if item["implementation"] == NAME)
    assert (measured["outcome"], measured["kind"]) == ("met", "drop-in")
    assert 0 < measured["gradient_error"] < measured["gradient_allowed"]
