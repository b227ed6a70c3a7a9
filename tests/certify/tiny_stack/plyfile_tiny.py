"""PLY files of float32 properties."""

import numpy as np


def write(path, values):
    names = "".join(f"property float p{number}\n" for number in range(values.shape[1]))
    head = f"ply\nformat binary_little_endian 1.0\nelement vertex {len(values)}\n{names}end_header\n"
    with open(path, "wb") as file:
        file.write(head.encode() + values.astype("<f4").tobytes())


def read(path):
    with open(path, "rb") as file:
        head, _, body = file.read().partition(b"end_header\n")
    count = int(head.split(b"element vertex ")[1].split()[0])
    return np.frombuffer(body, dtype="<f4").reshape(count, -1).copy()
