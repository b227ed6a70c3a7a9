"""A scene of a thousand photos, checked: against Pillow opening every photo for its size, and pycolmap reading the model.

    python tests/benchmarks/bench_scenes.py [--photos N] [--json FILE] [--rounds N]

The photos are copies of a bundled one, the model has 10,000 keypoints an image, as COLMAP leaves them. Both sides are started in
turns in the same run, each in a process of its own; the median of the rounds counts.
"""

import argparse
import shutil
import statistics
import struct
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import measuring
from measuring import conditions, keep, run

SAMPLE = (
    Path(__file__).resolve().parents[2] / "smoke_trainer" / "samples" / "fruit" / "images" / "view_000.png"
)
KEYPOINTS = 10_000
PEER = """
import sys
from pathlib import Path
import pycolmap
from PIL import Image
scene = Path(sys.argv[1])
sizes = {}
for path in (scene / "images").iterdir():
    with Image.open(path) as photo:
        sizes[path.name] = photo.size
print(len(sizes), pycolmap.Reconstruction(scene / "sparse" / "0").num_images())
"""


def write_scene(folder: Path, photos: int) -> None:
    """A scene of that many photos."""
    (folder / "images").mkdir(parents=True)
    model = folder / "sparse" / "0"
    model.mkdir(parents=True)
    camera = struct.pack("<QiiQQ4d", 1, 1, 1, 160, 120, 150, 150, 80, 60)
    (model / "cameras.bin").write_bytes(camera)
    keypoints = struct.pack("<Q", KEYPOINTS) + struct.pack("<ddq", 1.0, 1.0, -1) * KEYPOINTS
    with (model / "images.bin").open("wb") as images:
        images.write(struct.pack("<Q", photos))
        for number in range(photos):
            name = f"photo_{number:05}.png"
            shutil.copy(SAMPLE, folder / "images" / name)
            pose = struct.pack("<i7di", number + 1, 1, 0, 0, 0, 0.01 * number, 0, 3, 1)
            images.write(pose + name.encode() + b"\0" + keypoints)
    points = (struct.pack("<Q3d3Bd", n, n % 7, n % 5, 1, 9, n % 250, 9, 0) + bytes(8) for n in range(5000))
    (model / "points3D.bin").write_bytes(struct.pack("<Q", 5000) + b"".join(points))


def main(arguments: Sequence[str] | None = None) -> int:
    parser: argparse.ArgumentParser = measuring.parser(__doc__, rounds=5)
    parser.add_argument("--photos", type=int, default=1000)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        scene = Path(folder) / "scene"
        write_scene(scene, options.photos)
        ours = [sys.executable, "-m", "splatfix", "scenes", "check", str(scene), "--json"]
        peer = [sys.executable, "-c", PEER, str(scene)]
        run(peer)
        # 1 is what check says of photos that are there more than once
        pairs = [(run(ours, (0, 1)).seconds, run(peer).seconds) for _ in range(options.rounds)]
    mine, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(first / second for first, second in pairs)
    print(
        f"{options.photos} photos: {mine:.2f} s; headers by Pillow and model by pycolmap {theirs:.2f} s; ratio {ratio:.2f}"
    )
    result = {"photos": options.photos, "seconds": mine, "peer_seconds": theirs, "ratio": ratio}
    keep({**conditions("pillow", "pycolmap"), **result}, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
