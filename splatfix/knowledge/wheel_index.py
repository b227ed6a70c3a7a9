"""PyTorch's own wheel index: the address of a tag, the pip command, and tags as CUDA versions."""

from __future__ import annotations

from collections.abc import Mapping

from splatfix.knowledge._tables import table

COMPANIONS = ("torchvision", "torchaudio")
"""What is compiled against one build of torch and published beside it."""


def index_url(tag: str) -> str:
    """The wheel index of a tag (``cu128``, ``cpu``)."""
    return str(table("torch_releases")["index_url"]).format(tag=tag)


def pip_words(torch_version: str, tag: str, *, also: tuple[str, ...] = ()) -> tuple[str, ...]:
    """What follows ``pip install`` for a build.

    ``torch_version`` is ``2.9.1``, or ``2.9`` for its newest patch. ``also`` names packages of the same index
    (``torchvision``), whose versions pip then works out.
    """
    plain = torch_version.partition("+")[0]
    if plain.count(".") < 2:
        plain += ".*"
    return (f"torch=={plain}", *also, "--index-url", index_url(tag))


def replacing_words(
    torch_version: str, tag: str, installed: Mapping[str, str]
) -> tuple[str, tuple[str, ...]]:
    """(version, what follows ``pip install``) to replace what is installed by another build and its companions.

    Within one release every package is named by its local version (``torch==2.8.0+cu126``), because pip would call
    ``torch==2.8.*`` satisfied by the build that is there; for another release pip works the companions out itself.

    Args:
        torch_version: ``2.8.1``, or ``2.8.*`` for any patch.
        installed: versions of torch, torchvision and torchaudio that are there, with their local parts.
    """
    there = installed.get("torch", "").partition("+")[0]
    wanted = torch_version.removesuffix(".*")
    also = [name for name in COMPANIONS if name in installed]
    if not there or there.split(".")[:2] != wanted.split(".")[:2]:
        return torch_version, pip_words(torch_version, tag, also=tuple(also))
    version = there if torch_version.endswith("*") else torch_version
    pins = [f"torch=={version}+{tag}"]
    # a companion's patch goes with torch's, so that of another patch is left to pip
    same = version == there
    pins += [f"{name}=={installed[name].partition('+')[0]}+{tag}" if same else name for name in also]
    return version, (*pins, "--index-url", index_url(tag))


def tag_of_cuda(cuda: tuple[int, int]) -> str:
    """(12, 8) -> ``cu128``."""
    return f"cu{cuda[0]}{cuda[1]}"


def cuda_of_tag(tag: str) -> tuple[int, int] | None:
    """``cu128`` -> (12, 8); None for ``cpu``, ``rocm6.4`` and the like."""
    digits = tag.removeprefix("cu")
    return (int(digits[:-1]), int(digits[-1])) if tag.startswith("cu") and digits.isdigit() else None
