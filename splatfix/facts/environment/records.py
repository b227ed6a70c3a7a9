"""What a wheel installed, by the ``RECORD`` that its installer wrote beside it: each file with its digest and size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from splatfix.facts.environment.packages import record_of
from splatfix.facts.system.live import System
from splatfix.model import AlteredFile, Distribution, SplatPackage

_SHA256 = "sha256="
_LISTED = {
    "torch": (
        *("torch/__init__.py", "torch/version.py", "torch/functional.py", "torch/nn/functional.py"),
        *("torch/_tensor.py", "torch/autograd/function.py", "torch/optim/", "torch/utils/cpp_extension.py"),
        *("torch/lib/", "torch/_C."),
    ),
    "numpy": ("numpy/__init__.py", "numpy/_core/_multiarray_umath.", "numpy/core/_multiarray_umath."),
    # which an edit of splatfix's mends (patches/)
    "nerfstudio": ("nerfstudio/engine/trainer.py", "nerfstudio/utils/eval_utils.py"),
    "pillow": (
        *("PIL/Image.py", "PIL/ImageFile.py", "PIL/ImageOps.py", "PIL/JpegImagePlugin.py"),
        *("PIL/PngImagePlugin.py", "PIL/_imaging."),
    ),
}
"""How the files begin that decide what a training computes, or that people edit by hand; of a splatting package it is all."""
_LOOKED_AT = re.compile(r"\.(py|so|pyd|dll),sha256=")


class RecordedFile(Struct, frozen=True):
    """A line of a RECORD (PEP 376)."""

    path: str
    """Relative to the site-packages folder, with forward slashes."""
    sha256: str
    """In base64 as the RECORD spells it; "" where it has none, or one by another algorithm."""
    size: int | None
    """In bytes; None where it does not say."""


def recorded_files(lines: Iterable[str]) -> Iterator[RecordedFile]:
    """The files of lines of a RECORD, those with a comma in their names left out."""
    for line in lines:
        # csv would take ten times as long for the 15,000 lines of torch's
        path, _, rest = line.partition(",")
        digest, _, size = rest.partition(",")
        if path and not path.startswith('"'):
            sha256 = digest.removeprefix(_SHA256) if digest.startswith(_SHA256) else ""
            yield RecordedFile(path, sha256, int(size) if size.isdecimal() else None)


def altered_files(
    system: System, distributions: Iterable[Distribution], packages: Iterable[SplatPackage]
) -> Iterator[AlteredFile]:
    """Those of the files that matter most that differ from what was installed: sources by their digest, native files, which
    may have gigabytes, by their size."""
    splatting = {name for package in packages for name in package.distributions}
    for distribution in distributions:
        listed = _LISTED.get(distribution.name.lower(), ())
        if distribution.editable or not (listed or distribution.name in splatting):
            continue
        lines = record_of(system, distribution).splitlines()
        if listed:
            lines = [line for line in lines if line.startswith(listed)]
        for item in recorded_files(filter(_LOOKED_AT.search, lines)):
            is_source = item.path.endswith(".py")
            fingerprint = system.fingerprint(f"{distribution.location}/{item.path}", is_source)
            digest, _, size = (fingerprint or "").partition(",")
            difference = ""
            if fingerprint == "":
                difference = "not there"
            elif fingerprint and item.size is not None and size != str(item.size):
                difference = f"{size} bytes, not {item.size}"
            elif fingerprint and is_source and digest != f"{_SHA256}{item.sha256}":
                difference = "another content"
            if difference:
                yield AlteredFile(distribution.name, distribution.version, item.path, difference)
