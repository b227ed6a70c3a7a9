"""Makes drop-in wheels: our pure-PyTorch kernels under the name, module and signatures of a CUDA extension.

The templates hold what stands beside the copied kernels: the original's names, signatures and errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from splatfix import __version__
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.resources import kernels_folder
from splatfix.core.step import run
from splatfix.install.wheels import MANIFEST_VERSION, add_manifest, write_wheel
from splatfix.knowledge.dropins import Dropin
from splatfix.knowledge.stacks import Variant, variant

_HEAD = '"""{name} {how}: a drop-in by splatfix {version} for the CUDA extension."""\n'
_HOW = {"pure": "in plain PyTorch", "nvrtc": "with CUDA kernels through NVRTC", "warp": "on gswarp"}

_CALLS = re.compile(rb"from \._(ssim|knn|rasterizer|contributions)_cuda import")


@cache
def _sections() -> dict[str, str]:
    """The texts that stand beside the copied kernels, by title."""
    text = Path(__file__).with_name("dropin_templates.txt").read_text(encoding="utf-8")
    _, *sections = re.split(r"^=== (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(sections[::2], sections[1::2], strict=True))


def make_dropin_wheel(
    dropin: Dropin,
    version: str,
    folder: Path,
    compiled: Mapping[str, bytes] | None = None,
    *,
    gswarp: bool = False,
) -> Path:
    """Write the wheel of a drop-in into ``folder``.

    Args:
        compiled: code of its CUDA kernels by file name, which it then carries with their sources; None for pure PyTorch.
        gswarp: it calls gswarp for tensors on a GPU.

    Raises:
        SplatfixError: ``splatfix-incomplete`` when this installation of splatfix lacks a kernel.
    """
    folder.mkdir(parents=True, exist_ok=True)
    backend = "pure"
    if gswarp:
        backend = "warp"
    elif compiled is not None:
        backend = "nvrtc"
    # the version is in the file itself: who finds it in site-packages years later knows where it came from
    head = _HEAD.format(name=dropin.name, how=_HOW[backend], version=__version__)
    files = {path: (head + text).encode() for path, text in _templates(dropin).items()}
    files.setdefault(f"{dropin.module}/__init__.py", head.encode())
    kernels = dropin.kernels
    if gswarp and dropin.gives_used:  # which gswarp does not tell
        kernels += ("contributions.py",)
    for kernel in kernels:
        files[f"{dropin.module}/_{kernel}"] = _kernel(kernel)
    if compiled is not None:
        for kernel in dropin.cuda:
            name = kernel if kernel.startswith("cuda/") else f"_{kernel}"
            files[f"{dropin.module}/{name}"] = _kernel(kernel)
        files |= {f"{dropin.module}/cuda/{name}": code for name, code in compiled.items()}
    if gswarp:  # what calls our own kernels calls it
        files = {path: _CALLS.sub(rb"from ._on_warp import", text) for path, text in files.items()}
        files |= {f"{dropin.module}/_{name}": _kernel(name) for name in ("nvrtc.py", "on_warp.py")}
    summary = f"Drop-in for {dropin.name} {_HOW[backend]}, by splatfix"
    path = write_wheel(folder, dropin.distribution, version, files, summary)
    manifest = {
        "schema_version": MANIFEST_VERSION,
        "kind": "drop-in",
        "splatfix": __version__,
        "replaces": dropin.module,
        "variant": dropin.variant,
        "backend": backend,
        "note": "",
    }
    if backend == "pure":
        manifest["note"] = dropin.note  # it speaks of the speed and limits of plain PyTorch
    add_manifest(path, manifest)
    return path


def _kernel(name: str) -> bytes:
    path = kernels_folder() / name
    try:
        # in the wheel a kernel's neighbors have the names that they have there
        return path.read_bytes().replace(b"from splatfix.kernels.", b"from ._")
    except OSError as error:
        raise SplatfixError(
            "splatfix-incomplete",
            f"splatfix's own {path} cannot be read: {error.strerror or error}.",
            meaning="Nothing was changed.",
            todo=(run("pip", "install", "--force-reinstall", "splatfix", text="Reinstall splatfix"),),
            exit_code=Exit.UNDETERMINED,
        ) from error


def _templates(dropin: Dropin) -> dict[str, str]:
    """Files of the drop-in beside its kernels and manifest, by path: their Python source without the first docstring."""
    if dropin.distribution == "fused-ssim":
        return {dropin.api: _sections()["fused-ssim"]}
    if dropin.distribution == "simple-knn":
        return {dropin.api: _sections()["simple-knn"]}
    row = variant(dropin.serves[0])
    assert row is not None
    return {dropin.api: _rasterizer_package(row), f"{dropin.module}/_C.py": _compiled_half(row)}


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
    }
    for mark, value in replacements.items():
        text = text.replace(f"@{mark}@", value)
    if "visible_filter" in row.methods:
        text += sections["visible-filter"]
    return text + "".join(sections[f"extra-{name}"] for name in extras[:1])


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
