"""Gaussians with Inria's parameter groups, and a render call with the face of its 2023 rasterizer."""

import os

import numpy as np
import torch
from diff_gaussian_rasterization import GaussianRasterizationSettings, GaussianRasterizer
from plyfile_tiny import read, write
from simple_knn._C import distCUDA2

NAMES = ("xyz", "f_dc", "f_rest", "opacity", "scaling", "rotation")
RATES = dict(zip(NAMES, (2e-3, 2e-2, 1e-3, 5e-2, 5e-3, 1e-3)))


class Gaussians:
    def __init__(self, points=None):
        if points is None:
            return
        xyz = torch.tensor(points[:, :3], dtype=torch.float32, device="cuda")
        size = torch.log(torch.sqrt(torch.clamp_min(distCUDA2(xyz), 1e-7)))[:, None].repeat(1, 3)
        color = (torch.tensor(points[:, 3:6] / 255, dtype=torch.float32) - 0.5) / 0.28209479177387814
        turn = torch.zeros(len(xyz), 4, device="cuda")
        turn[:, 0] = 1
        self.set(
            {
                "xyz": xyz,
                "f_dc": color[:, None, :].cuda() * 0.3,
                "f_rest": torch.zeros(len(xyz), 3, 3, device="cuda"),
                "opacity": torch.full((len(xyz), 1), -1.0, device="cuda"),
                "scaling": size,
                "rotation": turn,
            }
        )

    def set(self, values):
        self.rows = {name: torch.nn.Parameter(values[name].requires_grad_(True)) for name in NAMES}

    def train(self):
        groups = [{"params": [self.rows[name]], "lr": RATES[name], "name": name} for name in NAMES]
        self.optimizer = torch.optim.Adam(groups, eps=1e-15)

    def densify(self, share):
        norm = self.rows["xyz"].grad.norm(dim=1)
        chosen = norm >= torch.quantile(norm, 1 - share)
        self.set({name: torch.cat([row.detach(), row.detach()[chosen]]) for name, row in self.rows.items()})
        self.train()

    def save(self, folder):
        os.makedirs(folder, exist_ok=True)
        values = [row.detach().flatten(1).cpu().numpy() for row in self.rows.values()]
        write(os.path.join(folder, "point_cloud.ply"), np.concatenate(values, axis=1))

    def load(self, folder):
        table = torch.from_numpy(read(os.path.join(folder, "point_cloud.ply"))).cuda()
        parts = torch.split(table, [3, 3, 9, 1, 3, 4], dim=1)
        shapes = ((3,), (1, 3), (3, 3), (1,), (3,), (4,))
        self.set({name: part.reshape(-1, *shape) for name, part, shape in zip(NAMES, parts, shapes)})


def render(view, gaussians, degree=1):
    rows = gaussians.rows
    settings = GaussianRasterizationSettings(
        image_height=view.image.shape[1],
        image_width=view.image.shape[2],
        tanfovx=view.tanfov[0],
        tanfovy=view.tanfov[1],
        bg=torch.zeros(3, device="cuda"),
        scale_modifier=1.0,
        viewmatrix=view.world_view,
        projmatrix=view.full_proj,
        sh_degree=degree,
        campos=view.center,
        prefiltered=False,
        debug=False,
    )
    rasterizer = GaussianRasterizer(raster_settings=settings)
    image, radii = rasterizer(
        means3D=rows["xyz"],
        means2D=torch.zeros_like(rows["xyz"], requires_grad=True),
        shs=torch.cat([rows["f_dc"], rows["f_rest"]], dim=1),
        colors_precomp=None,
        opacities=torch.sigmoid(rows["opacity"]),
        scales=torch.exp(rows["scaling"]),
        rotations=torch.nn.functional.normalize(rows["rotation"]),
        cov3D_precomp=None,
    )
    return image, radii
