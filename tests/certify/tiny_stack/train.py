"""A small trainer with the faces of Inria's: the stack that tests certify, whole or sabotaged."""

import argparse
import os
import random

import torch
from arguments import ModelParams, OptimizationParams
from model import Gaussians, render
from scene import load

try:
    from fused_ssim import fused_ssim
except ImportError:
    fused_ssim = None


def main():
    parser = argparse.ArgumentParser()
    ModelParams(parser)
    OptimizationParams(parser)
    parser.add_argument("--save_iterations", nargs="+", type=int, default=[7_000, 30_000])
    args = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    torch.cuda.set_device(torch.device("cuda:0"))
    views, points = load(args.source_path, 48)
    train = [view for number, view in enumerate(views) if number % 8 or not args.eval]
    gaussians = Gaussians(points)
    gaussians.train()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    os.makedirs(args.model_path, exist_ok=True)
    with open(os.path.join(args.model_path, "source"), "w") as file:
        file.write(args.source_path)
    for iteration in range(1, args.iterations + 1):
        begin.record()
        view = random.choice(train)
        image, _ = render(view, gaussians)
        difference = (image - view.image).abs().mean()
        ssim = fused_ssim(image[None], view.image[None]) if fused_ssim else 1 - difference
        loss = 0.8 * difference + 0.2 * (1 - ssim)
        loss.backward()
        end.record()
        torch.cuda.synchronize()
        assert begin.elapsed_time(end) >= 0
        with torch.no_grad():
            if iteration in args.save_iterations:
                gaussians.save(os.path.join(args.model_path, "point_cloud", f"iteration_{iteration}"))
            late = args.densify_from_iter < iteration < args.densify_until_iter
            if late and iteration % args.densification_interval == 0:
                gaussians.densify(0.1)
            elif iteration < args.iterations:
                gaussians.optimizer.step()
                gaussians.optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    main()
