"""By which names environment variables choose architectures, and switch CUDA code on and off."""

import re

# How the build files of some sixty extensions call the variables that switch CUDA code on and off.
ON = re.compile(
    r"(?:\w+_)?(?:FORCE|WITH|BUILD|USE|ENABLE|INSTALL|COMPILE)_(?:CUDA|GPU)(?:_(?:BUILD|KERNELS?|OPS|EXT\w*))?|\w+_CUDA_EXT"
)
OFF = re.compile(r"\w*(?:NO_CUDA|(?:ONLY|FORCE)_CPU|CPU_ONLY|(?:DISABLE|SKIP|WITHOUT)_CUDA)\w*")
_ARCHITECTURES = re.compile(r"CUDA\w*ARCH|\bSM_?ARCH|GENCODE|COMPUTE_CAPABILIT")


def is_arch_variable(name: str) -> bool:
    """``CUDA_ARCHITECTURES``, ``TCNN_CUDA_ARCHITECTURES``, ``CUDAARCHS``, ``CUDA_ARCH``... but not torch's."""
    return name != "TORCH_CUDA_ARCH_LIST" and _ARCHITECTURES.search(name) is not None


def is_switch(name: str) -> bool:
    """``FORCE_CUDA``, ``BUILD_WITH_CUDA``, ``NO_CUDA``, ``FORCEONLY_CPU``."""
    return bool(ON.fullmatch(name) or OFF.fullmatch(name))
