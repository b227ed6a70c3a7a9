"""The stand-ins refuse and compute as the extensions that they stand in for."""

import ast
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests import standins  # noqa: E402

pytestmark = [  # they are compiled once
    pytest.mark.slow,
    pytest.mark.skipif(bool(standins.missing()), reason=standins.missing()),
]


RASTERIZERS = [name for name in standins.VARIANTS if name not in ("fused-ssim", "simple-knn")]


def settings(module: Any, **changed: Any) -> Any:
    view = torch.eye(4)
    values = {
        "image_height": 8,
        "image_width": 12,
        "tanfovx": 0.6,
        "tanfovy": 0.4,
        "bg": torch.zeros(3),
        "scale_modifier": 1.0,
        "viewmatrix": view,
        "projmatrix": torch.tensor(
            [[1 / 0.6, 0, 0, 0], [0, 1 / 0.4, 0, 0], [0, 0, 1.0, 1.0], [0, 0, -0.01, 0]]
        ),
        "sh_degree": 0,
        "campos": torch.zeros(3),
        "kernel_size": 0.1,
        "subpixel_offset": torch.zeros(8, 12, 2),
        "pixel_weights": None,
        "mult": 0.5,
        "metric_map": torch.zeros(96, dtype=torch.int32),
        "inv_viewprojmatrix": view,
        **changed,
    }
    kind = next(value for name, value in vars(module).items() if name.endswith("RasterizationSettings"))
    if hasattr(module, "ExtendedSettings"):
        values["settings"] = module.ExtendedSettings()
    return kind(**{name: values.get(name, False) for name in kind._fields})


def inputs(module: Any, variant: str) -> dict[str, Any]:
    def leaf(*shape: int) -> Any:
        return torch.rand(*shape, generator=torch.Generator().manual_seed(1)).requires_grad_(True)

    if variant == "triangle":
        return {
            "triangles_points": (leaf(9, 3) + torch.tensor([0, 0, 2.0])).detach().requires_grad_(True),
            "sigma": leaf(3, 1),
            "num_points_per_triangle": torch.full((3,), 3, dtype=torch.int32),
            "cumsum_of_points_per_triangle": torch.tensor([0, 3, 6], dtype=torch.int32),
            "number_of_points": 9,
            "opacities": leaf(3, 1),
            "means2D": torch.zeros(3, 3, requires_grad=True),
            "scaling": torch.zeros(3),
            "density_factor": torch.zeros(3),
            "shs": leaf(3, 1, 3),
        }
    given = {
        "means3D": (leaf(3, 3) + torch.tensor([-0.5, -0.5, 2.0])).detach().requires_grad_(True),
        "means2D": torch.zeros(3, 4 if variant == "fastgs" else 3, requires_grad=True),
        "opacities": leaf(3, 1),
        "shs": leaf(3, 4, 3),
        "scales": (0.2 * leaf(3, 3)).detach().requires_grad_(True),
        "rotations": torch.tensor([[1.0, 0, 0, 0]] * 3, requires_grad=True),
        "dc": leaf(3, 1, 3),
        "scores": torch.zeros(3, 1),
        "means2D_abs": torch.zeros(3, 3, requires_grad=True),
    }
    if (
        variant == "2dgs-surfel"
    ):  # of some pixels, or the low-pass, which the statistic leaves out, decides everywhere
        given["scales"] = leaf(3, 2)
    forward = module.GaussianRasterizer.forward.__code__.co_varnames
    return {name: value for name, value in given.items() if name in forward}


@pytest.mark.parametrize("variant", RASTERIZERS)
def test_every_rasterizer_draws_and_differentiates(tmp_path: Path, variant: str) -> None:
    standins.put(tmp_path, variant)
    with standins.imported(tmp_path, variant) as module:
        kind = next(value for name, value in vars(module).items() if name.endswith("Rasterizer"))
        given = inputs(module, variant)
        drawn = kind(settings(module))(**given)
        row = standins._row(variant)
        assert len(drawn) == len(row["returns"])
        color, radii = drawn[0], drawn[1]
        assert color.shape == (9 if variant == "gof" else 3, 8, 12) and radii.shape == (3,)
        color[:3].sum().backward()
        points = given["triangles_points" if variant == "triangle" else "means3D"]
        for leaf in (points, given["opacities"], given["shs"] if "dc" not in given else given["dc"]):
            assert leaf.grad is not None and float(leaf.grad.abs().sum()) > 0
        assert float(given["means2D"].grad.abs().sum()) > 0
        exports = {name for name in vars(module._C) if not name.startswith("_")}
        assert exports >= set(row["exports"])


@pytest.mark.parametrize(
    ("variant", "wrong"),
    [
        ("inria-v1", {"image_width": 12.5}),
        ("inria-v1", {"bg": None}),
        ("mip", {"kernel_size": None}),
        ("mip", {"subpixel_offset": None}),
        ("gof", {"subpixel_offset": None}),
        ("fastgs", {"metric_map": None}),
    ],
)
def test_wrong_arguments_are_refused_by_pybind(tmp_path: Path, variant: str, wrong: dict[str, Any]) -> None:
    standins.put(tmp_path, variant)
    with (
        standins.imported(tmp_path, variant) as module,
        pytest.raises(TypeError, match="incompatible function arguments"),
    ):
        module.GaussianRasterizer(settings(module, **wrong))(**inputs(module, variant))


def test_speedy_splat_needs_its_scores(tmp_path: Path) -> None:
    standins.put(tmp_path, "speedy")
    with standins.imported(tmp_path, "speedy") as module:
        given = inputs(module, "speedy")
        del given["scores"]
        with pytest.raises(TypeError, match="scores"):
            module.GaussianRasterizer(settings(module))(**given)


def test_ssim_and_neighbours(tmp_path: Path) -> None:
    from splatfix.kernels.knn import distCUDA2
    from splatfix.kernels.ssim import fused_ssim

    standins.put(tmp_path, "fused-ssim")
    standins.put(tmp_path, "simple-knn")
    first = torch.rand(1, 3, 20, 30, generator=torch.Generator().manual_seed(0))
    second = (first * 0.9).requires_grad_(True)
    for padding in ("same", "valid"):
        with standins.imported(tmp_path, "fused-ssim") as module:
            result, expected = module.fused_ssim(second, first, padding), fused_ssim(second, first, padding)
            pair = [torch.autograd.grad(value, second)[0] for value in (result, expected)]
        assert torch.allclose(result, expected, atol=1e-5)
        assert torch.allclose(*pair, atol=1e-7)
    points = torch.rand(50, 3)
    with standins.imported(tmp_path, "simple-knn") as module:
        assert torch.allclose(module.distCUDA2(points), distCUDA2(points))
        with pytest.raises(TypeError, match="incompatible function arguments"):
            module.distCUDA2([[0.0, 0.0, 0.0]])


@pytest.mark.parametrize("variant", ["mip", "fused-ssim", "simple-knn"])
def test_a_source_tree_can_be_parsed(tmp_path: Path, variant: str) -> None:
    standins.write_source(tmp_path, variant, "segfault")
    for file in tmp_path.rglob("*.py"):
        ast.parse(file.read_text(encoding="utf-8"))
    assert f'#define STANDIN "{variant}\\nsegfault\\n' in (tmp_path / "ext.cpp").read_text(encoding="utf-8")
