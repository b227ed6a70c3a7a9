"""What ``splatfix dockerfile`` plans, as data: an image that builds a checkout's extensions, and one that runs them."""

from splatfix.context.model import Rejected
from splatfix.core.data import dataclass
from splatfix.knowledge import Arch, Auto
from splatfix.plan.steps import Reason


@dataclass(frozen=True)
class ImageRequest:
    """What was asked for."""

    checkout: str
    """Its folder, resolved."""
    targets: tuple[Arch | Auto, ...]
    toolkit: str = "image"
    """``image``: the builder starts from NVIDIA's image with the compiler; ``wheels``: from the distribution's own, with the
    compiler from PyPI wheels."""
    torch: str = ""
    """``2.11.0``, ``2.11.0+cu130``, ``2.11``; "" for the newest that serves."""
    jobs: int = 4
    """Compilers at once, as far as the build argument does not say otherwise."""


@dataclass(frozen=True)
class ImageSource:
    """One extension that is built."""

    name: str
    path: str
    """Relative to the checkout, with '/'; ``.`` for the checkout itself."""
    edits: tuple[str, ...] = ()
    """What is edited in a scratch copy, and why, each as a sentence."""


@dataclass(frozen=True)
class ImagePlan:
    """Everything that the files are written from. All of it is either from splatfix's tables or was held against a pattern."""

    stack: str
    """Key of the recognised stack; "" for none."""
    name: str
    """For people."""
    targets: tuple[Arch, ...]
    torch: str
    """What pip is asked for: ``2.15.*``, ``2.11.0``."""
    torch_tag: str
    torch_index: str
    cuda: str
    """``13.0``"""
    python: str
    """``3.12``, of the image it was planned for."""
    toolkit: str
    """``image`` or ``wheels``."""
    build_image: str
    run_image: str
    machine: str
    """``x86_64`` or ``aarch64``: of the machine that builds and runs it."""
    driver: str
    """The oldest NVIDIA driver that it runs under; "" where the tables do not say."""
    arch_list: str
    """TORCH_CUDA_ARCH_LIST"""
    sources: tuple[ImageSource, ...]
    """In build order."""
    copies: tuple[str, ...]
    """Folders of the checkout that the build needs."""
    marker: str
    """A file of the checkout that is there, relative to it."""
    build_tools: tuple[str, ...] = ()
    """For pip, before anything is built."""
    requirements: tuple[str, ...] = ()
    """For pip, besides torch and torchvision."""
    toolkit_requirements: tuple[str, ...] = ()
    """For pip; () with a toolkit from an image."""
    toolkit_links: tuple[tuple[str, str], ...] = ()
    """Below the toolkit's root: path, and what it points to."""
    toolkit_folder: str = ""
    """Of the root, in what pip unpacks."""
    run_packages: tuple[str, ...] = ()
    """Packages of the distribution for the runtime stage."""
    jobs: int = 4
    revision: str = ""
    """Of the checkout; "" where git does not tell."""
    remote: str = ""
    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()
    """What is not known, or left to the user, each as a sentence."""
    rejected: tuple[Rejected, ...] = ()


@dataclass(frozen=True)
class ImageFile:
    """One file to write."""

    name: str
    """Relative to the folder of the Dockerfile."""
    content: str
