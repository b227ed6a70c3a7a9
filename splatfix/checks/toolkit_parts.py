"""The check that a CUDA toolkit is whole: headers and libraries that splatting extensions need beside nvcc."""

from __future__ import annotations

from collections.abc import Iterator

from splatfix.checks._common import build_toolkit, is_windows, torch_cuda
from splatfix.checks.model import Evidence, Finding, Goal, Status
from splatfix.checks.registry import check
from splatfix.core.step import Step, prepend_variable, say
from splatfix.facts import Facts, Toolkit


@check("cuda-headers-missing", "toolkit", "The toolkit has the headers and libraries extensions need")
def cuda_headers_missing(facts: Facts, goal: Goal) -> Iterator[Finding]:
    """`ATen/cuda/CUDAContext.h` includes cuBLAS, cuSPARSE and cuSOLVER headers; a partial toolkit (conda, apt, PyPI wheels)
    compiles simple kernels and then dies on them. Each missing part is named."""
    if torch_cuda(facts) is None:
        return
    toolkit = build_toolkit(facts)
    if toolkit is None:
        return
    evidence = (Evidence(toolkit.root, ", ".join(toolkit.missing) or "complete", "files looked for"),)
    if not toolkit.missing:
        yield Finding(
            "cuda-headers-missing",
            Status.PASS,
            f"The toolkit at {toolkit.root} is complete.",
            evidence=evidence,
        )
        return
    yield Finding(
        "cuda-headers-missing",
        Status.WARN,
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
        remedy=_missing_parts(facts, toolkit),
    )


def _missing_parts(facts: Facts, toolkit: Toolkit) -> tuple[Step, ...]:
    """The headers that the environment's packages hold go into CPATH by an exact command; the rest must be installed."""
    left = [part for part in toolkit.missing if part.removeprefix("include/") not in toolkit.elsewhere]
    whole = say(
        f"Install the whole toolkit with its development packages: {', '.join(left)} lies nowhere here."
    )
    folders = list(dict.fromkeys(toolkit.elsewhere.values()))
    if not folders:
        return (whole,)
    # cl reads INCLUDE, not CPATH
    name, separator = ("INCLUDE", ";") if is_windows(facts) else ("CPATH", ":")
    step = prepend_variable(name, separator.join(folders))
    return (step, whole) if left else (step,)
