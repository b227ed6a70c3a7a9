"""Checks of what a checkout's convert.py asks of COLMAP."""

from __future__ import annotations

from collections.abc import Iterator

from splatfix.checks.model import Evidence, Finding
from splatfix.checks.registry import Check, check
from splatfix.context import Context
from splatfix.core.versions import release
from splatfix.facts import Checkout
from splatfix.knowledge.breakages import breakage


@check("colmap-missing", family="checkout", title="COLMAP is here for photographs of one's own")
def colmap_missing(context: Context, this: Check) -> Iterator[Finding]:
    """convert.py calls `colmap`; without it "Feature extraction failed with code 1" (127 on Linux). Downloaded scenes need no
    COLMAP, so its absence is only named. Another place is given by --colmap_executable."""
    found, fact = context.checkout, context.machine.colmap
    if found is None or not _calls_colmap(found) or not fact.found_via:
        return
    if fact.absent:
        yield this.skip(
            "convert.py calls COLMAP, which is not on PATH; downloaded scenes do not need it.",
            evidence=Evidence("colmap", "not there", fact.found_via),
            remedy="For photographs of your own: install COLMAP, or give convert.py --colmap_executable PATH.",
        )
    elif fact.value is not None:
        yield this.ok(
            f"COLMAP {fact.value.version} is on PATH.",
            evidence=Evidence("colmap", fact.value.version, fact.found_via),
        )


@check("colmap-option-mismatch", family="checkout", title="convert.py uses options that this COLMAP has")
def colmap_option_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    """COLMAP 3.13 renamed --SiftExtraction.use_gpu to --FeatureExtraction.use_gpu (and matching likewise) and dropped the old
    names: "Failed to parse options - unrecognised option '--SiftExtraction.use_gpu'". convert.py of Inria's family uses the
    old ones. Source: colmap PR#3465, gaussian-splatting#1255 and #1308, nerfstudio PR#3781."""
    found, colmap = context.checkout, context.machine.colmap.value
    known = breakage("colmap-options")
    if found is None or colmap is None or not found.colmap_options:
        return
    version = release(colmap.version)[:2]
    old = [name for name in found.colmap_options if name.startswith("Sift")]
    new = [name for name in found.colmap_options if name.startswith("Feature")]
    renamed = known.when.holds({"colmap": version})
    wrong = old if renamed and not new else new if not renamed and not old else []
    if wrong:
        yield this.warn(
            f"convert.py gives COLMAP --{wrong[0]}, which COLMAP {colmap.version} does not have.",
            evidence=(
                Evidence("convert.py", " ".join(f"--{name}" for name in found.colmap_options), "its text"),
                Evidence("colmap", colmap.version, context.machine.colmap.found_via),
            ),
            remedy=f"In convert.py: {known.cure}.",
        )


@check("colmap-no-gpu", family="checkout", title="COLMAP was built with CUDA")
def colmap_no_gpu(context: Context, this: Check) -> Iterator[Finding]:
    """convert.py asks for SIFT on the GPU. A COLMAP without CUDA (Debian's and Ubuntu's package) falls back to OpenGL, which
    needs a screen: over ssh or in a container it ends in "could not connect to display". With --no_gpu it runs anywhere."""
    found, fact = context.checkout, context.machine.colmap
    if found is None or not _calls_colmap(found) or fact.value is None or fact.value.cuda is not False:
        return
    yield this.skip(
        f"COLMAP {fact.value.version} was built without CUDA: give convert.py --no_gpu where there "
        "is no screen.",
        evidence=Evidence("colmap", "without CUDA", fact.found_via),
        remedy="python convert.py -s DATA --no_gpu, or a COLMAP built with CUDA (conda-forge has one).",
    )


def _calls_colmap(found: Checkout) -> bool:
    return "convert.py" in found.paths or bool(found.colmap_options)
