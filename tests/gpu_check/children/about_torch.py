"""Prints what torch says of the GPUs that it sees, as JSON in the last line."""

import json

import torch


def main() -> None:
    cuda = torch.cuda
    usable = cuda.is_available()
    gpus = []
    for index in range(cuda.device_count() if usable else 0):
        about = cuda.get_device_properties(index)
        gpus.append(
            {
                "name": about.name,
                "cc": f"{about.major}.{about.minor}",
                "memory": about.total_memory,
                "uuid": str(getattr(about, "uuid", "")),
            }
        )
    answer = {"torch": torch.__version__, "cuda": torch.version.cuda, "available": usable, "gpus": gpus}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
