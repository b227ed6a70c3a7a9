"""The sample scenes: procedural worlds, a ray tracer, and writers of the layouts that trainers read."""
