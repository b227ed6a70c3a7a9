"""What to do about a criterion that failed or stayed open: the next look, by the criterion's code."""

from __future__ import annotations

from dataclasses import replace

from splatfix.certify.criteria.criterion import SHORTEST
from splatfix.certify.model import Criterion, Outcome

_BACKWARD = (
    "Run splatfix verify, which compares forward and backward of every rasterizer with float64, and certify again with "
    "--renderer torch: where that trains, the installed extension is at fault, and splatfix install rebuilds it."
)
_LEARNING = (
    "Certify again with --renderer torch --device cpu: where that learns, the GPU kernels are at fault (splatfix verify names "
    "them); where it does not, look at the scene's images and poses with splatfix scenes check."
)
_PLAIN = (
    "All that ran was plain PyTorch on the CPU, so no extension is at fault: look at a scene of yours with splatfix scenes "
    "check; for a sample scene, install torch anew, or another version of it."
)
"""In place of the two, where what they suggest is what ran."""
_PACKAGE = (
    "Run splatfix diagnose: it names packages that are not what their name says, and which one is imported."
)

_ADVICE = {
    "training-finishes": "Read the end of the scene's trainer.log, and run splatfix diagnose. Where memory ran out, train at a "
    "smaller --resolution.",
    "no-cuda-error": "Run splatfix diagnose: it names the binaries without code for this GPU; splatfix install rebuilds them.",
    "renderer-as-asked": _PACKAGE,
    "implementations-identified": _PACKAGE,
    "held-out-views": "Look for photos that are in the scene twice, under one name or two.",
    "held-out-not-above-training": "Look for photos that are in the scene twice, cropped or saved anew, and for video frames "
    "that hardly differ: such held-out views were as good as trained on.",
    "finite-values": _BACKWARD,
    "gradients-xyz": _BACKWARD,
    "gradients-f-dc": _BACKWARD,
    "gradients-f-rest": _BACKWARD,
    "gradients-opacity": _BACKWARD,
    "gradients-scaling": _BACKWARD,
    "gradients-rotation": _BACKWARD,
    "gaussians-reached": _BACKWARD,
    "densification-works": "Densification needs the gradient of the projected means (means2D), which some variants of the "
    "rasterizer do not return. Certify again with --renderer torch: where that works, install the variant that the stack names.",
    "loss-falls": _LEARNING,
    "loss-trend": _LEARNING,
    "held-out-psnr-rises": _LEARNING,
    "held-out-quality": _LEARNING,
    "ply-round-trip": "Do not use this point cloud. Look for a full or failing disk, and certify again in another --out folder.",
    "evaluation-memory": "Evaluate under torch.no_grad(), one view after the other, and keep numbers instead of tensors.",
    "memory-growth": "Look for what is kept from every iteration, such as a list of losses that were not detached; "
    "splatfix monitor records the memory of any trainer.",
    "memory-utilisation": "End other programs that hold memory, train at a smaller --resolution, or with fewer Gaussians.",
    "time-by-phase": "Look for work between the phases: saving, logging, waiting for the GPU.",
    "throughput-steady": "Look for other load and for throttling (nvidia-smi -q -d PERFORMANCE,TEMPERATURE), and certify again.",
    "training-repeats": "Look for what no seed sets, and for an extension that reads memory it has not written, which "
    "compute-sanitizer --tool initcheck finds; --renderer torch runs none.",
    "scene-readable": "Run splatfix scenes check on the scene's folder: it names what the scene lacks.",
}
_STEADY_CPU = (
    "No other program kept the processor busy: look at its temperature and its power limit, and for memory that is all but "
    "full, and certify again."
)
"""Of ``throughput-steady`` on a CPU."""
_ANY = "Run splatfix diagnose in the same environment."


def advised(item: Criterion, renderer: str, device: str) -> Criterion:
    """The criterion with what to do about it; as it is where it was met, could not be measured here, or has advice.

    Args:
        renderer, device: of the run.
    """
    if item.advice:
        return item
    if item.outcome is Outcome.UNDETERMINED:
        return replace(item, advice=f"Train for {SHORTEST} iterations or more (--iterations).")
    if item.outcome is not Outcome.FAILED and item.code != "scene-readable":
        return item
    advice = _ADVICE.get(item.code, _ANY)
    if item.code == "throughput-steady" and device == "cpu":
        advice = _STEADY_CPU
    elif advice in (_BACKWARD, _LEARNING) and (renderer, device) == ("torch", "cpu"):
        advice = _PLAIN
    return replace(item, advice=advice)
