"""Prints what torch says of the GPUs that it sees, as JSON in the last line."""

import json

import torch

gpus = []
# CUDA's own count: torch's reads NVML instead; a rehearsal's torch may have no CUDA
count = getattr(torch._C, "_cuda_getDeviceCount", torch.cuda.device_count)
for index in range(count() if torch.cuda.is_available() else 0):
    about = torch.cuda.get_device_properties(index)
    gpu = {"name": about.name, "cc": f"{about.major}.{about.minor}", "memory": about.total_memory}
    gpus.append({**gpu, "uuid": str(getattr(about, "uuid", ""))})  # torch 2.4 and newer tell it
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "gpus": gpus}))
