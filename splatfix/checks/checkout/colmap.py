"""Checks of what a checkout's convert.py asks of COLMAP."""

from collections.abc import Iterator

from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.core.versions import release
from splatfix.knowledge.breakages import breakage
from splatfix.model import Evidence, Finding

check = checks_of("checkout")


@check("colmap-missing")
def colmap_missing(context: Context, this: Check) -> Iterator[Finding]:
    colmap = context.machine.colmap
    if not _calls_colmap(context) or not colmap.found_via:
        return
    if colmap.absent:
        yield this.skip(evidence=Evidence("colmap", "not there", colmap.found_via))
    elif colmap.value is not None:
        version = colmap.value.version
        yield this.ok(evidence=Evidence("colmap", version, colmap.found_via), version=version)


@check("colmap-option-mismatch")
def colmap_option_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    checkout, colmap = context.checkout, context.machine.colmap
    if checkout is None or colmap.value is None or not checkout.colmap_options:
        return
    record = breakage("colmap-options")
    old = [name for name in checkout.colmap_options if name.startswith("Sift")]
    new = [name for name in checkout.colmap_options if name.startswith("Feature")]
    if old and new:
        return  # it chooses between them itself
    renamed = record.when.holds({"colmap": release(colmap.value.version)[:2]})
    refused = old if renamed else new
    if refused:
        options = " ".join(f"--{name}" for name in checkout.colmap_options)
        yield this.warn(
            evidence=(
                Evidence("convert.py", options, "its text"),
                Evidence("colmap", colmap.value.version, colmap.found_via),
            ),
            option=refused[0],
            version=colmap.value.version,
            cure=record.cure,
        )


@check("colmap-no-gpu")
def colmap_no_gpu(context: Context, this: Check) -> Iterator[Finding]:
    colmap = context.machine.colmap
    if _calls_colmap(context) and colmap.value is not None and colmap.value.cuda is False:
        evidence = Evidence("colmap", "without CUDA", colmap.found_via)
        yield this.skip(evidence=evidence, version=colmap.value.version)


def _calls_colmap(context: Context) -> bool:
    checkout = context.checkout
    return checkout is not None and ("convert.py" in checkout.paths or bool(checkout.colmap_options))
