"""Rasterizers behind one small protocol, each chosen by name and never replaced silently by another."""

from smoke_trainer.renderers.base import RenderCamera, Renderer, RenderOutput, make_renderer

__all__ = ["RenderCamera", "RenderOutput", "Renderer", "make_renderer"]
