"""The check that a CUDA toolkit is whole: headers and libraries that splatting extensions need beside nvcc."""

from __future__ import annotations

from collections.abc import Iterator

from splatfix.checks.model import Evidence, Outcome, ok, warn
from splatfix.checks.registry import check
from splatfix.context import Context
from splatfix.core.step import Step, prepend_variable, say
from splatfix.facts import Toolkit


@check(
    "cuda-headers-missing",
    family="toolkit",
    title="The toolkit has the headers and libraries extensions need",
)
def cuda_headers_missing(context: Context) -> Iterator[Outcome]:
    """`ATen/cuda/CUDAContext.h` includes cuBLAS, cuSPARSE and cuSOLVER headers; a partial toolkit (conda, apt, PyPI wheels)
    compiles simple kernels and then dies on them. Each missing part is named."""
    if context.torch_cuda is None:
        return
    toolkit = context.build_toolkit
    if toolkit is None:
        return
    evidence = (Evidence(toolkit.root, ", ".join(toolkit.missing) or "complete", "files looked for"),)
    if not toolkit.missing:
        yield ok(
            f"The toolkit at {toolkit.root} is complete.",
            evidence=evidence,
        )
        return
    yield warn(
        f"The toolkit at {toolkit.root} lacks {len(toolkit.missing)} part(s) that extensions may need: "
        + ", ".join(part.rpartition("/")[2] for part in toolkit.missing)
        + ".",
        evidence=(
            *evidence,
            *(
                Evidence(header, folder, "the environment's own NVIDIA packages")
                for header, folder in toolkit.elsewhere.items()
            ),
        ),
        remedy=_missing_parts(context, toolkit),
    )


def _missing_parts(context: Context, toolkit: Toolkit) -> tuple[Step, ...]:
    """The headers that the environment's packages hold go into CPATH by an exact command; the rest must be installed."""
    left = [part for part in toolkit.missing if part.removeprefix("include/") not in toolkit.elsewhere]
    whole = say(
        f"Install the whole toolkit with its development packages: {', '.join(left)} lies nowhere here."
    )
    folders = list(dict.fromkeys(toolkit.elsewhere.values()))
    if not folders:
        return (whole,)
    # cl reads INCLUDE, not CPATH
    name, separator = ("INCLUDE", ";") if context.windows else ("CPATH", ":")
    step = prepend_variable(name, separator.join(folders))
    return (step, whole) if left else (step,)
