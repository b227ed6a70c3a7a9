"""Scenes of the user's: checked without torch, and mended in a copy."""
