"""splatfix: doctor, installer and certifier for 3D Gaussian Splatting (3DGS) stacks."""

__version__ = "0.1.0"
