"""What to do about a class of failures, as commands: for a machine whose facts are known, else where any machine takes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property

from splatfix.context import Context
from splatfix.core.step import Step, run, say, set_variable, unset_variable
from splatfix.plan.option import BUILDING, REPLACING, Option, OptionKind
from splatfix.plan.options import find_options

_OTHER_TORCH = ("cpu_only_torch", "driver_too_old", "torch_arch_unsupported", "torch_not_installed")
_BUILDS = (
    "arch_below_minimum",
    "arch_unknown_to_torch",
    "bad_arch_list",
    "cub_thrust_mismatch",
    "cuda_headers_missing",
    "cuda_toolkit_missing",
    "cuda_torch_mismatch",
    "cxx_standard_too_old",
    "ext_dll_load_failed",
    "ext_link_incomplete",
    "ext_not_installed",
    "glibc_cuda_math_conflict",
    "host_gcc_too_new",
    "linker_cudart_missing",
    "linker_libcuda_missing",
    "missing_cfloat",
    "missing_cstdint",
    "missing_thrust_include",
    "msvc_missing",
    "msvc_std_ambiguous",
    "msvc_unsupported",
    "msvc_x86_host",
    "no_kernel_image",
    "pip_build_isolation",
    "ptx_unsupported",
    "rasterizer_api_mismatch",
    "shared_lib_not_found",
    "silent_kernel_failure",
    "toolkit_dropped_arch",
    "toolkit_too_old_for_arch",
    "torch_abi_mismatch",
)
"""Classes that a build by ``splatfix install`` answers: it chooses toolkit, compiler and architectures, and mends sources."""

_SUBMODULES = (
    run(
        "git",
        "submodule",
        "update",
        "--init",
        "--recursive",
        text="In the trainer's folder, fetch what it lacks",
    ),
)
_SCENE = (say("splatfix scenes check, with the scene's folder after it, names what the scene lacks."),)
_RAISED = "Make the error stand where it is raised, and run it again"
_ANYWHERE: Mapping[str, tuple[Step, ...]] = {
    "alloc_conf_crash": (
        unset_variable("PYTORCH_CUDA_ALLOC_CONF", text="Take the allocator's setting away"),
        unset_variable("PYTORCH_ALLOC_CONF", text="Its name from torch 2.9 on"),
    ),
    "build_oom": (set_variable("MAX_JOBS", "2", text="Start fewer compilers at a time"),),
    "conda_solve_fail": (
        run("conda", "config", "--set", "channel_priority", "flexible", text="Let the solver mix channels"),
    ),
    "cuda_oom_runtime": (run("nvidia-smi", text="See which programs hold the GPU's memory"),),
    "dataset_camera_model": _SCENE,
    "dataset_colmap_model_missing": _SCENE,
    "dataset_empty_points": _SCENE,
    "dataset_images_missing": _SCENE,
    "dataset_scene_type": _SCENE,
    "docker_gpu_runtime_missing": (
        run("sudo", "apt-get", "install", "nvidia-container-toolkit", text="On Debian and Ubuntu"),
        run("sudo", "nvidia-ctk", "runtime", "configure", "--runtime=docker", text="Make Docker know it"),
        run("sudo", "systemctl", "restart", "docker"),
    ),
    "glm_missing": _SUBMODULES,
    "no_gpu_visible": (run("nvidia-smi", text="See whether the driver lists the GPU"),),
    "rasterizer_illegal_access": (set_variable("CUDA_LAUNCH_BLOCKING", "1", text=_RAISED),),
    "submodules_missing": _SUBMODULES,
    "wrong_cuda_device": (set_variable("CUDA_VISIBLE_DEVICES", "0", text="Show the program one GPU"),),
}
_PIP: Mapping[str, tuple[str, ...]] = {
    "ninja_missing": ("ninja",),
    "numpy2_abi": ("numpy<2",),
    "setuptools_incompatible": ("setuptools<70", "wheel"),
}
"""What to install in the environment where it failed."""


class Answers:
    """What answers each class of failures: on one machine, or on any."""

    def __init__(self, context: Context | None = None) -> None:
        """Take the machine where it failed.

        Args:
            context: None where its facts are not known.
        """
        self._context = context

    @cached_property
    def _options(self) -> tuple[Option, ...]:
        return find_options(self._context).available if self._context else ()

    def to(self, failure: str) -> tuple[Step, ...]:
        """Commands that answer a class of failures; () where none is known to."""
        packages = _PIP.get(failure, ())
        if self._context is None and packages:
            text = "In the environment where it failed"
            return (run("python", "-m", "pip", "install", *packages, text=text),)
        if self._context is not None and packages:
            return (self._context.pip("install", *packages),)
        if failure in _OTHER_TORCH:
            return self._first((OptionKind.OTHER_TORCH,))
        if failure in _BUILDS:
            return self._first(BUILDING) or self._first(REPLACING)
        return _ANYWHERE.get(failure, ())

    def _first(self, kinds: Collection[OptionKind]) -> tuple[Step, ...]:
        """The steps of the least invasive available option of these kinds."""
        steps = next((item.steps for item in self._options if item.kind in kinds), ())
        return tuple(Step(step.text[:1].upper() + step.text[1:], step.command) for step in steps)
