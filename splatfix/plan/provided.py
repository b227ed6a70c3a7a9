"""The CUDA toolkit that splatfix can unpack from PyPI wheels into its own cache: what it will be, and whether it is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from splatfix.core.resources import user_cache
from splatfix.facts import Toolkit, Torch, is_file
from splatfix.knowledge.host_compilers import limits
from splatfix.knowledge.toolkits import Recipe, cuda_of_torch, provision, recipe

OWN_TOOLKIT = ("splatfix's own cache",)
MARKER = "splatfix-toolkit.json"
"""Written last: a folder without it is not whole."""

# The compiler's own parts are versioned apart from it, and the newest do not fit: nvvm 13.5 writes PTX that ptxas 13.0
# refuses ("Unsupported .version 9.5; current version is '9.0'", seen with cuda-toolkit 13.0.2 on 2026-11-20).
KEPT_IN_STEP = ("nvidia-nvvm", "nvidia-cuda-crt", "nvidia-nvjitlink")


@dataclass(frozen=True)
class Provided:
    """One toolkit of ours."""

    folder: str
    """What pip installs into."""
    toolkit: Toolkit
    requirements: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    """Links to make below the toolkit's root: path, and what it points to."""
    unpacked_gb: float
    there: bool
    """It lies in the cache, whole."""


def toolkit_recipe(torch: Torch) -> Recipe | None:
    """The toolkit wheels of torch's CUDA, in the very version that this torch depends on where that is known."""
    minor = ".".join((torch.cuda or "").split(".")[:2])
    exact = cuda_of_torch(torch.version) or ""
    return recipe(exact if exact.startswith(f"{minor}.") else minor) if minor else None


def toolkit_to_be(
    cuda: str, root: str, found_via: tuple[str, ...] = (), nvcc: str | None = "nvcc"
) -> Toolkit:
    """A toolkit (``13.0``) that is not there yet; which compilers it will accept, the tables say."""
    bounds = limits(tuple(int(n) for n in cuda.split(".")))
    return Toolkit(
        root=root,
        version=cuda,
        found_via=found_via,
        nvcc=nvcc,
        gcc_max=bounds.gcc_max_major if bounds else None,
        clang_max=bounds.clang_max_major if bounds else None,
    )


def provided_toolkit(torch: Torch, system: str, cache: Path | None = None) -> Provided | None:
    """The toolkit for this torch from PyPI wheels; None where there are none (CUDA 12 and older, macOS, Windows)."""
    found = toolkit_recipe(torch) if system == "linux" else None
    if torch.cuda is None or found is None:
        return None
    minor = ".".join(torch.cuda.split(".")[:2])
    folder = (cache or user_cache()) / "toolkits" / f"cuda-{minor}"
    root = folder / found.cuda_home
    return Provided(
        folder=str(folder),
        toolkit=toolkit_to_be(minor, str(root), OWN_TOOLKIT, str(root / "bin" / "nvcc")),
        requirements=(found.requirement, *(f"{name}=={minor}.*" for name in KEPT_IN_STEP)),
        links=tuple((fix.path, fix.links_to) for fix in found.fixes if fix.path),
        unpacked_gb=found.unpacked_gb,
        there=is_file(folder / MARKER),
    )


def why_none_provided(torch: Torch, system: str) -> str:
    """Why ``--provide-toolkit`` can do nothing for this torch."""
    major = int((torch.cuda or "0").partition(".")[0])
    offer = provision(major)
    if system != "linux" or offer is None:
        return f"--provide-toolkit has no toolkit of CUDA {torch.cuda} for {system}."
    return f"--provide-toolkit cannot help: PyPI has no compiler of CUDA {major} ({offer.holds})."
