"""Where toolkits lie: Debian's split package, the HPC SDK, conda, Windows, and headers in the environment's packages."""

from __future__ import annotations

from collections.abc import Callable

from splatfix.facts.machine import toolkits
from splatfix.facts.system.playback import PlaybackSystem

MachineOf = Callable[..., PlaybackSystem]
VERSION = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 12.4, V12.4.131\n"
SITE = "/env/lib/python3.11/site-packages"
LIMITS = "#if __GNUC__ > 13\n#if _MSC_VER < 1910 || _MSC_VER >= 1950\n"


def roots(machine: PlaybackSystem, *, includes: tuple[str, ...] = ()) -> dict[str, toolkits.Toolkit]:
    return {item.root: item for item in toolkits.probe(machine, (), includes).value or ()}


def test_the_hpc_sdk(machine_of: MachineOf) -> None:
    root = "/opt/nvidia/hpc_sdk/Linux_x86_64/24.5/cuda/12.4"
    box = machine_of(
        files={f"{root}/include/crt/host_config.h": LIMITS},
        exists=[f"{root}/bin/nvcc"],
        commands={(f"{root}/bin/nvcc", "--version"): VERSION},
    )
    item = roots(box)[root]
    assert (item.version, item.gcc_max, item.msvc_max) == ("12.4.131", 13, 1949)
    assert item.found_via == ("/opt/nvidia/hpc_sdk",)


def test_conda_keeps_headers_under_targets(machine_of: MachineOf) -> None:
    prefix = "/conda"
    base = f"{prefix}/targets/x86_64-linux"
    box = machine_of(
        env={"CONDA_PREFIX": prefix},
        files={f"{base}/include/crt/host_config.h": LIMITS},
        exists=[f"{prefix}/bin/nvcc", f"{base}/include/cuda_runtime.h", f"{base}/lib/libcudart.so"],
        commands={(f"{prefix}/bin/nvcc", "--version"): VERSION},
    )
    item = roots(box)[prefix]
    assert item.version == "12.4.131"
    assert "lib64/libcudart.so" not in item.missing
    assert "include/cuda_runtime.h" not in item.missing
    assert "include/cublas_v2.h" in item.missing


def test_runtime_headers_without_nvcc_are_told_as_such(machine_of: MachineOf) -> None:
    base = "/conda/targets/x86_64-linux"
    box = machine_of(
        env={"CONDA_PREFIX": "/conda"},
        files={f"{base}/include/crt/host_config.h": LIMITS},
        exists=[f"{base}/include/cuda_runtime.h"],
    )
    item = roots(box)[base]
    assert item.nvcc is None
    assert "bin/nvcc" in item.missing


def test_windows_by_the_installers_variables(machine_of: MachineOf) -> None:
    root = "D:\\CUDA\\v12.4"
    box = machine_of(
        "windows",
        env={"CUDA_PATH_V12_4": root},
        files={f"{root}\\include\\crt\\host_config.h": LIMITS},
        exists=[f"{root}\\bin\\nvcc.exe", f"{root}\\lib\\x64\\cudart.lib"],
        commands={(f"{root}/bin/nvcc.exe", "--version"): VERSION},
    )
    item = roots(box)[root]
    assert (item.version, item.found_via) == ("12.4.131", ("CUDA_PATH_V12_4",))
    assert "bin/ptxas.exe" in item.missing
    assert "lib/x64/cudart.lib" not in item.missing


def test_missing_headers_are_found_in_the_environments_own_packages(machine_of: MachineOf) -> None:
    root = "/usr/local/cuda-12.4"
    box = machine_of(
        files={f"{root}/include/crt/host_config.h": LIMITS},
        exists=[
            f"{root}/bin/nvcc",
            f"{SITE}/nvidia/cublas/include/cublas_v2.h",
            f"{SITE}/nvidia/cusparse/include/cusparse.h",
            f"{SITE}/nvidia/cu13/include/cccl/cub/cub.cuh",
            f"{SITE}/nvidia/nccl/lib/libnccl.so.2",
        ],
        commands={(f"{root}/bin/nvcc", "--version"): VERSION},
    )
    includes = toolkits.packaged_includes(box, [SITE])
    assert includes == tuple(f"{SITE}/nvidia/{name}/include" for name in ("cu13", "cublas", "cusparse"))
    item = roots(box, includes=includes)[root]
    assert item.elsewhere == {
        "cublas_v2.h": f"{SITE}/nvidia/cublas/include",
        "cusparse.h": f"{SITE}/nvidia/cusparse/include",
    }, "headers of CUDA 13 are none for a toolkit 12.4"
    assert "include/cusolverDn.h" in item.missing


def test_debians_nvcc_names_no_top(machine_of: MachineOf) -> None:
    said = {
        "stderr": "#$ _NVVM_BRANCH_=nvvm\n#$ _HERE_=/usr/lib/nvidia-cuda-toolkit/bin\n#$ _TARGET_SIZE_=64\n"
    }
    box = machine_of(
        commands={("/usr/bin/nvcc", "--dryrun", "-x", "cu", "-c", "/dev/null", "-o", "/dev/null"): said}
    )
    assert toolkits.ask_root(box, "/usr/bin/nvcc") == "/usr"


def test_headers_of_cuda_13_packages_for_a_toolkit_13(machine_of: MachineOf) -> None:
    root = "/usr/local/cuda-13.0"
    box = machine_of(
        files={f"{root}/include/crt/host_config.h": LIMITS},
        exists=[
            f"{root}/bin/nvcc",
            f"{SITE}/nvidia/cublas/include/cublas_v2.h",
            f"{SITE}/nvidia/cu13/include/cusparse.h",
            f"{SITE}/nvidia/cu13/include/cccl/cub/cub.cuh",
        ],
        commands={(f"{root}/bin/nvcc", "--version"): VERSION.replace("12.4", "13.0")},
    )
    item = roots(box, includes=toolkits.packaged_includes(box, [SITE]))[root]
    assert item.elsewhere == {
        "cusparse.h": f"{SITE}/nvidia/cu13/include",
        "cub/cub.cuh": f"{SITE}/nvidia/cu13/include/cccl",
    }
