"""Renders the test and training views of a saved model."""

import argparse
import os

import numpy as np
import torch
from model import Gaussians, render
from PIL import Image
from scene import load


def write(path, image):
    pixels = (image.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    Image.fromarray(np.ascontiguousarray(pixels)).save(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_path", "-m")
    parser.add_argument("--iteration", default=-1, type=int)
    parser.add_argument("--skip_train", action="store_true")
    args = parser.parse_args()
    with open(os.path.join(args.model_path, "source")) as file:
        views, _ = load(file.read(), 48)
    gaussians = Gaussians()
    gaussians.load(os.path.join(args.model_path, "point_cloud", f"iteration_{args.iteration}"))
    for number, view in enumerate(views):
        kind = "train" if number % 8 else "test"
        if kind == "train" and args.skip_train:
            continue
        folder = os.path.join(args.model_path, kind, f"ours_{args.iteration}")
        with torch.no_grad():
            image, _ = render(view, gaussians)
        for name, picture in (("renders", image), ("gt", view.image)):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
            write(os.path.join(folder, name, f"{number:05d}.png"), picture)


if __name__ == "__main__":
    main()
