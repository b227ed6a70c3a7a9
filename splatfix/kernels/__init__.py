"""SSIM, nearest neighbors, the rasterizer and small helpers in plain PyTorch, one self-contained file each.

This file imports nothing: every file of the folder needs only torch, and is copied as it is into drop-in distributions.
"""
