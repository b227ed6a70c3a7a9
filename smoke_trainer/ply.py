"""PLY files: reads initial points, writes and reads Gaussians in the property order that viewers expect."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Collection, Dict, List, Tuple

import numpy as np

from smoke_trainer.data.files import MAX_POINTS, Content, content_of, too_large
from smoke_trainer.data.scene import PointCloud
from smoke_trainer.errors import SceneError

Array = np.ndarray

_TYPES = {
    **dict.fromkeys(("char", "int8"), "i1"),
    **dict.fromkeys(("uchar", "uint8"), "u1"),
    **dict.fromkeys(("short", "int16"), "i2"),
    **dict.fromkeys(("ushort", "uint16"), "u2"),
    **dict.fromkeys(("int", "int32"), "i4"),
    **dict.fromkeys(("uint", "uint32"), "u4"),
    **dict.fromkeys(("float", "float32"), "f4"),
    **dict.fromkeys(("double", "float64"), "f8"),
}
_ORDERS = {"binary_little_endian": "<", "binary_big_endian": ">", "ascii": "<"}
_MAX_HEADER = 65536
_LONGEST_NUMBER = 32  # bytes of a text, on average
MAX_REST = 24  # higher coefficients per channel: spherical harmonics of degree four


def _damaged(path: Path, fault: str) -> SceneError:
    return SceneError(
        f"{path}: {fault}", "the file is truncated, or is not a PLY file", "write or copy the file again"
    )


def _parse_header(path: Path, data: Content) -> Tuple[str, int, List[Tuple[str, str]], int]:
    """(format, number of vertices, [(name, numpy type)], offset of the first byte after the header)."""
    end = data.find(b"end_header", 0, _MAX_HEADER)
    if data[:3] != b"ply" or end < 0:
        raise _damaged(path, "no PLY header")
    body = data.find(b"\n", end) + 1
    form, count, element = "", -1, ""
    fields: List[Tuple[str, str]] = []
    for line in data[:end].decode("ascii", errors="replace").splitlines():
        keyword, *values = line.split() or [""]
        if keyword == "format" and values:
            form = values[0]
        elif keyword == "element" and len(values) == 2:
            element, number = values
            if count < 0 and element != "vertex":
                raise _damaged(path, f"its first element is {element!r}, not 'vertex'")
            # Python reads no number of thousands of digits
            if element == "vertex" and number.isdigit() and len(number) < 20:
                count = int(number)
        elif keyword == "property" and element == "vertex":
            if len(values) != 2 or values[0] not in _TYPES or values[1] in dict(fields):
                raise _damaged(path, f"cannot read the property line {line!r}")
            fields.append((values[1], _TYPES[values[0]]))
    if form not in _ORDERS or count < 0 or not fields or body == 0:
        raise _damaged(path, "its header does not describe vertices")
    if count > MAX_POINTS:
        raise too_large(path, f"{MAX_POINTS} vertices")
    return form, count, fields, body


def read_vertices(path: Path, names: Collection[str]) -> Dict[str, Array]:
    """The vertex properties of these names that the file has, each [N]; raises SceneError for a damaged file."""
    data = content_of(path)
    form, count, fields, body = _parse_header(path, data)
    short = _damaged(
        path, f"the header states {count} vertices, the file has fewer, or values that are not numbers"
    )
    if form == "ascii":
        numbers = count * len(fields)
        if numbers > 20 * MAX_POINTS:
            raise too_large(path, f"{20 * MAX_POINTS} numbers")
        end = len(data)
        if end - body > _LONGEST_NUMBER * numbers:  # other elements follow: up to a whole line
            end = data.find(b"\n", body + _LONGEST_NUMBER * numbers)
        with warnings.catch_warnings():
            # Where something is no number NumPy 2 raises; before that it warns, and ends there.
            warnings.simplefilter("ignore")
            try:
                table = np.fromstring(data[body:end], sep=" ")
            except ValueError:
                raise short from None
        if len(table) < numbers:
            raise short
        table = table[:numbers].reshape(count, len(fields))
        with np.errstate(invalid="ignore"):  # a number too large for its type; points far out are left out
            return {
                name: table[:, at].astype(kind) for at, (name, kind) in enumerate(fields) if name in names
            }
    layout = np.dtype([(name, _ORDERS[form] + kind) for name, kind in fields])
    if len(data) - body < count * layout.itemsize:
        raise short
    vertices = np.frombuffer(data, dtype=layout, count=count, offset=body)
    return {name: vertices[name].astype(kind) for name, kind in fields if name in names}


def read_points(path: Path) -> PointCloud:
    """Initial points: x y z, and red green blue (0..255; gray without them)."""
    columns = read_vertices(path, {"x", "y", "z", "red", "green", "blue"})
    if not all(axis in columns for axis in "xyz"):
        raise _damaged(path, "it has no x, y, z")
    xyz = np.stack([columns[axis] for axis in "xyz"], axis=1).astype(np.float32)
    rgb = np.full(xyz.shape, 128, dtype=np.uint8)
    if all(channel in columns for channel in ("red", "green", "blue")):
        rgb = np.stack([columns[channel] for channel in ("red", "green", "blue")], axis=1).astype(np.uint8)
    sound = (np.abs(xyz) < 1e15).all(axis=1)  # not NaN, and its square still is a float32
    return PointCloud(xyz[sound], rgb[sound])


def gaussian_properties(rest: int) -> List[str]:
    """The property names in Inria's order, for `rest` higher SH coefficients per channel."""
    names = ["x", "y", "z", "nx", "ny", "nz"]
    names += [f"f_dc_{index}" for index in range(3)]
    names += [f"f_rest_{index}" for index in range(3 * rest)]
    names += ["opacity"] + [f"scale_{index}" for index in range(3)] + [f"rot_{index}" for index in range(4)]
    return names


def write_gaussians(path: Path, groups: Dict[str, Array]) -> None:
    """Write raw (not activated) parameters: xyz [N,3], f_dc [N,1,3], f_rest [N,K,3], opacity [N,1], scaling, rotation.

    f_rest is stored channel by channel (all red coefficients first), as viewers expect.
    """
    count = len(groups["xyz"])
    rest = groups["f_rest"].transpose(0, 2, 1).reshape(count, -1)
    columns = [groups["xyz"], np.zeros((count, 3)), groups["f_dc"].reshape(count, 3), rest]
    columns += [groups["opacity"], groups["scaling"], groups["rotation"]]
    table = np.concatenate(columns, axis=1).astype("<f4")
    names = gaussian_properties(groups["f_rest"].shape[1])
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {count}"]
    header += [f"property float {name}" for name in names] + ["end_header", ""]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("\n".join(header).encode() + table.tobytes())


def read_gaussians(path: Path) -> Dict[str, Array]:
    """The inverse of `write_gaussians`; raises SceneError where a property is missing."""
    columns = read_vertices(path, set(gaussian_properties(MAX_REST)))
    rest = sum(name.startswith("f_rest_") for name in columns)
    missing = [
        name for name in gaussian_properties(rest // 3) if name not in columns and not name.startswith("n")
    ]
    if missing or rest % 3:
        raise _damaged(path, f"it has no {', '.join(missing[:4]) or 'complete f_rest'}: not a Gaussian model")

    def gather(prefix: str, number: int) -> Array:
        if number == 0:
            return np.zeros((len(columns["x"]), 0), dtype=np.float32)
        return np.stack([columns[f"{prefix}_{index}"] for index in range(number)], axis=1).astype(np.float32)

    xyz = np.stack([columns[axis] for axis in "xyz"], axis=1).astype(np.float32)
    f_rest = gather("f_rest", rest).reshape(len(xyz), 3, rest // 3).transpose(0, 2, 1)
    return {
        "xyz": xyz,
        "f_dc": gather("f_dc", 3)[:, None, :],
        "f_rest": np.ascontiguousarray(f_rest),
        "opacity": columns["opacity"].astype(np.float32)[:, None],
        "scaling": gather("scale", 3),
        "rotation": gather("rot", 4),
    }
