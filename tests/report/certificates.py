"""Certificates of a lab: one recorded document, varied in GPU, driver, torch, stack and outcome."""

import copy
import itertools
from collections.abc import Iterator
from typing import Any

GPUS = ("NVIDIA GeForce RTX 5090", "NVIDIA H100 80GB HBM3", "NVIDIA RTX A6000", "NVIDIA L40S", "Tesla T4")
DRIVERS = ("535.183.01", "550.163.01", "570.172.08", "580.95.05")
TORCHES = ("2.6.0+cu124", "2.9.1+cu128", "2.11.0+cu130", "2.13.0+cu130")
STACKS = (("gsplat", "gsplat 1.5.3 cuda"), ("inria", "diff_gaussian_rasterization 0.0.0 cuda"))


def varied(base: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination once: an RTX 5090 fails with torch for CUDA 12.4, the oldest driver with torch for CUDA 13 and on
    a T4 one stack has no gradients; every 17th is too short to be judged."""
    combinations = itertools.product(GPUS, DRIVERS, TORCHES, STACKS)
    for number, (gpu, driver, torch, (renderer, ran)) in enumerate(combinations):
        made = copy.deepcopy(base)
        made["device"], made["renderer"] = "cuda", renderer
        made["environment"] |= {"GPU": f"{gpu} (cuda)", "driver": driver, "torch": torch, "renderer": ran}
        made["issued"] = f"2026-{1 + number % 12:02}-{1 + number % 28:02}T12:00:00+00:00"
        if (gpu == GPUS[0] and torch == TORCHES[0]) or (driver == DRIVERS[0] and "cu130" in torch):
            _fail(made, "no-kernel-image")
        elif gpu == "Tesla T4" and renderer == "gsplat":
            _fail(made, "gradients-xyz")
        elif number % 17 == 0:
            made["verdict"] = "undetermined"
            made["scenes"][0]["criteria"][0] |= {"outcome": "undetermined", "measured": "60 iterations"}
        else:
            made["verdict"] = "certified"
        yield made


def _fail(document: dict[str, Any], code: str) -> None:
    document["verdict"] = "not-certified"
    failed = {"code": code, "outcome": "failed", "measured": "x", "required": "none", "why": "It is broken."}
    for scene in document["scenes"]:
        scene["criteria"].append(failed)
