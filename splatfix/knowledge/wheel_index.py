"""PyTorch's own wheel index: the address of a tag, the pip command, and tags as CUDA versions."""

from __future__ import annotations

from splatfix.knowledge._tables import table


def index_url(tag: str) -> str:
    """The wheel index of a tag (``cu128``, ``cpu``)."""
    return str(table("torch_releases")["index_url"]).format(tag=tag)


def pip_command(torch_version: str, tag: str, *, also: tuple[str, ...] = (), pip: str = "pip") -> str:
    """The command that installs a build; safe to run as it is on Linux and Windows.

    ``torch_version`` is ``2.9.1``, or ``2.9`` for its newest patch. ``also`` names packages of the same index
    (``torchvision``), whose versions pip then works out.
    """
    plain = torch_version.partition("+")[0]
    if plain.count(".") < 2:
        plain += ".*"
    wanted = f'"torch=={plain}"' if "*" in plain else f"torch=={plain}"
    return " ".join([pip, "install", wanted, *also, "--index-url", index_url(tag)])


def tag_of_cuda(cuda: tuple[int, int]) -> str:
    """(12, 8) -> ``cu128``."""
    return f"cu{cuda[0]}{cuda[1]}"


def cuda_of_tag(tag: str) -> tuple[int, int] | None:
    """``cu128`` -> (12, 8); None for ``cpu``, ``rocm6.4`` and the like."""
    digits = tag.removeprefix("cu")
    return (int(digits[:-1]), int(digits[-1])) if tag.startswith("cu") and digits.isdigit() else None
