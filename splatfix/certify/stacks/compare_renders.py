"""Measures a trainer's renderings against their ground truth, and looks into its point clouds; runs in the target environment.

``python compare_renders.py MODEL ITERATIONS REPORT ANSWER.json``: it uses the smoke trainer's metrics. The
answer has the names of a training's record.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import torch

from smoke_trainer.data.images import decode, image_size
from smoke_trainer.metrics import QualityMean
from smoke_trainer.ply import read_vertices
from smoke_trainer.report import write_preview
from splatfix.kernels.ssim import fused_ssim

MOST_PREVIEWS = 4


def image(path: Path) -> torch.Tensor:
    """An image file as [3, H, W] in 0..1."""
    return decode(path, image_size(path))[:3].float() / 255.0


def compare(
    renders: Path, gt: Path, previews: Optional[Path]
) -> Tuple[Dict[str, Any], List[str], Optional[List[int]]]:
    """Return the mean quality of the images in ``renders`` against those of the same names in ``gt``, and digests and size of the
    latter."""
    mean = QualityMean(lambda one, two: fused_ssim(one, two, "same", False))
    digests: list[str] = []
    size = None
    for number, path in enumerate(sorted(gt.glob("*.png"))):
        rendered, truth = image(renders / path.name), image(path)
        mean.add(rendered, truth)
        digests.append(hashlib.sha256(truth.numpy().tobytes()).hexdigest())
        size = [truth.shape[2], truth.shape[1]]
        if previews is not None and number < MOST_PREVIEWS:
            write_preview(previews / path.name, rendered, truth)
    return asdict(replace(mean.result(), lpips_note="not measured")), digests, size


def point_cloud(path: Path) -> Dict[str, int]:
    """Count the vertices of a PLY file, and its values that are not finite; raises Damage for one that is not whole."""
    columns = list(read_vertices(path).values())
    non_finite = sum(int(np.count_nonzero(~np.isfinite(column))) for column in columns)
    return {"count": len(columns[0]), "non_finite": non_finite}


def rendered_pair(model: Path, views: str, iteration: int) -> Optional[Tuple[Path, Path]]:
    """Return the folders of renderings and ground truth of an iteration: ``test/ours_7000/renders`` and ``gt`` in Inria's family,
    ``test_preds_1`` and ``gt_1`` in Mip-Splatting's."""
    for gt in sorted(model.glob(f"{views}/*_{iteration}/gt*")):
        names = {image.name for image in gt.glob("*.png")}
        for path in sorted(gt.parent.iterdir()):
            rendered = "render" in path.name or "pred" in path.name
            if names and rendered and names == {image.name for image in path.glob("*.png")}:
                return path, gt
    return None


def main(model: Path, last: int, report: Path) -> Dict[str, Any]:
    """Compare the renderings after the first and the last iteration, and look into the point clouds; what cannot be read is left
    out, and of a point cloud has its error."""
    # images as they were rendered have no names: the digests of their pixels tell them apart
    split: Dict[str, List[str]] = {}
    answer: Dict[str, Any] = {"saves": {}, "split": split}
    for name, views, iteration in (
        ("initial_heldout", "test", 1),
        ("training_views", "train", last),
        ("heldout", "test", last),
    ):
        pair = rendered_pair(model, views, iteration)
        if pair is None:
            continue
        previews = report / "renders" / "heldout" if name == "heldout" else None
        with contextlib.suppress(Exception):
            answer[name], split[views], answer["resolution"] = compare(*pair, previews)
    for iteration in (1, last):
        path = min(model.glob(f"point_cloud/iteration_{iteration}/*.ply"), default=None)
        if path is not None:
            try:
                answer["saves"][str(iteration)] = point_cloud(path)
            except Exception as error:
                answer["saves"][str(iteration)] = {"error": f"{type(error).__name__}: {error}"}
    return answer


if __name__ == "__main__":
    compared = main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
    Path(sys.argv[4]).write_text(json.dumps(compared), encoding="utf-8")
