"""What to do about a class of failures, as commands: for a machine whose facts are known, else where any machine takes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from splatfix.context import Context
from splatfix.core.errors import Problem
from splatfix.core.step import Step, run, say, set_variable, unset_variable
from splatfix.knowledge.dropins import dropin_named
from splatfix.plan.option import BUILDING, REPLACING, Option, OptionKind
from splatfix.plan.options import find_options
from splatfix.plan.requirements import usable_torch

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

_COMPILER_FREE = {*_BUILDS, "build_oom", "msvc_link_obj_missing", "ninja_missing"} - {
    "arch_below_minimum",
    "toolkit_dropped_arch",
}
"""Classes of which nothing is left where torch's own NVRTC compiles the CUDA code; GPUs that are too old stay too old."""

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

    def without_compiler(self, failure: str, dropins: Sequence[str]) -> tuple[Step, ...]:
        """Drop-ins with CUDA code, for a class that a compiler has a part in; () where torch's NVRTC cannot serve there.

        Args:
            dropins: modules it concerns that have such a drop-in.
        """
        context = self._context
        if not dropins or failure not in _COMPILER_FREE:
            return ()
        if context and (not context.archs or isinstance(usable_torch(context, cuda=True), Problem)):
            return ()
        why = "Or with no compiler at all: drop-ins whose CUDA code the NVRTC of a CUDA torch compiles"
        if all(dropin_named(name) for name in dropins):
            return (run("splatfix", "install", *dropins, "--backend", "nvrtc", text=why),)
        # several packages share the name of a rasterizer: the checkout says which of them is meant
        return (
            run("splatfix", "install", ".", "--backend", "nvrtc", text=f"{why} (in the trainer's folder)"),
        )

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
