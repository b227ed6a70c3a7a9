"""Makes a mended copy of a scene. The original is only ever read."""
