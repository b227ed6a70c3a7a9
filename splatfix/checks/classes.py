"""Which checks foresee which class of failure; and of the classes that no facts foretell, the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Foresight:
    """What the checks can say of one failure class before it happens."""

    codes: tuple[str, ...] = ()
    """Checks that foresee it."""
    limit: str = ""
    """What of it no check can foresee, and why; "" when the checks see all of it."""


def _by(*codes: str, limit: str = "") -> Foresight:
    return Foresight(codes, limit)


def _not(why: str) -> Foresight:
    return Foresight((), why)


_DATA = "it lies in the scene's data, which the facts of a machine do not hold"
_RUN = "it shows only while a training runs; splatfix certify watches for it"

# In the order of knowledge/data/failures.json: the commonest first.
FORESIGHT: Mapping[str, Foresight] = {
    "rasterizer_api_mismatch": _by(
        "rasterizer-api-mismatch",
        "compiled-part-mismatch",
        "module-name-clash",
        "splat-variant",
        "silent-fallback",
    ),
    "torch_abi_mismatch": _by("torch-abi-mismatch", "cxx11-abi-mismatch", "duplicate-runtimes"),
    "no_kernel_image": _by(
        "no-kernel-image",
        "jit-cache-arch",
        "arch-list-ignored",
        "arch-in-path",
        "arch-list-misses-gpu",
        "arch-clamped",
        "no-gpu-at-build",
    ),
    "rasterizer_illegal_access": _by(
        "compiled-part-mismatch",
        "wrong-cuda-device",
        "alloc-conf-crash",
        limit=f"of NaN, infinite scales and wrong shapes: {_RUN}",
    ),
    "cuda_toolkit_missing": _by("cuda-toolkit-missing", "cuda-home-wrong", "gsplat-without-kernels"),
    "missing_cstdint": _by("missing-cstdint"),
    "pip_build_isolation": _by("build-isolation"),
    "host_gcc_too_new": _by("host-gcc-too-new", "host-compiler-refused-by-torch"),
    "cuda_oom_runtime": _by("vram-for-stack", limit=f"of a scene larger than the published ones: {_RUN}"),
    "cuda_torch_mismatch": _by("cuda-torch-mismatch", "cuda-runtime-mismatch"),
    "dataset_scene_type": _not(_DATA),
    "torch_arch_unsupported": _by("torch-arch-unsupported", "pinned-torch-too-old"),
    "arch_unknown_to_torch": _by("arch-unknown-to-torch", "arch-list-malformed"),
    "cpu_only_torch": _by("cpu-only-torch"),
    "cxx_standard_too_old": _by("cxx-standard-forced", "host-gcc-too-old"),
    "glm_missing": _by("glm-missing"),
    "gsplat_version_mismatch": _by("gsplat-version-mismatch"),
    "msvc_missing": _by("host-compiler-missing", "msvc-not-on-path"),
    "network_fetch_fail": _by(
        "submodule-over-ssh", limit="of hosts that are down and proxies: checks never use the network"
    ),
    "ninja_missing": _by("build-tools", "ninja-not-on-path"),
    "numpy2_abi": _by("numpy2-abi"),
    "ptx_unsupported": _by("ptx-newer-than-driver", "torch-arch-unsupported", "arch-list-misses-gpu"),
    "toolkit_too_old_for_arch": _by("toolkit-arch", "arch-list-unbuildable"),
    "arch_below_minimum": _by("arch-below-minimum", "arch-list-below-minimum"),
    "build_oom": _by("build-out-of-memory", "wsl-without-swap"),
    "conda_solve_fail": _not("conda decides it against its channels, and checks never use the network"),
    "dataset_colmap_model_missing": _not(_DATA),
    "egl_missing": _by("egl-missing"),
    "ext_not_installed": _by(
        "ext-not-installed",
        "compiled-part-missing",
        "extension-python-mismatch",
        "silent-fallback",
        "editable-source-gone",
    ),
    "linker_libcuda_missing": _by("linker-libcuda-missing"),
    "missing_cfloat": _by("missing-cfloat"),
    "msvc_std_ambiguous": _by("msvc-std-ambiguous"),
    "stale_jit_cache": _by("stale-jit-cache", "jit-cache-locked"),
    "colmap_missing": _by("colmap-missing"),
    "dataset_camera_model": _not(_DATA),
    "dataset_empty_points": _not(_DATA),
    "dataset_images_missing": _not(_DATA),
    "dataset_input_folder": _not(_DATA),
    "docker_gpu_runtime_missing": _by("docker-gpu-runtime-missing"),
    "driver_too_old": _by("driver-too-old", "forward-compat-on-geforce"),
    "ext_dll_load_failed": _by("cuda-runtime-mismatch", "shared-lib-not-found"),
    "glibc_cuda_math_conflict": _by("glibc-cuda-math-conflict"),
    "glibcxx_missing": _by("glibcxx-missing", "glibc-too-old"),
    "gpu_not_passed_to_container": _by("driver-library-missing", "gpu-not-passed-to-container"),
    "import_shadowing": _by("import-shadowing"),
    "msvc_unsupported": _by("host-msvc-too-new"),
    "no_gpu_visible": _by(
        "no-gpu-visible",
        "gpu-without-driver",
        "driver-library-mismatch",
        "wsl-wrong-libcuda",
        "stub-libcuda-loaded",
    ),
    "no_matching_wheel": _by(
        "no-matching-wheel", limit="of packages other than torch: their indexes are not asked"
    ),
    "setuptools_incompatible": _by("setuptools-incompatible"),
    "shared_lib_not_found": _by("shared-lib-not-found", "cuda-runtime-mismatch"),
    "silent_kernel_failure": _by("no-kernel-image", "ptx-newer-than-driver", "jit-cache-arch"),
    "submodules_missing": _by("submodules-missing"),
    "toolkit_dropped_arch": _by("toolkit-dropped-arch", "toolkit-arch", "arch-list-unbuildable"),
    "bad_arch_list": _by("arch-list-malformed"),
    "colmap_option_mismatch": _by("colmap-option-mismatch"),
    "cuda_headers_missing": _by("cuda-headers-missing", "cuda-home-wrong"),
    "ext_link_incomplete": _by("ext-link-incomplete", "source-incomplete"),
    "import_torch_first": _by("import-torch-first"),
    "linker_cudart_missing": _by("linker-cudart-missing", "cuda-headers-missing"),
    "msvc_link_obj_missing": _not(
        "it follows from an earlier compile error, which is what the other checks look for"
    ),
    "msvc_x86_host": _by("msvc-x86-host"),
    "pip_path_as_name": _not("it lies in what a person types"),
    "train_all_pruned": _not(_RUN),
    "wrong_cuda_device": _by("wrong-cuda-device"),
    "alloc_conf_crash": _by("alloc-conf-crash"),
    "colmap_crash": _not("COLMAP is asked for its version, and crashes on data"),
    "colmap_no_gpu": _by("colmap-no-gpu"),
    "conda_env_exists": _not("facts hold one environment, not conda's list of all"),
    "cub_thrust_mismatch": _by("cub-thrust-mismatch"),
    "libtorch_wrong_package": _not("it concerns C++ programs, which bring a libtorch of their own"),
    "missing_thrust_include": _by("missing-thrust-include"),
    "python_version_unsupported": _by("python-version-unsupported"),
    "torch_dll_load_failed": _by("msvc-runtime-missing", "torch-imports"),
    "torch_not_installed": _by("torch-installed"),
    "train_nan_loss": _not(_RUN),
}


def foreseen_by(code: str) -> tuple[str, ...]:
    """Names of the failure classes that the check of this code foresees, the commonest first."""
    return tuple(name for name, item in FORESIGHT.items() if code in item.codes)
