"""Holds so many MiB on the GPU for so many seconds: allocate MIB SECONDS."""

import sys
import time

import torch


def main() -> None:
    held = torch.ones(int(sys.argv[1]) << 18, dtype=torch.float32, device="cuda")
    torch.cuda.synchronize()
    time.sleep(float(sys.argv[2]))
    print(f"held {held.numel() * held.element_size() >> 20} MiB")


if __name__ == "__main__":
    main()
