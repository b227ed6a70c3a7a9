"""What lies around a build: libcuda, graphics headers, copies of CUB, container and Windows runtimes, COLMAP; what was not
looked at stays unknown."""

from pathlib import Path

import pytest

from splatfix.checks import run_checks
from splatfix.context import make_context
from splatfix.core.codec import to_json
from splatfix.core.files import write_json
from splatfix.facts import load
from splatfix.facts.machine import libraries as look
from splatfix.model import Colmap
from tests.facts.conftest import MachineOf
from tests.machines import facts_of

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


def test_folders_never_seen_leave_facts_unknown(machine_of: MachineOf) -> None:
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


def test_docker_and_nvidias_toolkit(machine_of: MachineOf) -> None:
    box = machine_of(
        env={"PATH": "/usr/bin"}, exists=["/usr/bin/docker", "/usr/bin/nvidia-ctk", "/etc/cdi/nvidia.yaml"]
    )
    assert look.container_toolkit(box).value == ("/usr/bin/nvidia-ctk", "/etc/cdi/nvidia.yaml")


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


def test_older_facts_leave_new_fields_unknown(tmp_path: Path) -> None:
    """A facts.json that was saved before these fields were there still loads, and checks say nothing of them."""
    new = facts_of("rtx-5060-ti-wsl2")
    document = to_json(new)
    assert isinstance(document, dict)
    fields = (
        *("libcuda", "linkable_libcuda", "header_copies", "missing_graphics", "missing_msvc_runtime"),
        *("container_toolkit", "colmap"),
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
