"""Measures a trainer's renderings against their ground truth, and looks into its point clouds; runs in the target environment.

``python compare_renders.py MODEL ITERATIONS REPORT ANSWER.json``: staged beside the smoke trainer, whose metrics it uses. The
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
from PIL import Image

from smoke_trainer.data.images import FORMATS
from smoke_trainer.metrics import QualityMean
from smoke_trainer.report import write_preview
from splatfix.kernels.ssim import fused_ssim

MOST_PREVIEWS = 4
_LONGEST_HEADER = 1 << 20


def image(path: Path) -> torch.Tensor:
    """An image file as [3, H, W] in 0..1."""
    pixels = np.asarray(Image.open(path, formats=FORMATS).convert("RGB"), dtype=np.float32) / 255.0
    return torch.from_numpy(pixels).permute(2, 0, 1)


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


def point_cloud(path: Path) -> dict[str, Any]:
    """Rows, properties and non-finite values of a binary PLY file of float32 properties."""
    with path.open("rb") as file:
        head, end, _ = file.read(_LONGEST_HEADER).partition(b"end_header\n")
    header = [line.split() for line in head.decode("ascii", "replace").splitlines()]
    count = next(int(line[2]) for line in header if line[:2] == ["element", "vertex"])
    kinds = [line[1] for line in header if line[:1] == ["property"]]
    contents: dict[str, Any] = {"count": count, "properties": len(kinds), "non_finite": None}
    if set(kinds) == {"float"} and ["format", "binary_little_endian", "1.0"] in header:
        start = len(head) + len(end)
        numbers = (path.stat().st_size - start) // 4
        contents["whole"] = numbers == count * len(kinds)
        contents["non_finite"] = 0
        if numbers:
            # not read into memory: some have gigabytes
            values = np.memmap(path, "<f4", "r", start, (numbers,))
            contents["non_finite"] = numbers - int(np.count_nonzero(np.isfinite(values)))
    return contents


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
    answer: Dict[str, Any] = {"saves": {}}
    # images as they were rendered have no names: the digests of their pixels tell them apart
    split: Dict[str, List[str]] = {"train": []}
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
            answer[name], split[views], size = compare(*pair, previews)
            if name == "heldout":
                answer.update(split=split, resolution=size)
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
