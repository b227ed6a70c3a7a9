"""The stand-ins refuse as the extensions that they stand in for; that they compute is shown by tests/certify."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests import standins  # noqa: E402

pytestmark = [  # they are compiled once
    pytest.mark.slow,
    pytest.mark.skipif(bool(standins.missing()), reason=standins.missing()),
]


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
    return kind(**{name: values.get(name, False) for name in kind._fields})


def inputs(module: Any, variant: str) -> dict[str, Any]:
    def leaf(*shape: int) -> Any:
        return torch.rand(*shape, generator=torch.Generator().manual_seed(1)).requires_grad_(True)

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
    forward = module.GaussianRasterizer.forward.__code__.co_varnames
    return {name: value for name, value in given.items() if name in forward}


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


def test_neighbours_are_those_of_a_tensor(tmp_path: Path) -> None:
    standins.put(tmp_path, "simple-knn")
    with (
        standins.imported(tmp_path, "simple-knn") as module,
        pytest.raises(TypeError, match="incompatible function arguments"),
    ):
        module.distCUDA2([[0.0, 0.0, 0.0]])
