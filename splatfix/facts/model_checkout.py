"""The words for a stack's checkout: what its files say, as data. Never a judgement."""

from __future__ import annotations

from dataclasses import dataclass

from splatfix.facts.source import Source


@dataclass(frozen=True)
class Shadow:
    """A module or package in a folder that Python searches first, of the name of an installed one."""

    module: str
    path: str
    native: bool
    """It holds compiled modules itself (built in place), so that importing it can work."""


@dataclass(frozen=True)
class Submodule:
    """One entry of a checkout's .gitmodules."""

    path: str
    url: str
    empty: bool
    """Its folder is missing or holds nothing."""
    commit: str | None = None
    """The commit that is checked out in it, when git wrote it down."""


@dataclass(frozen=True)
class Pin:
    """One requirement that a checkout writes down."""

    file: str
    name: str
    spec: str
    """``==1.12.1``, ``>=2.0`` or "" for any version."""


@dataclass(frozen=True)
class CodeMatch:
    """A place in an extension's C++ or CUDA source on which builds are known to break."""

    kind: str
    """``cub-max``, ``no-cstdint``, ``no-cfloat`` or ``no-thrust-sequence``."""
    file: str
    line: int
    text: str


@dataclass(frozen=True)
class CheckoutSource:
    """One extension source inside a checkout."""

    path: str
    """Relative to the checkout."""
    source: Source
    cxx_flags: tuple[str, ...] = ()
    """Flags in setup.py that set a C++ standard, for either compiler."""
    own_path_in_flags: bool = False
    """nvcc is handed the source's own absolute path, as part of an include flag."""
    passages: tuple[CodeMatch, ...] = ()


@dataclass(frozen=True)
class GuardedImport:
    """An import whose failure the code hides, and goes on without."""

    file: str
    line: int
    module: str
    names: tuple[str, ...]
    catches: str
    """``everything``, or the exceptions that are named."""


@dataclass(frozen=True)
class RenderCall:
    """Where a checkout calls a rasterizer, and with what."""

    file: str
    line: int
    function: str
    """The function that calls; the calls in it are each other's alternatives."""
    module: str
    settings: tuple[str, ...] = ()
    """Keywords of the Settings call."""
    settings_positional: int = 0
    forward: tuple[str, ...] = ()
    """Keywords of the rasterizer's call."""
    unpacks: int | None = None
    """How many values it takes apart; None when it keeps them together."""


@dataclass(frozen=True)
class Checkout:
    """A stack's folder, read as text."""

    folder: str
    paths: tuple[str, ...]
    """Names by which a stack is recognised: the upper two levels, as far as they are code."""
    remote: str = ""
    """Where it was cloned from, without credentials."""
    commit: str | None = None
    branch: str = ""
    submodules: tuple[Submodule, ...] = ()
    pins: tuple[Pin, ...] = ()
    sources: tuple[CheckoutSource, ...] = ()
    imports: tuple[str, ...] = ()
    """Top-level names of splatting extensions that its Python files import, and fail without."""
    guarded: tuple[GuardedImport, ...] = ()
    calls: tuple[RenderCall, ...] = ()
    shadows: tuple[Shadow, ...] = ()
    colmap_options: tuple[str, ...] = ()
    """Options that convert.py gives COLMAP and that changed their names: ``SiftExtraction.use_gpu``."""
    unreadable: tuple[str, ...] = ()
    """Python files that are not Python this version can read."""
