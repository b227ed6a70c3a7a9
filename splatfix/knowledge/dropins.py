"""Drop-ins (``dropins.toml``): what splatfix can replace by its own kernels, under which names, and what nothing replaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from splatfix.core.toml import table_beside
from splatfix.knowledge.faces import (
    ARGUMENTS,
    BASE_ARGUMENTS,
    REQUIRED,
    UNREAD,
    DeclaredFace,
    declare,
    instead_of,
    role_of_result,
)
from splatfix.knowledge.rows import decode
from splatfix.knowledge.stacks import variant, variants


class Dropin(Struct, frozen=True):
    """One drop-in: the distribution it takes the place of, and what it is made of."""

    distribution: str
    module: str
    kernels: tuple[str, ...]
    """Files of ``splatfix.kernels`` it carries copies of."""
    api: str
    """The module in the drop-in that has the original's names, as a path."""
    note: str
    serves: tuple[str, ...]
    """Keys of the variants (``splatfix.knowledge.stacks``) whose calls it answers, the one it follows first."""
    variant: str = ""
    """Which of the packages of that name it is, where several share one."""
    cuda: tuple[str, ...] = ()
    """Files of ``splatfix.kernels`` that it needs besides, to run its CUDA kernels."""
    functions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What it has beside a rasterizer, with the parameters: names below the module, such as ``_C.distCUDA2``."""
    declared: DeclaredFace | None = None
    """How it is called, where it is made after a declaration."""
    host: str = ""
    """The distribution of which it is the compiled module, and whose own files stay as they are; "" where it is a package
    of its own."""
    host_releases: Mapping[str, str] = field(default_factory=dict)
    """Releases of the host that it was made for, each with the kernel file that has the names which that release calls."""
    host_imports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By release, distributions that the host imports when something is first drawn, and does not ask pip for."""
    caller: str = ""
    """The module of the host that imports it when something is first drawn."""

    def __hash__(self) -> int:
        return hash((self.distribution, self.variant))

    @property
    def name(self) -> str:
        """As a user names it: ``simple_knn``, ``diff_gaussian_rasterization@dr_aa``, ``gsplat``."""
        if self.host:
            return self.host
        if not self.variant:
            return self.module
        return f"{self.module}@{self.variant}"

    @property
    def folder(self) -> str:
        """Of the module, below site-packages: ``simple_knn``, ``gsplat/csrc``."""
        return self.module.replace(".", "/")

    @property
    def gives_used(self) -> bool:
        """With each image it tells which Gaussians took part, as 3DGS-MCMC's rasterizer does."""
        row = None
        if self.serves and self.declared is None:
            row = variant(self.serves[0])
        return row is not None and "is_used" in (row.returns or ())


class Face(Struct, frozen=True):
    """How a package is called; what is None is not known."""

    settings: tuple[str, ...] | None = None
    """Fields of its Settings tuple, in order."""
    settings_defaults: int = 0
    forward: tuple[str, ...] | None = None
    """Parameters of the rasterizer's forward, without self."""
    forward_required: int = 0
    returns: int | None = None
    values: tuple[str, ...] = ()
    """What the forward returns, by name."""
    functions: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    """What else it has, with the parameters: ``compute_relocation``, ``GaussianRasterizer.markVisible``."""


_PARTS_OF_FACES = ("rasterizer", "gaussians", "faces")


def _dropin(row: Mapping[str, Any], parts: Mapping[str, Any]) -> Dropin:
    module = row["module"]
    made_of = [parts[part] for part in row["parts"]]
    files = {kind: [file for part in made_of for file in part.get(kind, ())] for kind in ("kernels", "cuda")}
    api, distribution = f"{module.replace('.', '/')}/__init__.py", module.replace("_", "-")
    note = "; ".join(item["note"] for item in (*made_of, row) if "note" in item)
    whole = {"api": api, "distribution": distribution, **row, **files, "note": note}
    made: Dropin = decode(Dropin, whole)
    if "faces" in row["parts"] and made.serves:
        face = variant(made.serves[0])
        assert face and face.settings is not None and face.forward is not None and face.returns is not None
        results = [str(role_of_result(name)) for name in face.returns]
        read = [("its face", "the tables")]
        declared = declare(face.module, face.settings, face.forward, results, read=read)
        assert isinstance(declared, DeclaredFace), declared
        return replace(made, declared=declared)
    return made


def declared_dropin(face: DeclaredFace) -> Dropin:
    """The drop-in with a face that no table lists: the rasterizer's kernels behind it."""
    # what tells it from others of its name, beside the image and radii
    beside = [role for role in face.results if role not in ("color", "radii", UNREAD)]
    roles = (ARGUMENTS[name] for name in face.forward[REQUIRED:] if name not in BASE_ARGUMENTS)
    beside += [role for role in roles if role != "features"]
    variant_name = "+".join(beside) or "declared"
    if any(row.get("variant") == variant_name for row in _TABLE["dropin"]):
        variant_name += "+declared"
    row = {"module": face.module, "variant": variant_name, "serves": [], "parts": _PARTS_OF_FACES}
    return replace(_dropin(row, _TABLE["parts"]), declared=face)


_TABLE = table_beside(__file__)
DROPINS = tuple(_dropin(row, _TABLE["parts"]) for row in _TABLE["dropin"])
IRREPLACEABLE_VARIANTS: Mapping[str, str] = _TABLE["irreplaceable_variants"]
"""Why nothing replaces a variant, by its key in ``data/stacks.json``."""
IRREPLACEABLE: Mapping[str, str] = _TABLE["irreplaceable"]
"""Why nothing replaces a distribution."""


def face_of(dropin: Dropin) -> Face:
    """How a drop-in is called."""
    row = variant(dropin.serves[0]) if dropin.serves else None
    # by names that a table gives them; of others the roles were read from the callers themselves
    values = (row and row.returns) or ()
    if declared := dropin.declared:
        return Face(
            values=values,
            settings=declared.settings,
            settings_defaults=declared.settings_defaults,
            forward=declared.forward,
            forward_required=declared.forward_required,
            returns=None if instead_of(declared.settings)[0] else len(declared.results),
            functions={
                "GaussianRasterizer.markVisible": None,
                "GaussianRasterizer.visible_filter": ("means3D", "scales", "rotations", "cov3D_precomp"),
            },
        )
    if row is None or row.forward is None:
        return Face(functions=dropin.functions)
    names = [f"{row.rasterizer_class}.{method}" for method in row.methods]
    names += ["rasterize_gaussians", "cpu_deep_copy_tuple", "_C.mark_visible", *row.extra_classes]
    if "adamUpdate" in row.exports:
        names.append("_C.adamUpdate")
    # the package itself passes this one on
    if "compute_relocation" in row.exports:
        names += ["_C.compute_relocation", "compute_relocation"]
    return Face(
        settings=row.settings,
        forward=row.forward,
        forward_required=3,
        returns=len(values),
        values=values,
        functions=dict.fromkeys(names),
    )


def is_rasterizer(module: str) -> bool:
    """By its name: ``diff_surfel_rasterization``, ``r3dg_rasterization``, ``diff_gauss``, ``gsplat``."""
    return "raster" in module or module.startswith(("diff_gauss", "gsplat"))


def dropin_named(name: str) -> Dropin | None:
    """The drop-in of this name (``simple_knn``, ``diff_gaussian_rasterization@dr_aa``, ``gsplat``); None: there is none."""
    return next((item for item in DROPINS if item.name == name), None)


def dropin_of(distribution: str, variant_name: str = "") -> Dropin:
    """The drop-in of this distribution and variant, which must be one of ``DROPINS``."""
    return next(item for item in DROPINS if (item.distribution, item.variant) == (distribution, variant_name))


def known_names() -> str:
    """What can be replaced, in a sentence."""
    return ", ".join(dropin.name for dropin in DROPINS)


def refusals() -> frozenset[str]:
    """Every reason for which nothing replaces a variant or a distribution."""
    return frozenset({*IRREPLACEABLE_VARIANTS.values(), *IRREPLACEABLE.values()})


def dropin_for_variant(variant_key: str) -> Dropin | None:
    """The drop-in that answers the calls of this variant."""
    return next((dropin for dropin in DROPINS if variant_key in dropin.serves), None)


def has_reference(distribution: str) -> bool:
    """``splatfix certify --level 2`` has something to hold its kernels against."""
    module = distribution.replace("-", "_")
    return bool(variants(module)) or any(distribution in (item.distribution, item.name) for item in DROPINS)
