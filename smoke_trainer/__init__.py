"""A small, complete 3D Gaussian Splatting trainer that shows whether a stack really trains.

To follow one step of training, read `train.train_step`, then in its order: `schedule` (rates), `data/images` (the photo),
`renderers/base` (what drawing means), `losses`, `model` (what the parameters mean, and their Adam), `densify/default`
(more Gaussians, or fewer). `config` holds every number, `report` what is left behind.
"""

__version__ = "0.1.0"
