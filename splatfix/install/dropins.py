"""Makes drop-in wheels: our pure-PyTorch kernels under the name, module and signatures of a CUDA extension.

The templates hold what stands beside the copied kernels: the original's names, signatures and errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from packaging.version import Version

from splatfix import __version__
from splatfix.core.errors import SplatfixError
from splatfix.core.resources import KERNELS
from splatfix.install.wheels import MANIFEST_VERSION, add_manifest, write_wheel
from splatfix.knowledge.dropins import Dropin
from splatfix.knowledge.faces import (
    BASE_SETTINGS,
    REQUIRED,
    SUMS,
    UNREAD,
    DeclaredFace,
    role_of_argument,
    role_of_setting,
)
from splatfix.knowledge.stacks import Variant, variant

_HEAD = '"""{name} {how}: a drop-in by splatfix {version} for the CUDA extension."""\n'
_HOW = {"pure": "in plain PyTorch", "nvrtc": "with CUDA kernels through NVRTC"}


@cache
def _sections() -> dict[str, str]:
    """The texts that stand beside the copied kernels, by title."""
    text = Path(__file__).with_name("dropin_templates.txt").read_text(encoding="utf-8")
    _, *sections = re.split(r"^=== (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(sections[::2], sections[1::2], strict=True))


def make_dropin_wheel(
    dropin: Dropin, version: str, folder: Path, compiled: Mapping[str, bytes] | None = None
) -> Path:
    """Write the wheel of a drop-in into ``folder``.

    Args:
        compiled: code of its CUDA kernels by file name, which it then carries with their sources; None for pure PyTorch.

    Raises:
        SplatfixError: ``splatfix-incomplete`` when this installation of splatfix lacks a kernel.
    """
    folder.mkdir(parents=True, exist_ok=True)
    backend = "pure" if compiled is None else "nvrtc"
    # the version is in the file itself: who finds it in site-packages years later knows where it came from
    head = _HEAD.format(name=dropin.name, how=_HOW[backend], version=__version__)
    # the source of what stands beside kernels and manifest, by path, without the first docstring
    sections, half = _sections(), f"{dropin.module}/_C.py"
    if dropin.distribution in ("fused-ssim", "simple-knn"):
        templates = {dropin.api: sections[dropin.distribution]}
    elif dropin.host:
        text = sections["hosted"].replace("@host@", dropin.host)
        text = text.replace("@distribution@", dropin.distribution)
        templates = {dropin.api: text.replace("@releases@", json.dumps(dict(dropin.host_releases)))}
    elif dropin.declared:
        text = sections["compiled-half"].replace("@imports@", "").replace("@module@", dropin.module)
        templates = {dropin.api: _declared_package(dropin.declared), half: text}
    else:
        row = variant(dropin.serves[0])
        assert row is not None
        templates = {dropin.api: _rasterizer_package(row), half: _compiled_half(row)}
    files = {path: (head + text).encode() for path, text in templates.items()}
    files.setdefault(f"{dropin.folder}/__init__.py", head.encode())
    for kernel in dropin.kernels:
        files[f"{dropin.folder}/_{kernel}"] = _kernel(kernel)
    if compiled is not None:
        for kernel in dropin.cuda:
            name = kernel if kernel.startswith("cuda/") else f"_{kernel}"
            files[f"{dropin.folder}/{name}"] = _kernel(kernel)
        files |= {f"{dropin.folder}/cuda/{name}": code for name, code in compiled.items()}
    summary = f"Drop-in for {dropin.name} {_HOW[backend]}, by splatfix"
    requires: tuple[str, ...] = ()
    if dropin.host:  # so that pip names it where its host is upgraded
        releases = sorted(dropin.host_releases, key=Version)
        requires = (f"{dropin.host}>={releases[0]},<={releases[-1]}",)
    path = write_wheel(folder, dropin.distribution, version, files, summary, requires=requires)
    manifest = {
        "schema_version": MANIFEST_VERSION,
        "kind": "drop-in",
        "splatfix": __version__,
        "replaces": dropin.host or dropin.module,
        "variant": dropin.variant,
        "backend": backend,
        "note": "",
    }
    if backend == "pure":
        manifest["note"] = dropin.note  # it speaks of the speed and limits of plain PyTorch
    add_manifest(path, manifest)
    return path


def _kernel(name: str) -> bytes:
    path = KERNELS / name
    try:
        # in the wheel a kernel's neighbors have the names that they have there
        return path.read_bytes().replace(b"from splatfix.kernels.", b"from ._")
    except OSError as error:
        reason = error.strerror or error
        raise SplatfixError.of("install.splatfix-incomplete", path=path, reason=reason) from error


def _rasterizer_package(row: Variant) -> str:
    """The package of one variant, from its fingerprint: settings fields, parameters of forward, results."""
    # the variants that drop-ins serve have all three; tests/knowledge holds it
    assert row.settings is not None and row.forward is not None and row.returns is not None
    sections = _sections()
    types = dict(line.split(": ") for line in sections["types"].splitlines())
    gaussians = "opacities, scales, rotations, covariances"
    results = {
        "color": "rendered.color",
        "radii": "rendered.radii",
        "invdepths": "rendered.invdepth",
        "is_used": "used",
        "allmap": "rendered.allmap",
        "countBuffer": f"*_sums(settings, pixel_weights, means3D, rendered.radii, {gaussians})",
        "accum_metric_counts": f"_marked(settings, get_flag, metric_map, means3D, {gaussians})",
    }
    returned = [results[name] for name in row.returns if name in results]
    # what comes back beside image, radii and inverse depth: of several the first
    extras = [name for name in ("countBuffer", "accum_metric_counts", "is_used") if name in row.returns]
    used, keyword = "", ""
    if "is_used" in extras:
        used, keyword = sections["used"], ", used=used"

    imports = ""
    if "SparseGaussianAdam" in row.extra_classes:
        imports += "from ._helpers import SparseGaussianAdam\n"
    if extras and not used:
        imports += "from ._contributions import contributions as _contributions\n"
    if extras[:1] == ["countBuffer"]:
        imports += "from ._contributions import screen_positions as _screen_positions\n"

    # means3D, means2D and opacities must be given, the rest may be left out
    parameters = [f"        {name}," for name in row.forward[:3]]
    parameters += [f"        {name}=None," for name in row.forward[3:]]
    kernel = "rasterizer import rasterize"
    if "allmap" in row.returns:
        kernel = "surfels import rasterize_surfels"
    dc, join = "", ""
    if "dc" in row.forward:
        dc, join = "dc, ", sections["join-dc"]

    text = sections["rasterizer"]
    replacements = {
        "fields": "\n".join(f"    {name}: {types[name]}" for name in row.settings),
        "parameters": "\n".join(parameters),
        "returns": ", ".join(row.returns),
        "results": ", ".join(returned),
        "own": sections.get(f"own-{row.key}", ""),
        "kernel": kernel,
        "dc": dc,
        "join": join,
        "used": used,
        "keyword": keyword,
        "imports": imports,
        "check": sections["check"],
    }
    for mark, value in replacements.items():
        text = text.replace(f"@{mark}@", value)
    if "visible_filter" in row.methods:
        text += sections["visible-filter"]
    return text + "".join(sections[f"extra-{name}"] for name in extras[:1])


_RESULTS = {
    UNREAD: "None",
    "color": "drawn.color",
    "radii": "drawn.radii",
    "depth": "drawn.depth",
    "invdepth": "drawn.invdepth",
    "alpha": "drawn.alpha",
    "normals": "torch.nn.functional.normalize(drawn.normals, dim=0)",
    "weight-sum": "drawn.sums.blend",
    "pixel-count": "drawn.sums.pixels",
    "near-count": "drawn.sums.near",
    "strongest-count": "drawn.sums.strongest",
    "opacity-sum": "drawn.sums.transmittance * opacities.detach().view(-1)",
    "used": "drawn.sums.pixels > 0",
}
_KEYWORDS = {
    "shs": "shs",
    "colors": "colors_precomp",
    "scales": "scales",
    "rotations": "rotations",
    "covariances": "cov3D_precomp",
    "theta": "theta",
    "rho": "rho",
    "absolute": "absolute",
    "normals": "normals",
}
"""Roles of arguments, and what `composite` calls them."""


def _declared_package(face: DeclaredFace) -> str:
    """The package of a face that was declared."""
    types = dict(line.split(": ") for line in _sections()["types"].splitlines())
    required = len(face.settings) - face.settings_defaults
    fields = [f"    {name}: {types.get(name, 'object')}" for name in face.settings[:required]]
    fields += [f"    {name}: {types.get(name, 'object')} = None" for name in face.settings[required:]]
    parameters = [f"        {name}," for name in face.forward[: face.forward_required]]
    parameters += [f"        {name}=None," for name in face.forward[face.forward_required :]]
    options = [name for name in face.settings if name in BASE_SETTINGS or role_of_setting(name) == "option"]
    roles = {role_of_setting(name): name for name in face.settings}

    arguments = []
    for name in face.forward[REQUIRED:]:
        keyword = _KEYWORDS.get(role_of_argument(name))
        if keyword:
            arguments.append(f"            {keyword}=_given({name}),")
    maps = ""
    if face.features:
        asked = "".join(f"_given({name}), " for name in face.features)
        maps = f"        features = [{asked.rstrip(', ')}]\n"
        if "features-if" in roles:
            maps = (
                f"        features = [{asked.rstrip(', ')}] if settings.{roles['features-if']} else [None]\n"
            )
        arguments.append("            features=[item for item in features if item is not None],")
    if "normals" in face.results:
        arguments.append("            with_normals=True,")
    option, instead = face.instead
    if SUMS & set(face.results):
        arguments.append("            with_sums=True,")
    elif SUMS & set(instead):
        arguments.append(f"            with_sums=bool(settings.{option}),")
    results, kinds = [], 0
    for number, role in enumerate(face.results):
        value = _RESULTS.get(role, "")
        if role == "features":
            value = f"maps[{kinds}]"
            kinds += 1
        if role == "alpha" and "alpha-if" in roles:
            value = f"({value} if settings.{roles['alpha-if']} else None)"
        elif number in face.gradients_ignored and role in ("depth", "invdepth", "alpha"):
            value += ".detach()"  # the original's backward pass does not use its gradient
        results.append(value)
    after = ""
    if face.features:
        # of an absent feature there is no map
        after = "        drawn_maps = iter(drawn.features)\n"
        after += "        maps = [drawn.color.new_zeros(1) if item is None else next(drawn_maps) for item in features]\n"

    if option:
        others = ", ".join(_RESULTS[role] for role in instead)
        after += f"        if settings.{option}:\n            return {others}\n"
    covariances = next(
        (name for name in face.forward if role_of_argument(name) == "covariances"), "cov3D_precomp"
    )
    text = _sections()["declared"]
    if maps:
        text = text.replace("        drawn = _composite(", f"{maps}        drawn = _composite(")
    replacements = {
        "check": _sections()["check"].replace("cov3D_precomp", covariances),
        "fields": "\n".join(fields),
        "options": repr(tuple(options)),
        "parameters": "\n".join(parameters),
        "returns": ", ".join(face.results),
        "arguments": "\n".join(arguments),
        "maps": after,
        "results": ", ".join(results),
    }
    for mark, value in replacements.items():
        text = text.replace(f"@{mark}@", value)
    return text


def _compiled_half(row: Variant) -> str:
    """The module ``_C``: what callers use of it works, the passes that only a compiler makes say what they are."""
    helpers = {
        "adamUpdate": "from ._helpers import sparse_adam_step as _sparse_adam_step\n",
        "compute_relocation": "from ._helpers import compute_relocation\n",
    }
    imports = "".join(line for name, line in helpers.items() if name in row.exports)
    text = _sections()["compiled-half"].replace("@imports@", imports).replace("@module@", row.module)
    if "rasterize_aussians_filter" in row.exports:  # Scaffold's spelling
        text += '\n\ndef rasterize_aussians_filter(*args):\n    """The compiled filter."""\n'
        text += "    raise NotImplementedError(_ABSENT)\n"
    if "adamUpdate" in row.exports:
        text += _sections()["adam-update"]
    return text
