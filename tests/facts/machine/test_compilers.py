"""Host compilers: versioned names, variables, conda's, and Visual Studio's by vswhere."""

import json

from splatfix.facts.machine import compilers
from tests.facts.conftest import MachineOf

GXX = "g++ (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0\nCopyright (C) 2023 Free Software Foundation, Inc.\n"
CONDA = "x86_64-conda-linux-gnu-g++ (conda-forge gcc 12.4.0-2) 12.4.0\n"
VSWHERE = "C:\\Program Files (x86)/Microsoft Visual Studio/Installer/vswhere.exe"
STUDIO = "C:\\Program Files\\Microsoft Visual Studio\\2022\\Community"
ASK = ("-products", "*", "-format", "json", "-utf8")


def test_compilers_on_path_and_in_variables(machine_of: MachineOf) -> None:
    box = machine_of(
        env={"PATH": "/usr/bin", "CXX": "ccache g++-13", "NVCC_PREPEND_FLAGS": "-ccbin=/opt/gcc/bin/g++ -O3"},
        exists=["/usr/bin/g++-13", "/opt/gcc/bin/g++", "/usr/bin/g++-13-config"],
        commands={
            ("/usr/bin/g++-13", "--version"): GXX,
            ("/opt/gcc/bin/g++", "--version"): GXX.replace("13.3.0", "11.4.0"),
        },
    )
    found = {item.path: item for item in compilers.probe(box).value or ()}
    assert found["/usr/bin/g++-13"].found_via == ("CXX", "PATH")
    assert found["/opt/gcc/bin/g++"].found_via == ("NVCC_PREPEND_FLAGS -ccbin",)
    assert found["/opt/gcc/bin/g++"].version == "11.4.0"
    assert len(found) == 2


def test_condas_compilers_off_path(machine_of: MachineOf) -> None:
    program = "/opt/conda/bin/x86_64-conda-linux-gnu-g++"
    box = machine_of(
        env={"PATH": "/usr/bin"},
        exists=[program, "/opt/conda/conda-meta/history"],
        commands={(program, "--version"): CONDA},
    )
    (item,) = compilers.probe(box, "/opt/conda").value or ()
    assert (item.kind, item.version, item.found_via) == ("g++", "12.4.0", ("the conda environment",))


def test_a_visual_studio_whose_cl_says_no_version(machine_of: MachineOf) -> None:
    tools = f"{STUDIO}\\VC\\Tools\\MSVC"
    cl = f"{tools}\\14.40.33807\\bin\\Hostx64\\x64\\cl.exe"
    studio = {"installationPath": STUDIO, "displayName": "Visual Studio Community 2022"}
    listed = json.dumps([{**studio, "catalog": {"productDisplayVersion": "17.10.1"}}])
    box = machine_of(
        "windows",
        env={"ProgramFiles(x86)": "C:\\Program Files (x86)", "PATH": "C:\\Windows"},
        commands={(VSWHERE, *ASK): listed},
        exists=[cl, f"{tools}\\14.9.1\\bin\\x"],
    )
    (item,) = compilers.probe(box).value or ()
    assert (item.kind, item.version) == ("cl", "19.40")
    assert item.path == cl
    assert item.found_via == ("vswhere: Visual Studio Community 2022 17.10.1",)
