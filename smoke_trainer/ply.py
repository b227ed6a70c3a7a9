"""PLY files: reads initial points, writes and reads Gaussians in the property order that viewers expect."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np

from smoke_trainer.data.camera import Array
from smoke_trainer.data.files import Content, content_of
from smoke_trainer.data.scene import PointCloud
from smoke_trainer.errors import Damage

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
_ORDERS = {"binary_little_endian": "<", "binary_big_endian": ">", "ascii": ""}
_MAX_HEADER = 65536


def _parse_header(path: Path, data: Content) -> Tuple[str, int, np.dtype[Any], int]:
    """(order of bytes or "" of a text, number of vertices, their properties, offset of the first byte after the header)."""
    end = data.find(b"end_header", 0, _MAX_HEADER)
    body = data.find(b"\n", end) + 1
    order, count, element = "", -1, ""
    fields: List[Tuple[str, str]] = []
    try:
        if data[:3] != b"ply" or end < 0 or not body:
            raise ValueError
        for line in data[:end].decode("ascii", errors="replace").splitlines():
            keyword, *values = line.split() or [""]
            if keyword == "format":
                order = _ORDERS[values[0]]
            elif keyword == "element":
                element, number = values
                if element == "vertex":
                    count = int(number)
            elif keyword == "property" and element == "vertex":
                kind, name = values
                fields.append((name, order + _TYPES[kind]))
            if element and count < 0:  # vertices come first
                raise ValueError
        layout = np.dtype(fields)
    except (ValueError, KeyError, IndexError):
        raise Damage(path, "has no PLY header that begins with vertices") from None
    if count < 0 or not fields:
        raise Damage(path, "has no vertices in its PLY header")
    return order, count, layout, body


def read_vertices(path: Path) -> Dict[str, Array]:
    """The vertices' properties by name, each [N]; raises Damage."""
    data = content_of(path)
    order, count, layout, body = _parse_header(path, data)
    names = layout.names or ()
    short = Damage(path, f"has fewer than the {count} vertices of its header, or values that are not numbers")
    # each takes a byte at least: what no memory has is not asked for
    if (len(data) - body) < count * (layout.itemsize if order else 1):
        raise short
    if order:
        vertices = np.frombuffer(data, dtype=layout, count=count, offset=body)
        return {name: vertices[name].astype(layout[name].newbyteorder("=")) for name in names}
    lines = data[body:].split(b"\n", count)[:count]  # other elements follow
    with warnings.catch_warnings():
        # Where something is no number NumPy 2 raises; before that it warns, and ends there.
        warnings.simplefilter("ignore")
        try:
            table = np.fromstring(b" ".join(lines), sep=" ")
        except ValueError:
            raise short from None
    if len(table) != count * len(names):
        raise short
    with np.errstate(invalid="ignore"):  # a number too large for its type; points far out are left out
        columns = table.reshape(count, len(names)).T
        return {name: column.astype(layout[name]) for name, column in zip(names, columns)}


def read_points(path: Path) -> PointCloud:
    """Initial points: x y z, and red green blue (0..255; gray without them)."""
    columns = read_vertices(path)
    if not all(axis in columns for axis in "xyz"):
        raise Damage(path, "has vertices without x, y, z")
    xyz = np.stack([columns[axis] for axis in "xyz"], axis=1).astype(np.float32)
    rgb = np.full(xyz.shape, 128, dtype=np.uint8)
    if all(channel in columns for channel in ("red", "green", "blue")):
        rgb = np.stack([columns[channel] for channel in ("red", "green", "blue")], axis=1).astype(np.uint8)
    sound = (np.abs(xyz) < 1e15).all(axis=1)  # not NaN, and its square still is a float32
    return PointCloud(xyz[sound], rgb[sound])


def gaussian_properties(rest: int) -> Dict[str, List[str]]:
    """The property names of each group in Inria's order, for `rest` higher SH coefficients per channel."""
    return {
        "xyz": ["x", "y", "z"],
        "normals": ["nx", "ny", "nz"],
        "f_dc": [f"f_dc_{index}" for index in range(3)],
        "f_rest": [f"f_rest_{index}" for index in range(3 * rest)],
        "opacity": ["opacity"],
        "scaling": [f"scale_{index}" for index in range(3)],
        "rotation": [f"rot_{index}" for index in range(4)],
    }


def write_gaussians(path: Path, groups: Dict[str, Array]) -> None:
    """Write raw (not activated) parameters: xyz [N,3], f_dc [N,1,3], f_rest [N,K,3], opacity [N,1], scaling, rotation.

    f_rest is stored channel by channel (all red coefficients first), as viewers expect.
    """
    count = len(groups["xyz"])
    properties = gaussian_properties(groups["f_rest"].shape[1])
    columns = {**groups, "normals": np.zeros((count, 3)), "f_rest": groups["f_rest"].transpose(0, 2, 1)}
    table = np.concatenate([columns[group].reshape(count, -1) for group in properties], axis=1)
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {count}"]
    header += [f"property float {name}" for names in properties.values() for name in names]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("\n".join([*header, "end_header", ""]).encode() + table.astype("<f4").tobytes())


def read_gaussians(path: Path) -> Dict[str, Array]:
    """The inverse of `write_gaussians`; raises Damage where a property is missing."""
    columns = read_vertices(path)
    count, rest = len(next(iter(columns.values()))), sum(name.startswith("f_rest_") for name in columns) // 3
    properties = gaussian_properties(rest)
    del properties["normals"]
    missing = [name for names in properties.values() for name in names if name not in columns]
    if missing:
        raise Damage(path, f"has no {missing[0]}: it is no Gaussian model")
    groups: Dict[str, Array] = {}
    for group, names in properties.items():
        rows = np.array([columns[name] for name in names], dtype=np.float32).reshape(len(names), count)
        groups[group] = np.ascontiguousarray(rows.T)
    f_rest = groups["f_rest"].reshape(count, 3, rest).transpose(0, 2, 1)
    return {**groups, "f_dc": groups["f_dc"][:, None, :], "f_rest": np.ascontiguousarray(f_rest)}
