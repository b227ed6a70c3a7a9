"""What variables of the environment are called that say what a build compiles."""

import re

# How the build files of some sixty extensions call the variables that switch CUDA code on and off.
_ON = re.compile(
    r"(?:\w+_)?(?:FORCE|WITH|BUILD|USE|ENABLE|INSTALL|COMPILE)_(?:CUDA|GPU)(?:_(?:BUILD|KERNELS?|OPS|EXT\w*))?|\w+_CUDA_EXT"
)
_OFF = re.compile(r"\w*(?:NO_CUDA|(?:ONLY|FORCE)_CPU|CPU_ONLY|(?:DISABLE|SKIP|WITHOUT)_CUDA)\w*")
_ARCHITECTURES = re.compile(r"CUDA\w*ARCH|\bSM_?ARCH|GENCODE|COMPUTE_CAPABILIT")


def is_arch_variable(name: str) -> bool:
    """``CUDA_ARCHITECTURES``, ``TCNN_CUDA_ARCHITECTURES``, ``CUDAARCHS``, ``CUDA_ARCH``... but not torch's."""
    return name != "TORCH_CUDA_ARCH_LIST" and _ARCHITECTURES.search(name) is not None


def switches_on(name: str) -> bool:
    """``FORCE_CUDA``, ``BUILD_WITH_CUDA``."""
    return _ON.fullmatch(name) is not None


def switches_off(name: str) -> bool:
    """``NO_CUDA``, ``FORCE_ONLY_CPU``."""
    return _OFF.fullmatch(name) is not None
