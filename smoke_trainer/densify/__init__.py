"""Densification: strategies decide when Gaussians are added and removed, operations change them."""
