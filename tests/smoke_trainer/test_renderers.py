"""The renderer protocol: cameras as matrices, our kernel, nine packages of one name, and what a report says that ran."""

import inspect
import re
import sys
import types
from collections import namedtuple
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from smoke_trainer.backends import Part, engine_in_use
from smoke_trainer.data.load import load_scene
from smoke_trainer.errors import RendererUnavailable
from smoke_trainer.model import Splats
from smoke_trainer.rasterizers import RenderCamera
from smoke_trainer.renderers import GsplatRenderer, InriaRenderer, make_renderer
from splatfix.certify.environment import NOT_CALLED
from splatfix.kernels import nvrtc, rasterizer
from splatfix.knowledge.stacks import variants
from tests.tables import data

CPU = torch.device("cpu")
B = rasterizer.GaussianRasterizationSettings._fields[:12]
"""Of the first generation."""
MIP = (*B[:4], "kernel_size", "subpixel_offset", *B[4:])


def splats_at(
    points: Any, scale: float = 0.01, color: tuple[float, float, float] = (1.0, 1.0, 1.0), grad: bool = False
) -> Splats:
    means = torch.tensor(points, dtype=torch.float32).reshape(-1, 3).requires_grad_(grad)
    count = len(means)
    rotation = torch.tensor([[1.0, 0.0, 0.0, 0.0]]).repeat(count, 1)
    shs = torch.zeros(count, 16, 3)
    shs[:, 0] = (torch.tensor(color) - 0.5) / 0.28209479177387814
    return Splats(means, torch.full((count, 3), scale), rotation, torch.full((count, 1), 0.95), shs, 0)


@pytest.fixture
def camera_and_view(scene_folder: Callable[[str], Path]) -> tuple[RenderCamera, Any]:
    view = load_scene(str(scene_folder("colmap-binary"))).train[1]
    return RenderCamera.of(view, CPU), view


def test_a_splat_lands_on_the_pixel_of_the_intrinsics(camera_and_view):
    camera, view = camera_and_view
    lens, pose = view.camera, view.world_to_camera
    assert (lens.cx, lens.cy) != (lens.width / 2, lens.height / 2)
    for column, row in ((10, 8), (37, 29), (24, 17)):
        local = np.array([(column + 0.5 - lens.cx) / lens.fx, (row + 0.5 - lens.cy) / lens.fy, 1.0]) * 2.0
        world = np.linalg.inv(pose) @ np.append(local, 1.0)
        drawn = make_renderer("torch", CPU).render(camera, splats_at(world[:3]), torch.zeros(3))
        brightness = drawn.color.sum(dim=0)
        assert divmod(int(brightness.argmax()), lens.width) == (row, column)
        assert torch.allclose(brightness[row, column - 1], brightness[row, column + 1], rtol=1e-3)
        assert torch.allclose(brightness[row - 1, column], brightness[row + 1, column], rtol=1e-3)


def test_the_screen_gradient_is_in_ndc_units(camera_and_view):
    camera, view = camera_and_view
    target = np.linalg.inv(view.world_to_camera) @ np.array([0.0, 0.0, 2.0, 1.0])
    drawn = make_renderer("torch", CPU).render(camera, splats_at(target[:3], 0.05, grad=True), torch.zeros(3))
    assert drawn.grad2d() is None
    weight = torch.linspace(0, 1, view.camera.width)[None, None]
    (drawn.color * weight).sum().backward()
    gradient = drawn.grad2d()
    # Moving by one pixel moves the whole blob one pixel up the ramp; one NDC unit is W/2 pixels.
    # (The kernel cuts the blob where alpha falls below 1/255, hence the tolerance.)
    per_pixel = drawn.color.sum().item() / (view.camera.width - 1)
    assert gradient.item() == pytest.approx(per_pixel * view.camera.width / 2, rel=0.05)


def test_colour_is_seen_from_where_the_camera_stands(camera_and_view):
    """One harmonic of degree 1, f = -0.4886 x: its colour is that of the direction from the camera to the splat."""
    camera, view = camera_and_view
    position = (np.linalg.inv(view.world_to_camera) @ np.array([0.0, 0.0, 2.0, 1.0]))[:3]
    splats = splats_at(position, 0.3, color=(0.5, 0.5, 0.5))._replace(sh_degree=1)
    splats.shs[:, 3, 1] = 1.0
    drawn = make_renderer("torch", CPU).render(camera, splats, torch.zeros(3))
    direction = (position - view.position) / np.linalg.norm(position - view.position)
    assert abs(direction[0]) > 0.1
    shown = drawn.color.detach()[:, int(view.camera.cy), int(view.camera.cx)]
    expected = (0.5 - 0.4886025 * direction[0]) / 0.5
    assert float(shown[1] / shown[0]) == pytest.approx(expected, rel=1e-4)


def test_antialiasing_makes_the_small_fainter(camera_and_view):
    camera, view = camera_and_view
    position = (np.linalg.inv(view.world_to_camera) @ np.array([0.0, 0.0, 2.0, 1.0]))[:3]
    plain, smooth = (
        make_renderer("torch", CPU, antialiasing).render(camera, splats_at(position, 0.005), torch.zeros(3))
        for antialiasing in (False, True)
    )
    assert 0 < smooth.color.max() < 0.5 * plain.color.max()


def test_only_a_compiled_rasterizer_needs_the_gpu(monkeypatch):
    """A drop-in is plain PyTorch under the extension's name, and draws anywhere; the report says on what."""
    monkeypatch.setitem(sys.modules, "diff_gaussian_rasterization", fake_module(B))
    assert make_renderer("inria", CPU).engine == "torch-cpu"
    compiled = types.ModuleType("diff_gaussian_rasterization._C")
    compiled.__file__ = "diff_gaussian_rasterization/_C.cpython-311-x86_64-linux-gnu.so"
    monkeypatch.setitem(sys.modules, "diff_gaussian_rasterization._C", compiled)
    with pytest.raises(RendererUnavailable, match="cannot run on cpu"):
        make_renderer("inria", CPU)


def fake_module(fields: Sequence[str], extra: Sequence[str] = (), arity: int = 2) -> Any:
    """A stand-in for an installed variant: its settings and signature, drawn by our kernel."""
    Settings = namedtuple("GaussianRasterizationSettings", fields)

    class GaussianRasterizer:
        def __init__(self, settings):
            self.settings = settings

        def forward(self, means3D, means2D, opacities, dc=None, shs=None, scales=None, rotations=None):
            shs = shs if dc is None else torch.cat([dc, shs], dim=1)
            inputs = {"means2D": means2D, "scales": scales, "rotations": rotations}
            known = rasterizer.GaussianRasterizationSettings._fields
            ours = {key: value for key, value in self.settings._asdict().items() if key in known}
            settings = rasterizer.GaussianRasterizationSettings(**ours)
            drawn = rasterizer.rasterize(settings, means3D, opacities=opacities, shs=shs, **inputs)
            return (drawn.color, drawn.radii, *([None] * (arity - 2)))

        __call__ = forward

    signature = inspect.signature(GaussianRasterizer.forward)
    kept = [argument for name, argument in signature.parameters.items() if name != "dc" or "dc" in extra]
    GaussianRasterizer.forward.__signature__ = signature.replace(parameters=kept)
    module = types.ModuleType("diff_gaussian_rasterization")
    module.GaussianRasterizationSettings = Settings
    module.GaussianRasterizer = GaussianRasterizer
    return module


@pytest.mark.parametrize(
    ("variant", "fields", "extra", "arity"),
    [
        ("inria-v1", B, (), 2),
        ("dr_aa", (*B, "antialiasing"), (), 3),
        ("dr_aa", (*B, "antialiasing"), ("dc",), 3),
        ("taming-3dgs", (*B, "pixel_weights"), ("dc",), 13),
        ("fastgs", (*B, "mult", "get_flag", "metric_map"), (), 2),
        ("mip-splatting", MIP, (), 2),
    ],
)
def test_each_variants_call_draws_the_same_splat(variant, fields, extra, arity, camera_and_view, monkeypatch):
    camera, view = camera_and_view
    monkeypatch.setitem(sys.modules, "diff_gaussian_rasterization", fake_module(fields, extra, arity))
    renderer = InriaRenderer(CPU, antialiasing=False)
    assert renderer.version == variant
    target = np.linalg.inv(view.world_to_camera) @ np.array([0.1, 0.1, 2.0, 1.0])
    splats = splats_at(target[:3], 0.05, grad=True)
    drawn = renderer.render(camera, splats, torch.zeros(3))
    ours = make_renderer("torch", CPU).render(camera, splats, torch.zeros(3))
    tolerance = 0.1 if "kernel_size" in fields else 1e-6  # mip's filter differs on purpose
    assert (drawn.color - ours.color).abs().max() < tolerance
    drawn.color.sum().backward()
    assert drawn.means2d.grad is not None and drawn.grad2d().shape == (1,)


@pytest.mark.parametrize(
    ("fields", "kernel_size"),
    [
        (MIP, 0.1),  # mip-splatting's own default
        ((*B[:4], "kernel_size", *B[4:], "require_depth", "require_coord"), 0.0),  # RaDe-GS's
    ],
)
def test_the_filter_is_the_one_its_variant_trains_with(fields, kernel_size, camera_and_view, monkeypatch):
    camera, view = camera_and_view
    monkeypatch.setitem(sys.modules, "diff_gaussian_rasterization", fake_module(fields))
    renderer = InriaRenderer(CPU, antialiasing=False)
    seen, reference = [], renderer._reference
    draw, reference._rasterizer = (
        reference._rasterizer,
        lambda settings: seen.append(settings) or draw(settings),
    )
    renderer.render(camera, splats_at([0.0, 0.0, 0.0]), torch.zeros(3))
    (settings,) = seen
    assert settings.kernel_size == kernel_size
    if "subpixel_offset" in fields:
        assert settings.subpixel_offset.shape == (view.camera.height, view.camera.width, 2)
        assert not settings.subpixel_offset.any()
    else:
        assert settings.require_depth is False and settings.require_coord is False


NAMED = {row.key: row.settings for row in variants("diff_gaussian_rasterization") if row.settings}


@pytest.mark.parametrize("fields", [(*B, "mystery"), *NAMED.values()], ids=["mystery", *NAMED])
def test_an_unknown_setting_is_refused_instead_of_guessed(fields, camera_and_view, monkeypatch):
    """And certify --renderer auto knows which of the tables' variants that are."""
    camera, _ = camera_and_view
    monkeypatch.setitem(sys.modules, "diff_gaussian_rasterization", fake_module(fields))
    renderer = InriaRenderer(CPU, antialiasing=False)
    splats = splats_at([0.0, 0.0, 0.0])
    if fields in [settings for key, settings in NAMED.items() if key not in NOT_CALLED]:
        assert renderer._reference.settings(camera, splats, torch.zeros(3))
        return
    with pytest.raises(RendererUnavailable, match="unknown settings: ") as caught:
        renderer.render(camera, splats, torch.zeros(3))
    named = re.findall(r"\w+", str(caught.value).partition("settings: ")[2].partition("\n")[0])
    assert named and set(named) <= {*fields} - {*B}


def test_antialiasing_needs_a_variant_that_has_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "diff_gaussian_rasterization", fake_module(B))
    with pytest.raises(RendererUnavailable, match="no antialiasing"):
        InriaRenderer(CPU, antialiasing=True)


@pytest.mark.parametrize("axes", [0, 2])
def test_gsplats_answer_is_brought_into_the_protocol(axes, camera_and_view):
    """gsplat needs a GPU; a stand-in with its signature and shapes shows what is passed and how it is read."""
    camera, view = camera_and_view
    requested = {}

    def rasterization(means, quats, scales, opacities, colors, viewmats, Ks, width, height, **options):
        requested.update(options, viewmats=viewmats, Ks=Ks, opacities=opacities, colors=colors)
        requested.update(quats=quats, scales=scales, size=(width, height))
        means2d = (means[None, :, :2] * 1.0).contiguous()
        picture = torch.zeros(1, height, width, 3) + means2d.sum() + options["backgrounds"][0]
        radii = torch.tensor([[3, 5]]) if axes == 0 else torch.tensor([[[3, 2], [4, 5]]])
        return picture, torch.zeros(1, height, width, 1), {"means2d": means2d, "radii": radii}

    renderer = GsplatRenderer.__new__(GsplatRenderer)
    renderer._gsplat, renderer._mode = types.SimpleNamespace(rasterization=rasterization), "classic"
    splats = splats_at([[0.0, 0.0, 0.0], [0.1, 0.1, 0.1]], grad=True)._replace(sh_degree=1)
    drawn = renderer.render(camera, splats, torch.tensor([0.1, 0.2, 0.3]))
    assert drawn.color.shape == (3, view.camera.height, view.camera.width)
    assert drawn.radii.tolist() == [3, 5]
    assert torch.allclose(requested["viewmats"][0], torch.tensor(view.world_to_camera).float())
    assert requested["Ks"][0, 0, 2].item() == view.camera.cx
    assert torch.equal(requested["colors"], splats.shs[:, :4])  # degree 1: four of the sixteen
    assert torch.equal(requested["opacities"], splats.opacities[:, 0])
    assert torch.equal(requested["quats"], splats.rotations)
    assert torch.equal(requested["scales"], splats.scales)
    assert requested["size"] == (view.camera.width, view.camera.height) and requested["sh_degree"] == 1
    assert (requested["near_plane"], requested["eps2d"], requested["packed"]) == (0.2, 0.3, False)
    drawn.means2d.retain_grad()  # as a strategy does before the backward pass
    drawn.color.sum().backward()
    count = drawn.color.numel()
    expected = count * np.hypot(view.camera.width / 2, view.camera.height / 2)
    assert drawn.grad2d().tolist() == pytest.approx([expected] * 2, rel=1e-5)


@pytest.mark.parametrize(
    ("module", "carrier", "kernel"), data(__file__)["cuda_kernels_are_named_where_they_ran"]
)
def test_cuda_kernels_are_named_where_they_ran(
    module: str, carrier: str, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: dict[str, str] = {}
    monkeypatch.setitem(sys.modules, carrier, SimpleNamespace(ran=ran))
    assert engine_in_use(module, "torch-cuda") == "torch-cuda"
    ran[kernel] = "nvrtc"
    assert engine_in_use(module, "torch-cuda") == "nvrtc"
    ran[kernel] = "torch: no driver"
    assert engine_in_use(module, "torch-cuda") == "torch-cuda"


def test_what_ran_is_told_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib" / "made").mkdir(parents=True)
    path = tmp_path / "lib" / "made" / "_C.cpython-311-x86_64-linux-gnu.so"
    path.write_bytes(b"compiled")
    module = types.ModuleType("made")
    module._C = types.ModuleType("made._C")  # type: ignore[attr-defined]
    module._C.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "made._C", module._C)
    part = Part("made", "1.0", "cuda", module._C)
    ran = part.implementation()
    assert (ran.module, ran.file, ran.sha256) == ("made._C", str(path), sha256(b"compiled").hexdigest())
    monkeypatch.syspath_prepend(tmp_path / "lib")
    assert part.implementation().file == f"made/{path.name}"
    nothing = Part("made", "1.0", "cuda", object()).implementation()
    assert (nothing.module, nothing.file, nothing.sha256) == (None, None, None)


def test_without_them_nothing_is_renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "ran", {})  # other tests of this process ran some
    for module in ("gsplat", "fused_ssim", "splatfix.kernels.ssim"):
        assert engine_in_use(module, "cuda") == "cuda"
