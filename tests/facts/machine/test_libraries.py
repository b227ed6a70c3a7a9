"""What lies around a build: libcuda, graphics headers, copies of CUB, container and Windows runtimes, COLMAP; what was not
looked at stays unknown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from splatfix.checks import run_checks
from splatfix.context import make_context
from splatfix.core.codec import to_json
from splatfix.core.files import write_json
from splatfix.facts import Colmap, LiveSystem, load, read_source
from splatfix.facts.environment.extensions import _has_init
from splatfix.facts.environment.packages import _imports_torch
from splatfix.facts.machine import libraries as look
from splatfix.facts.machine import toolkits
from splatfix.facts.source.extension import code_matches
from splatfix.facts.system.playback import PlaybackSystem
from splatfix.knowledge.breakages import source_patterns
from tests.machines import facts_of

MachineOf = Callable[..., PlaybackSystem]
LIBS = "/usr/lib/x86_64-linux-gnu"
CUB = "#define CUB_VERSION 200802 // macro expansion with ## requires this to be a single value\n"


def test_which_libcuda_is_loaded(machine_of: MachineOf) -> None:
    box = machine_of(
        files={
            "/etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n",
            "/etc/ld.so.conf.d/ld.wsl.conf": "/usr/lib/wsl/lib\n",
        },
        env={"LD_LIBRARY_PATH": "/opt/compat"},
        exists=[
            f"{LIBS}/libc.so.6",
            f"{LIBS}/libcuda.so.1",
            "/usr/lib/wsl/lib/libcuda.so.1",
            "/opt/compat/libcuda.so.1",
        ],
        links={f"{LIBS}/libcuda.so.1": f"{LIBS}/libcuda.so.575.57.08"},
    )
    assert look.loaded_libcuda(box).value == (
        "/opt/compat/libcuda.so.1",
        "/usr/lib/wsl/lib/libcuda.so.1",
        f"{LIBS}/libcuda.so.575.57.08",
    )


def test_a_recording_that_never_saw_the_loaders_folders_says_nothing(machine_of: MachineOf) -> None:
    bare = machine_of()
    assert not look.loaded_libcuda(bare).known
    assert not look.missing_graphics(bare).known
    assert not look.missing_msvc_runtime(bare).known
    assert not look.container_toolkit(bare).known
    assert look.header_copies(bare).value == ()


def test_libcuda_for_the_linker(machine_of: MachineOf) -> None:
    stubs = "/usr/local/cuda/lib64/stubs"
    box = machine_of(env={"LIBRARY_PATH": stubs}, exists=[f"{stubs}/libcuda.so", f"{LIBS}/libcuda.so.1"])
    assert look.linkable_libcuda(box).value == (f"{stubs}/libcuda.so",)


def test_graphics_headers(machine_of: MachineOf) -> None:
    box = machine_of(
        exists=["/usr/include/stdlib.h", "/usr/include/GL/gl.h", "/conda/include/EGL/egl.h"],
        env={"CONDA_PREFIX": "/conda"},
    )
    assert look.missing_graphics(box).value == ("GLES3/gl3.h",)


def test_copies_of_cub_and_thrust(machine_of: MachineOf) -> None:
    box = machine_of(
        files={
            "/home/u/cub/cub/version.cuh": CUB.replace("200802", "101000"),
            "/usr/include/thrust/version.h": "#define THRUST_VERSION 101500\n",
        },
        env={"CUB_HOME": "/home/u/cub", "CPATH": "/nowhere"},
    )
    found = look.header_copies(box).value or ()
    assert [(item.via, item.cub, item.thrust) for item in found] == [
        ("CUB_HOME", "1.10.0", ""),
        ("the compiler's own search", "", "1.15.0"),
    ]


@pytest.mark.parametrize("place", ["include/cub", "include/cccl/cub"])
def test_a_toolkits_own_cub_and_cudart(machine_of: MachineOf, place: str) -> None:
    root = "/usr/local/cuda-12.9"
    box = machine_of(
        files={
            f"{root}/{place}/version.cuh": CUB,
            f"{root}/include/crt/host_config.h": "#if __GNUC__ > 14\n",
        },
        exists=[
            f"{root}/bin/nvcc",
            f"{root}/include/cuda_runtime.h",
            f"{root}/targets/x86_64-linux/lib/libcudart.so",
        ],
    )
    (found,) = toolkits.probe(box).value or ()
    assert found.cub == "2.8.2"
    assert (found.cudart_in, found.has_lib64) == (("targets/x86_64-linux/lib",), False)


def test_docker_and_nvidias_toolkit(machine_of: MachineOf) -> None:
    box = machine_of(
        env={"PATH": "/usr/bin"}, exists=["/usr/bin/docker", "/usr/bin/nvidia-ctk", "/etc/cdi/nvidia.yaml"]
    )
    assert look.container_toolkit(box).value == ("/usr/bin/nvidia-ctk", "/etc/cdi/nvidia.yaml")


def test_the_visual_cpp_runtime(machine_of: MachineOf) -> None:
    names = ("KERNEL32.dll", "VCRUNTIME140.dll", "MSVCP140.dll")
    box = machine_of("windows", exists=[f"C:/Windows/System32/{name}" for name in names])
    assert look.missing_msvc_runtime(box).value == ("vcruntime140_1.dll",)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (
            "COLMAP 3.9.1 -- Structure-from-Motion and Multi-View Stereo\n(Commit Unknown on Unknown without CUDA)\n",
            Colmap("3.9.1", False),
        ),
        (
            "COLMAP 3.14.0.dev0 -- Structure-from-Motion\n(Commit afe04f56 on 2025-11-07 with CUDA)\n",
            Colmap("3.14.0", True),
        ),
        ("COLMAP 3.6 -- Structure-from-Motion\n", Colmap("3.6", None)),
        ("Segmentation fault", None),
    ],
)
def test_colmap_says_what_it_is(machine_of: MachineOf, said: str, found: Colmap | None) -> None:
    box = machine_of(
        env={"PATH": "/usr/bin"}, exists=["/usr/bin/colmap"], commands={("colmap", "help"): said}
    )
    assert look.colmap(box).value == found


def test_no_colmap(machine_of: MachineOf) -> None:
    absent = look.colmap(machine_of(env={"PATH": "/usr/bin"}))
    assert (absent.value, absent.found_via) == (None, "PATH")


def test_what_setup_links_by_name(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(
        "from setuptools import setup\nfrom torch.utils.cpp_extension import CUDAExtension\n"
        "libs = ['cuda', 'cudadevrt']\n"
        "setup(name='x', ext_modules=[CUDAExtension('x', ['a.cu'], libraries=libs, extra_link_args=['-lEGL', '-O2'])])\n"
    )
    assert read_source(tmp_path).libraries == ("cuda", "cudadevrt", "EGL")


def test_thrust_sequence_without_its_header(tmp_path: Path) -> None:
    call = "void f() { thrust::sequence(a, b); }\n"
    (tmp_path / "bad.cu").write_text(f"#include <thrust/device_vector.h>\n{call}")
    (tmp_path / "good.cu").write_text(f"#include <thrust/sequence.h>\n{call}")
    (tmp_path / "through.cu").write_text(f'#include "local.h"\n{call}')
    (tmp_path / "local.h").write_text("#include <thrust/sequence.h>\n")
    (tmp_path / "comment.cu").write_text("// thrust::sequence\n")
    found = [item for item in code_matches(tmp_path, source_patterns()) if item.breakage == "thrust-sequence"]
    assert [(item.file, item.line) for item in found] == [("bad.cu", 2)]


def test_a_python_module_is_known_by_its_init_function() -> None:
    system = LiveSystem()
    import _ctypes as compiled  # a real extension module of this interpreter

    folder, _, name = compiled.__file__.rpartition("/")
    assert _has_init(system, folder, name) is True
    assert _has_init(system, folder, "nothing_there.so") is None


@pytest.mark.parametrize(
    ("text", "imports"),
    [
        ("import torch\nfrom . import _C\n", True),
        ("from torch import nn\n", True),
        ("from . import _C\n", False),
        ("from ._C import distCUDA2\n", False),
        ("", False),
        ("from .cuda import rasterize\n", None),
        ("from . import cuda\n", None),
    ],
)
def test_who_imports_torch_by_itself(text: str, imports: bool | None) -> None:
    assert _imports_torch(text) is imports


def test_facts_of_an_older_splatfix_leave_the_new_fields_unknown(tmp_path: Path) -> None:
    """A facts.json that was saved before these fields were there still loads, and checks say nothing of them."""
    new = facts_of("rtx-5060-ti-wsl2")
    document = to_json(new)
    assert isinstance(document, dict)
    fields = (
        "libcuda",
        "linkable_libcuda",
        "header_copies",
        "missing_graphics",
        "missing_msvc_runtime",
        "container_toolkit",
        "colmap",
    )
    for name in fields:
        del document["machine"][name]
    for toolkit in document["machine"]["toolkits"]["value"]:
        for name in ("cudart_in", "has_lib64", "cub"):
            del toolkit[name]
    for extension in document["environment"]["extensions"]["value"]:
        extension.pop("python_module", None)
    write_json(tmp_path / "facts.json", document)
    old = load(tmp_path / "facts.json")
    assert not [name for name in fields if getattr(old.machine, name).known]
    assert {item.code for item in run_checks(make_context(new))} - {
        item.code for item in run_checks(make_context(old))
    } == {"wsl-wrong-libcuda"}
