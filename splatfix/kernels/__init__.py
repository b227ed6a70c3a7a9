"""SSIM, nearest neighbours, the rasterizer and small helpers in plain PyTorch, one self-contained file each.

Nothing is imported here on purpose: every file of this folder stands alone, needs only torch, and is copied as it is
into the drop-in distributions that the installer builds.
"""
