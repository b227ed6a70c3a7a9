"""What a reader who never saw a certificate needs: criteria as statements, what a verdict means, and a few words explained."""

from __future__ import annotations

from splatfix.certify.model import Verdict

TITLES = {
    "training-finishes": "Training finishes",
    "renderer-as-asked": "The renderer is the one asked for",
    "implementations-identified": "The code that ran is known",
    "held-out-views": "Held-out views are apart from training views",
    "held-out-not-above-training": "Held-out views are no better than training views",
    "held-out-psnr-rises": "Held-out PSNR rises",
    "held-out-quality": "Held-out quality reaches the reference",
    "finite-values": "No NaN or infinity",
    "gradients-xyz": "Gradients reach positions (xyz)",
    "gradients-f-dc": "Gradients reach base colours (f_dc)",
    "gradients-f-rest": "Gradients reach view-dependent colours (f_rest)",
    "gradients-opacity": "Gradients reach opacities",
    "gradients-scaling": "Gradients reach sizes (scaling)",
    "gradients-rotation": "Gradients reach rotations",
    "gaussians-reached": "Gradients reach most Gaussians",
    "loss-falls": "Loss falls from start to end",
    "loss-trend": "Loss falls all the way",
    "densification-works": "Densification works",
    "ply-round-trip": "The saved PLY renders the same",
    "evaluation-memory": "Evaluation needs no more memory than training",
    "memory-growth": "Memory does not creep up",
    "memory-utilisation": "Memory is not full",
    "time-by-phase": "Phases account for the time",
    "throughput-steady": "Speed is steady",
    "training-repeats": "Training repeats with the same seed",
    "no-cuda-error": "No CUDA error",
    "scene-readable": "The scene can be read",
}
"""A criterion's code as a statement, which is then met or failed."""


def statement(code: str) -> str:
    """A criterion's statement; its code as words where it has none."""
    return TITLES.get(code) or code.replace("-", " ").capitalize()


MEANS = {
    Verdict.CERTIFIED: "All that was run passed.",
    Verdict.REHEARSED: "The stack's own trainer passed on the CPU; nothing is said about CUDA.",
    Verdict.NOT_CERTIFIED: "Something that was run failed; the reasons are below.",
    Verdict.UNDETERMINED: "Neither passed nor failed: what was run does not decide it.",
}

MEANS_WITHOUT_TRAINING = {
    1: "The checks of this machine and environment passed. Nothing was computed, and nothing was trained.",
    2: "The checks passed, and the kernels agree with their references. Nothing was trained.",
}
"""What a passed run level below the training ones means."""

LEVEL_MEANS = {
    "resolved": "A consistent set of versions exists for this GPU, driver, toolkit and torch.",
    "built": "The binaries carry code that this GPU can run.",
    "loads": "Trainer and kernels import in the environment.",
    "rehearsed": "Without a GPU: the stack's own trainer ran on the CPU, drop-ins in place of its CUDA extensions.",
    "computes": "The kernels ran, and forward and gradient agree with float64 references.",
    "trains": "Every scene trained, and every criterion was met.",
    "reproduces": "Speed, memory and quality hold against a stored baseline.",
}
LEVEL_MEANS_ON_THE_CPU = {
    "resolved": "Python runs and torch is installed: all that a training on the CPU asks for."
}

HELD_OUT = (
    "Photos that training never saw, and what the trained Gaussians show from the same place. In the error picture black is "
    "equal; colours are differences, amplified four times: they are shown four times as bright as they are."
)
SLIDE = "Drag the white line, or move it with the arrow keys."
"""How to look at a picture on a screen; left out on paper, where both are whole."""

GLOSSARY = (
    ("Gaussian", "One of the soft coloured ellipsoids that a 3D Gaussian Splatting (3DGS) scene is made of."),
    (
        "held-out view",
        "A photo that is kept out of training, every eighth: it shows what was learned and not just memorised.",
    ),
    (
        "PSNR",
        "Agreement of two images in decibels (dB). Higher is better; 6 dB more is half the error (root mean square).",
    ),
    ("SSIM", "Agreement of structure, 1 at most. Higher is better."),
    ("LPIPS", "Difference as a neural network trained on human judgements sees it. Lower is better."),
    ("loss", "What training makes smaller: absolute difference and 1 - SSIM of rendering and photo, mixed."),
    (
        "forward, backward",
        "Drawing a view; computing from its error how each Gaussian has to change (the gradient).",
    ),
    (
        "densification",
        "Gaussians are added where detail is missing (cloned, split) and removed where they do nothing (pruned).",
    ),
    (
        "opacity reset",
        "Every so often all Gaussians become nearly transparent. The loss jumps up and falls again: that is meant so.",
    ),
    (
        "f_dc, f_rest",
        "Colour as spherical harmonics: the base colour, and what changes with the direction of view.",
    ),
    (
        "kernel",
        "A function that does the heavy work: rasterizer (draws), SSIM (compares), kNN (finds neighbours).",
    ),
    (
        "float64 reference",
        "The same computation, slow and in double precision, as the yardstick for a kernel.",
    ),
    (
        "engine",
        "What a part runs on inside. fused: PyTorch's Adam that updates everything in one kernel. scipy, napf, pynanoflann, "
        "pykdtree: the compiled k-d tree that finds neighbours on a CPU.",
    ),
    (
        "level of proof",
        "What was verified, in steps from resolved to reproduces. Which of them a run can reach depends on its run level.",
    ),
    (
        "run level",
        "How much was run: 1 the diagnosis, 2 kernels too, 3 the quick suite too, 4 the standard suite or all public scenes.",
    ),
)
