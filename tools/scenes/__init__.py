"""The sample scenes: procedural worlds (``scenes.toml``), a ray tracer, and writers of the layouts that trainers read.

Colours are arithmetic on coordinates and a hashed lattice, every other draw comes from a seeded generator: a scene made twice
on one machine is the same byte for byte. Between processors a last digit may differ, so stored scenes are compared with
their recipes by the mean of a few views; the committed ones stay as they are.
"""
