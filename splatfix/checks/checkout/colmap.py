"""Checks of what a checkout's convert.py asks of COLMAP."""

from collections.abc import Iterator

from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.core.versions import release
from splatfix.knowledge.breakages import breakage
from splatfix.model import Evidence, Finding

check = checks_of("checkout")


@check("colmap-missing", "COLMAP is here for photographs of one's own")
def colmap_missing(context: Context, this: Check) -> Iterator[Finding]:
    """convert.py calls `colmap`; without it "Feature extraction failed with code 1" (127 on Linux). Downloaded scenes need no
    COLMAP, so its absence is only named. Another place is given by --colmap_executable."""
    colmap = context.machine.colmap
    if not _calls_colmap(context) or not colmap.found_via:
        return
    if colmap.absent:
        yield this.skip(
            "convert.py calls COLMAP, which is not on PATH; downloaded scenes do not need it.",
            evidence=Evidence("colmap", "not there", colmap.found_via),
            remedy="For photographs of your own: install COLMAP, or give convert.py --colmap_executable PATH.",
        )
    elif colmap.value is not None:
        version = colmap.value.version
        yield this.ok(f"COLMAP {version} is on PATH.", evidence=Evidence("colmap", version, colmap.found_via))


@check("colmap-option-mismatch", "convert.py uses options that this COLMAP has")
def colmap_option_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    """COLMAP 3.13 renamed --SiftExtraction.use_gpu to --FeatureExtraction.use_gpu (and matching likewise) and dropped the old
    names: "Failed to parse options - unrecognised option '--SiftExtraction.use_gpu'". convert.py of Inria's family uses the
    old ones. Source: colmap PR#3465, gaussian-splatting#1255 and #1308, nerfstudio PR#3781."""
    checkout, colmap = context.checkout, context.machine.colmap.value
    if checkout is None or colmap is None or not checkout.colmap_options:
        return
    record = breakage("colmap-options")
    old = [name for name in checkout.colmap_options if name.startswith("Sift")]
    new = [name for name in checkout.colmap_options if name.startswith("Feature")]
    if old and new:
        return  # it chooses between them itself
    renamed = record.when.holds({"colmap": release(colmap.version)[:2]})
    refused = old if renamed else new
    if refused:
        options = " ".join(f"--{name}" for name in checkout.colmap_options)
        yield this.warn(
            f"convert.py gives COLMAP --{refused[0]}, which COLMAP {colmap.version} does not have.",
            evidence=(
                Evidence("convert.py", options, "its text"),
                Evidence("colmap", colmap.version, context.machine.colmap.found_via),
            ),
            remedy=f"In convert.py: {record.cure}.",
        )


@check("colmap-no-gpu", "COLMAP was built with CUDA")
def colmap_no_gpu(context: Context, this: Check) -> Iterator[Finding]:
    """convert.py asks for SIFT on the GPU. A COLMAP without CUDA (Debian's and Ubuntu's package) falls back to OpenGL, which
    needs a screen: over ssh or in a container it ends in "could not connect to display". With --no_gpu it runs anywhere."""
    colmap = context.machine.colmap
    if not _calls_colmap(context) or colmap.value is None or colmap.value.cuda is not False:
        return
    yield this.skip(
        f"COLMAP {colmap.value.version} was built without CUDA: give convert.py --no_gpu where there "
        "is no screen.",
        evidence=Evidence("colmap", "without CUDA", colmap.found_via),
        remedy="python convert.py -s DATA --no_gpu, or a COLMAP built with CUDA (conda-forge has one).",
    )


def _calls_colmap(context: Context) -> bool:
    checkout = context.checkout
    return checkout is not None and ("convert.py" in checkout.paths or bool(checkout.colmap_options))
