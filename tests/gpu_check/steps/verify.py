"""``splatfix verify`` on the GPU: our kernels, and those that were installed."""

from __future__ import annotations

from typing import Any

from ..context import DEVICE, Context, error_of
from ..plan import Notes

KERNELS = {"inria-v1": "rasterizer", "simple-knn": "knn", "fused-ssim": "ssim"}
"""Source -> what it brings."""


def run(context: Context, notes: Notes) -> None:
    """All kernels of the environment with the stack: ours, and every one that its sources should have brought."""
    words = ("verify", "--device", DEVICE, "--python", context.python("stack"))
    _, document = context.splatfix(*words, timeout=230)
    if "kernels" not in document:
        notes.expect(False, "the kernels are verified", error_of(document))
        return
    checks: list[dict[str, Any]] = document["kernels"]
    notes.numbers["kernels"] = checks
    wanted = {("ours", name) for name in ("ssim", "knn", "rasterizer")}
    wanted |= {("native", KERNELS[name]) for name in context.sources if name in KERNELS}
    for kind, name in sorted(wanted):
        found = [item for item in checks if (item["kind"], item["name"]) == (kind, name)]
        if not found:
            notes.expect(False, f"{name} ({kind}) is verified on the GPU", "it was not run")
        for item in found:
            value, gradient = item["value_error"], item["gradient_error"]
            errors = "" if value is None else f"value error {value:.1e} of {item['value_allowed']:.0e}"
            if gradient is not None:
                errors += f", gradient error {gradient:.1e} of {item['gradient_allowed']:.0e}"
            what = f"{item['implementation']} agrees with its float64 reference on the GPU"
            shown = "; ".join(filter(None, [errors, item["detail"]])) or item["outcome"]
            notes.expect(item["outcome"] == "met", what, shown)
