"""Measures a trainer's renderings against their ground truth, and looks into its point clouds; runs in the target environment.

``python compare_renders.py ASKED.json ANSWER.json``: staged beside the smoke trainer, whose metrics it uses.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch
from PIL import Image

from smoke_trainer.data.images import FORMATS
from smoke_trainer.metrics import QualityMean
from smoke_trainer.report import write_preview
from splatfix.kernels.ssim import fused_ssim

MOST_PREVIEWS = 4
_LONGEST_HEADER = 1 << 20
_AT_ONCE = 1 << 24
"""Numbers of a point cloud that are in memory together; some have gigabytes."""


def image(path: Path) -> torch.Tensor:
    """An image file as [3, H, W] in 0..1."""
    pixels = np.asarray(Image.open(path, formats=FORMATS).convert("RGB"), dtype=np.float32) / 255.0
    return torch.from_numpy(pixels).permute(2, 0, 1)


def compare(renders: Path, gt: Path, previews: Optional[Path]) -> dict[str, Any]:
    """Mean quality of the images in ``renders`` against those of the same names in ``gt``, and the digests of the latter."""
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
    quality = replace(mean.result(), lpips_note="not measured")
    return {**asdict(quality), "digests": digests, "size": size}


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
        for first in range(0, numbers, _AT_ONCE):
            values = np.fromfile(path, "<f4", min(_AT_ONCE, numbers - first), offset=start + 4 * first)
            contents["non_finite"] += int((~np.isfinite(values)).sum())
    return contents


def main(questions_file: Path, answer: Path) -> None:
    """Answer every question in ``asked``; one that fails is answered by its error."""
    questions, answers = json.loads(questions_file.read_text(encoding="utf-8")), {}
    for name, asked in {**questions["images"], **questions["clouds"]}.items():
        try:
            if name in questions["clouds"]:
                answers[name] = point_cloud(Path(asked))
            else:
                previews = Path(asked["previews"]) if asked.get("previews") else None
                answers[name] = compare(Path(asked["renders"]), Path(asked["gt"]), previews)
        except Exception as error:
            answers[name] = {"error": f"{type(error).__name__}: {error}"}
    answer.write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
