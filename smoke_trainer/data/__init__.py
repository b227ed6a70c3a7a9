"""Scenes on disk: finding them, reading their layouts, undistortion, and the image cache."""
