"""A small, complete 3D Gaussian Splatting trainer that shows whether a stack really trains.

To follow one step of training, read `train.train_step`, then in its order: `model` (parameters, Adam, learning rates),
`data/images` (ground truth), `renderers`, `metrics` (the loss), `densify` (adding and removing Gaussians). `config` has every
setting, `report` the output.
"""

__version__ = "0.1.0"
