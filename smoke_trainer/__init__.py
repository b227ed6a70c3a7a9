"""A small, complete 3D Gaussian Splatting trainer that shows whether a stack really trains."""

__version__ = "0.1.0"
