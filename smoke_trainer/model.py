"""The Gaussians: raw parameters, what they mean (activations), their optimizer, learning rates, and their start from points."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, NamedTuple, Tuple

import torch
from torch import Tensor

from smoke_trainer.config import LearningRates, TrainConfig
from smoke_trainer.data.scene import PointCloud

GROUPS = ("xyz", "f_dc", "f_rest", "opacity", "scaling", "rotation")
SH_C0 = 0.28209479177387814  # the constant spherical harmonic, 1 / (2 sqrt(pi))
MIN_SQUARED_DISTANCE = 1e-7


class Splats(NamedTuple):
    """Activated Gaussians as a renderer takes them: means [P,3], scales [P,3], unit quaternions (w,x,y,z) [P,4],
    opacities [P,1] in 0..1, and spherical harmonics [P,K,3] of which `sh_degree` says how many count."""

    means: Tensor
    scales: Tensor
    rotations: Tensor
    opacities: Tensor
    shs: Tensor
    sh_degree: int


class Gaussians:
    """Raw parameters by group, the Adam that trains them, and the SH degree in use.

    Shapes: xyz [P,3], f_dc [P,1,3], f_rest [P,K-1,3], opacity [P,1] (logit), scaling [P,3] (log), rotation [P,4].
    """

    def __init__(self, params: Dict[str, Tensor], max_sh_degree: int, lrs: LearningRates) -> None:
        self.params = {name: params[name].detach().clone().requires_grad_(True) for name in GROUPS}
        self.max_sh_degree = max_sh_degree
        self.sh_degree = 0
        self.optimizer, self.optimizer_engine = make_adam(self.params, lrs)

    def __len__(self) -> int:
        return len(self.params["xyz"])

    @property
    def device(self) -> torch.device:
        return self.params["xyz"].device

    def raise_sh_degree(self) -> None:
        """Let one more degree of spherical harmonics count."""
        self.sh_degree = min(self.sh_degree + 1, self.max_sh_degree)

    def opacities(self) -> Tensor:
        """[P, 1] in 0..1."""
        return torch.sigmoid(self.params["opacity"])

    def scales(self) -> Tensor:
        """[P, 3], standard deviations in world units."""
        return torch.exp(self.params["scaling"])

    def splats(self) -> Splats:
        """All parameters activated, ready to render."""
        p = self.params
        return Splats(
            p["xyz"],
            self.scales(),
            torch.nn.functional.normalize(p["rotation"], dim=1),
            self.opacities(),
            torch.cat([p["f_dc"], p["f_rest"]], dim=1),
            self.sh_degree,
        )


def make_adam(params: Dict[str, Tensor], lrs: LearningRates) -> Tuple[torch.optim.Adam, str]:
    """One Adam over six named groups, and the name of the engine it runs on: "fused" where this torch has it for the device.

    That is told by one step of a single number: torch 1.13's constructor accepts `fused=True` on the CPU, and the first step
    fails.
    """
    groups = []
    for name in GROUPS:
        # that of positions decays, and is set anew before each step
        lr = getattr(lrs, "xyz_init" if name == "xyz" else name)
        groups.append({"params": [params[name]], "name": name, "lr": lr})
    options: Dict[str, Any] = {"lr": 0.0, "eps": 1e-15}
    device = params["xyz"].device
    number = torch.ones(1, device=device, requires_grad=True)
    number.grad = torch.ones_like(number)
    try:
        torch.optim.Adam([number], fused=True).step()
    except (RuntimeError, TypeError):  # no kernel for this device; no such argument
        engine = "foreach" if device.type == "cuda" else "for-loop"  # torch's own choice
        return torch.optim.Adam(groups, **options), engine
    return torch.optim.Adam(groups, fused=True, **options), "fused"


def gaussians_from_points(
    points: PointCloud,
    config: TrainConfig,
    mean_squared_distance: Callable[[Tensor], Tensor],
    device: torch.device,
) -> Gaussians:
    """One round Gaussian per point, of `initial_opacity`, `initial_scale` times as large as the distance to its neighbours.

    The point's colour is that of the constant harmonic (f_dc); what depends on the direction (f_rest) starts at zero.
    `mean_squared_distance` maps points [P, 3] to the mean squared distance of the three nearest others [P].
    """
    xyz = torch.from_numpy(points.xyz).float().to(device)
    rgb = torch.from_numpy(points.rgb).float().to(device) / 255.0
    distance = torch.sqrt(torch.clamp_min(mean_squared_distance(xyz), MIN_SQUARED_DISTANCE))
    rotation = torch.zeros(len(xyz), 4, device=device)
    rotation[:, 0] = 1.0
    params = {
        "xyz": xyz,
        "f_dc": ((rgb - 0.5) / SH_C0)[:, None, :],
        "f_rest": torch.zeros(len(xyz), (config.sh_degree + 1) ** 2 - 1, 3, device=device),
        "opacity": logit(torch.full((len(xyz), 1), config.initial_opacity, device=device)),
        "scaling": torch.log(config.initial_scale * distance)[:, None].repeat(1, 3),
        "rotation": rotation,
    }
    return Gaussians(params, config.sh_degree, config.lrs)


def logit(probability: Tensor) -> Tensor:
    """The inverse of the sigmoid."""
    return torch.log(probability / (1.0 - probability))


def xyz_lr_at(lrs: LearningRates, extent: float, iteration: int, iterations: int) -> float:
    """Log-linear from the initial to the final rate over the run, times the scene's extent (the paper, section 7.1)."""
    progress = min(max(iteration / max(iterations, 1), 0.0), 1.0)
    log_lr = (1.0 - progress) * math.log(lrs.xyz_init) + progress * math.log(lrs.xyz_final)
    return math.exp(log_lr) * extent
