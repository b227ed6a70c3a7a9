"""Checks of what makes a build leave its CUDA code out."""

from __future__ import annotations

from collections.abc import Iterator

from splatfix.checks.evidence import variable
from splatfix.checks.model import Evidence, Finding
from splatfix.checks.registry import Check, check
from splatfix.context import Context
from splatfix.core.step import set_variable, unset_variable
from splatfix.facts import CheckoutSource


@check("cuda-code-left-out", family="checkout", title="Builds do not leave their CUDA code out")
def cuda_code_left_out(context: Context, this: Check) -> Iterator[Finding]:
    """Many a setup.py asks torch.cuda.is_available() and takes CppExtension where it says no: in docker build, on a login node
    or in CI a package without GPU code comes out, and its first use on a GPU ends in "Not compiled with GPU support".
    FORCE_CUDA=1 (pytorch3d, torch_scatter, detectron2, mmcv, kaolin) or a variable like it overrides that; one such as
    FORCE_ONLY_CPU or BUILD_NO_CUDA asks for it. Both are read from the setup.py itself. `splatfix install` sets and unsets
    them."""
    if context.torch_cuda is None:
        return
    for item in context.sources_to_build:
        switches, name = item.source.switches, item.source.label
        for off in switches.off:
            if context.variables.get(off, "0") not in ("", "0"):
                yield this.fail(
                    f"{name} is built without its CUDA code: {off} is set.",
                    subject=item.path,
                    evidence=variable(context, off),
                    remedy=unset_variable(off),
                )
        said = any(context.variables.get(on) == value for on, value in switches.on.items())
        if not switches.by_gpu or said or context.has_working_gpu is not False:
            continue
        on, value = next(iter(switches.on.items()), ("", ""))
        yield this.warn(
            f"No GPU is visible, and {name} compiles its CUDA code only where torch sees one.",
            subject=item.path,
            evidence=(
                Evidence(_setup_py(item), "torch.cuda.is_available()", "its syntax tree"),
                Evidence("GPUs", "none that torch would see", context.machine.gpus.found_via),
            ),
            remedy=set_variable(on, value) if on else context.install(item.source.folder),
        )


def _setup_py(item: CheckoutSource) -> str:
    return "setup.py" if item.path == "." else f"{item.path}/setup.py"
