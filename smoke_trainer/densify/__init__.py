"""Strategies that add and remove Gaussians while training: default (the paper's), MCMC, and a fixed budget."""

from smoke_trainer.densify.strategy import DensifyEvent, Strategy, make_strategy

__all__ = ["DensifyEvent", "Strategy", "make_strategy"]
