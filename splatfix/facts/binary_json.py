"""What the binary reader said of a file, as small JSON: equal containers are counted, offsets and sizes left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from splatfix.binaries import Binary, BinaryError, EntryKind, FatContainer, FatEntry

_RELOCATABLE = "__nv_relfatbin"


def packed(binary: Binary) -> dict[str, Any]:
    """JSON-able data of a file; containers with the same device code stand once, with their number."""
    counts: dict[tuple[bool, tuple[str, ...]], int] = {}
    for container in binary.containers:
        key = (container.relocatable, tuple(_words(entry) for entry in container.entries))
        counts[key] = counts.get(key, 0) + 1
    return {
        "format": binary.format,
        "machine": binary.machine,
        "size": binary.size,
        "needed": list(binary.needed),
        "rpath": list(binary.rpath),
        "soname": binary.soname,
        "delay_needed": list(binary.delay_needed),
        "containers": [
            {"code": list(code), "count": number, **({"relocatable": True} if relocatable else {})}
            for (relocatable, code), number in counts.items()
        ],
    }


def unpacked(path: str, document: Mapping[str, Any]) -> Binary:
    """The file again, as far as facts are drawn from it.

    Raises:
        BinaryError: when the document is not what :func:`packed` makes.
    """
    try:
        containers = tuple(
            FatContainer(
                0, _RELOCATABLE if item.get("relocatable") else ".nv_fatbin", tuple(map(_entry, item["code"]))
            )
            for item in document.get("containers", ())
            for _ in range(item.get("count", 1))
        )
        return Binary(
            path=path,
            format=document.get("format", "elf"),
            machine=document.get("machine", "x86_64"),
            size=document.get("size", 0),
            containers=containers,
            needed=tuple(document.get("needed", ())),
            rpath=tuple(document.get("rpath", ())),
            soname=document.get("soname"),
            delay_needed=tuple(document.get("delay_needed", ())),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BinaryError(f"the recording of {path} is damaged: {error}") from error


def _words(entry: FatEntry) -> str:
    """``sass sm_90a``, ``ptx sm_90 8.7``."""
    version = f" {entry.ptx_version[0]}.{entry.ptx_version[1]}" if entry.ptx_version else ""
    return f"{entry.kind.value} {entry.arch}{version}"


def _entry(words: str) -> FatEntry:
    kind, arch, *version = words.split()
    numbers = tuple(int(n) for n in version[0].split(".")) if version else None
    return FatEntry(EntryKind(kind), arch, (numbers[0], numbers[1]) if numbers else None, None, 0, 0, False)
