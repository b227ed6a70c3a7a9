"""SSIM, nearest neighbors, both rasterizers (Gaussians and surfels) and small helpers in plain PyTorch.

Beside most of them lies the same for a GPU: CUDA C++ in `cuda`, which NVRTC compiles (nvrtc.py), called from `*_cuda.py`.
This file imports nothing: every file of the folder needs only torch, and is copied as it is into drop-in distributions.
"""
