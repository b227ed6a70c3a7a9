"""Writes the raw inputs of every machine in this folder: ``python -m tests.machines.build``."""

from __future__ import annotations

import json

from tests.machines.builder import (
    Machine,
    card,
    debian_toolkit,
    extension,
    gpu,
    kernel_module,
    linux,
    python,
    toolkit,
    tools,
    torch,
    ubuntu_gcc,
    user_driver,
)  # fmt: skip

TOOLS = {"setuptools": "80.9.0", "wheel": "0.45.1", "ninja": "1.13.0", "numpy": "2.1.2", "pip": "25.2"}
OLD_TOOLS = {"setuptools": "65.5.0", "wheel": "0.45.1", "ninja": "1.11.1", "numpy": "1.26.4", "pip": "23.2.1"}
UBUNTU_24 = ("Ubuntu 24.04.3 LTS", "6.14.0-33-generic")
UBUNTU_22 = ("Ubuntu 22.04.5 LTS", "6.8.0-79-generic")
GCC_13 = ("13.3.0", "Ubuntu 13.3.0-6ubuntu2~24.04")
GCC_11 = ("11.4.0", "Ubuntu 11.4.0-1ubuntu1~22.04")
CU128 = "70 75 80 86 90 100 120"  # torch 2.8 and 2.9, Linux x86_64 (knowledge/data/torch_releases.json)
CU130_ARM = "80 90 100 110 120"
CU121 = "50 60 70 75 80 86 90"
RASTERIZER, KNN = "diff_gaussian_rasterization", "simple_knn"
PROC = "the NVRM line of public bug reports and driver guides"
SYSFS = "sysfs of the Linux kernel's PCI subsystem with ids of the PCI ID database"


def vulkaninfo(m: Machine, *devices: tuple[str, str, str, str]) -> None:
    """``vulkaninfo --summary`` of Vulkan-Tools: (name, type, driver name, driver info) of each device."""
    m.exists("/usr/bin/vulkaninfo")
    text = "==========\nVULKANINFO\n==========\n\nVulkan Instance Version: 1.3.275\n\n\nDevices:\n========\n"
    for index, (name, kind, driver, info) in enumerate(devices):
        text += (
            f"GPU{index}:\n\tapiVersion         = 1.3.289\n\tdeviceType         = PHYSICAL_DEVICE_TYPE_{kind}\n"
            f"\tdeviceName         = {name}\n\tdriverName         = {driver}\n\tdriverInfo         = {info}\n"
        )
    m.command(["vulkaninfo", "--summary"], text)


def rtx_5080() -> Machine:
    m = Machine(
        "rtx-5080",
        f"{PROC}; vulkaninfo of Vulkan-Tools; memory sizes, dates and nvcc's build line from general knowledge (unverified); {SYSFS}",
    )
    linux(m, *UBUNTU_24, glibc="2.39", gib=64, cores=24)
    card(m, "0000:01:00.0", "10de", "2c02", "nvidia")
    kernel_module(m, "575.57.08", is_open=True, date="Sat May 24 06:50:37 UTC 2025")
    user_driver(m, "575.57.08")
    m.nvml = {"driver": "575.57.08", "cuda": 12090,
              "gpus": [gpu(0, "NVIDIA GeForce RTX 5080", "12.0", 16303, "00000000:01:00.0", display=True)]}  # fmt: skip
    vulkaninfo(m, ("NVIDIA GeForce RTX 5080", "DISCRETE_GPU", "NVIDIA", "575.57.08"),
               ("llvmpipe (LLVM 19.1.1, 256 bits)", "CPU", "llvmpipe", "Mesa 25.0.7"))  # fmt: skip
    toolkit(m, "12.9")
    ubuntu_gcc(m, *GCC_13)
    tools(m, cmake="3.28.3", git="2.43.0", ninja="1.11.1")
    site = python(m, "/home/user/gs/env", "3.12.3", "venv", TOOLS)
    torch(m, site, "2.9.0+cu128", "12.8", CU128)
    for package in (RASTERIZER, KNN):
        extension(m, site, package, package, ["sass sm_120"], cudart="12", python_tag="cpython-312")
    return m


def rtx_5060_ti_wsl2() -> Machine:
    m = Machine("rtx-5060-ti-wsl2", "osrelease and paths of Microsoft's WSL2 kernel; NVML under WSL names the Windows driver; "
                "vulkaninfo --summary of Mesa's Dozen inside WSL2")  # fmt: skip
    linux(m, "Ubuntu 24.04.3 LTS", "6.6.87.2-microsoft-standard-WSL2", glibc="2.39", gib=32, cores=16)
    m.exists(
        "/dev/dxg",
        "/usr/lib/wsl/lib/libcuda.so.1",
        "/usr/lib/wsl/lib/libnvidia-ml.so.1",
        "/usr/lib/wsl/lib/nvidia-smi",
    )
    m.env |= {"WSL_DISTRO_NAME": "Ubuntu-24.04", "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/lib/wsl/lib:/mnt/c/Windows/system32:"
              "/mnt/c/Program Files/NVIDIA GPU Computing Toolkit/CUDA/v12.8/bin"}  # fmt: skip
    card(m, "5582:00:00.0", "1414", "008e", "dxgkrnl", "0x030200")
    m.nvml = {"driver": "576.80", "cuda": 12090,
              "gpus": [gpu(0, "NVIDIA GeForce RTX 5060 Ti", "12.0", 16311, "00000000:01:00.0", display=True)]}  # fmt: skip
    vulkaninfo(m, ("Microsoft Direct3D12 (NVIDIA GeForce RTX 5060 Ti)", "DISCRETE_GPU", "Dozen", "Mesa 25.0.7"),
               ("llvmpipe (LLVM 19.1.1, 256 bits)", "CPU", "llvmpipe", "Mesa 25.0.7"))  # fmt: skip
    toolkit(m, "12.8")
    ubuntu_gcc(m, *GCC_13)
    tools(m, git="2.43.0", cmake="3.28.3")
    site = python(m, "/home/user/gs/env", "3.12.3", "uv", TOOLS)
    torch(m, site, "2.8.0+cu128", "12.8", CU128)
    extension(
        m, site, "gsplat", "gsplat", ["sass sm_120"], cudart="12", python_tag="cpython-312", version="1.5.3"
    )
    return m


def _t4_container(name: str, source: str) -> Machine:
    m = Machine(name, source)
    linux(m, "Ubuntu 22.04.3 LTS", "5.15.0-1070-aws", glibc="2.35", gib=16, cores=4, swap_gib=0)
    m.exists("/.dockerenv")
    m.file("/proc/self/cgroup", "0::/\n")
    m.file("/sys/fs/cgroup/memory.max", str(12 * 2**30) + "\n")
    m.file("/sys/fs/cgroup/memory.current", "734003200\n")
    m.file("/sys/fs/cgroup/cpu.max", "200000 100000\n")
    m.paths["free_bytes"]["/dev/shm"] = 64 * 2**20  # docker's default
    m.env |= {
        "HOME": "/root", "NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "NVIDIA_REQUIRE_CUDA": "cuda>=11.8 brand=tesla,driver>=450,driver<451 brand=tesla,driver>=470,driver<471",
        "LD_LIBRARY_PATH": "/usr/local/nvidia/lib:/usr/local/nvidia/lib64", "LIBRARY_PATH": "/usr/local/cuda/lib64/stubs",
    }  # fmt: skip
    card(m, "0000:00:1e.0", "10de", "1eb8", "nvidia", "0x030200")
    kernel_module(m, "535.183.01", is_open=False, date="Sun May 12 19:39:15 UTC 2024")
    m.paths["exists"] = [path for path in m.paths["exists"] if not path.startswith("/dev/nvidia")]
    toolkit(m, "11.8")
    ubuntu_gcc(m, *GCC_11)
    tools(m, git="2.34.1", ninja="1.10.1")
    site = python(m, "/opt/venv", "3.10.12", "venv", OLD_TOOLS)
    torch(m, site, "2.1.2+cu118", "11.8", "37 " + CU121)
    for package in (RASTERIZER, KNN):
        extension(
            m,
            site,
            package,
            package,
            ["sass sm_75", "ptx sm_75 7.8"],
            cudart="11.0",
            python_tag="cpython-310",
        )
    return m


def t4_container_without_gpu() -> Machine:
    return _t4_container("t4-container-without-gpu", "the environment of NVIDIA's CUDA 11.8 image and "
                         "what a container sees of its host, from general knowledge (unverified)")  # fmt: skip


def t4_container() -> Machine:
    m = _t4_container(
        "t4-container",
        "as t4-container-without-gpu, with what the NVIDIA Container Toolkit mounts for --gpus all",
    )
    m.exists("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm", "/usr/bin/nvidia-smi")
    user_driver(m, "535.183.01")
    m.nvml = {
        "driver": "535.183.01",
        "cuda": 12020,
        "gpus": [gpu(0, "Tesla T4", "7.5", 15360, "00000000:00:1E.0")],
    }
    return m


def rtx_3090_and_5090() -> Machine:
    m = Machine(
        "rtx-3090-and-5090",
        f"{PROC}; memory sizes, dates and nvcc's build line from general knowledge (unverified); {SYSFS}",
    )
    linux(m, *UBUNTU_22, glibc="2.35", gib=128, cores=32)
    card(m, "0000:01:00.0", "10de", "2b85", "nvidia")
    card(m, "0000:41:00.0", "10de", "2204", "nvidia")
    kernel_module(m, "580.95.05", is_open=True, date="Tue Sep 23 10:02:00 UTC 2025")
    user_driver(m, "580.95.05")
    m.nvml = {"driver": "580.95.05", "cuda": 13000, "gpus": [
        gpu(0, "NVIDIA GeForce RTX 5090", "12.0", 32607, "00000000:01:00.0", display=True),
        gpu(1, "NVIDIA GeForce RTX 3090", "8.6", 24576, "00000000:41:00.0")]}  # fmt: skip
    toolkit(m, "12.8")
    ubuntu_gcc(m, *GCC_11)
    tools(m, git="2.34.1", cmake="3.22.1")
    site = python(m, "/home/user/miniconda3/envs/gs", "3.11.9", "conda", TOOLS)
    torch(m, site, "2.9.1+cu128", "12.8", CU128)
    extension(m, site, RASTERIZER, RASTERIZER, ["sass sm_86"], cudart="12", python_tag="cpython-311")
    extension(
        m,
        site,
        KNN,
        KNN,
        ["sass sm_86", "sass sm_120", "ptx sm_120 8.7"],
        cudart="12",
        python_tag="cpython-311",
    )
    return m


def gtx_1080_ti() -> Machine:
    m = Machine("gtx-1080-ti-dropped", f"{PROC}; pytorch issues on wheels without sm_61; {SYSFS}")
    linux(m, *UBUNTU_22, glibc="2.35", gib=32, cores=12)
    card(m, "0000:01:00.0", "10de", "1b06", "nvidia")
    kernel_module(m, "580.95.05", is_open=False, date="Tue Sep 23 09:52:58 UTC 2025")
    user_driver(m, "580.95.05")
    m.nvml = {"driver": "580.95.05", "cuda": 13000,
              "gpus": [gpu(0, "NVIDIA GeForce GTX 1080 Ti", "6.1", 11264, "00000000:01:00.0", display=True)]}  # fmt: skip
    toolkit(m, "12.8")
    ubuntu_gcc(m, *GCC_11)
    tools(m, git="2.34.1", cmake="3.22.1")
    site = python(m, "/home/user/gs/venv", "3.10.12", "venv", TOOLS)
    torch(m, site, "2.8.0+cu128", "12.8", CU128)
    return m


def a100_conda() -> Machine:
    m = Machine(
        "a100-conda-without-nvcc",
        f"{PROC}; module-based clusters with conda environments in public setup guides; {SYSFS}",
    )
    linux(m, "Rocky Linux 8.10 (Green Obsidian)", "4.18.0-553.el8_10.x86_64", glibc="2.28", gib=512, cores=64)
    m.file(
        "/etc/os-release",
        'NAME="Rocky Linux"\nVERSION="8.10 (Green Obsidian)"\nID="rocky"\nPRETTY_NAME="Rocky Linux 8.10 (Green Obsidian)"\n',
    )
    card(m, "0000:07:00.0", "10de", "20b2", "nvidia", "0x030200")
    kernel_module(m, "550.90.07", is_open=False, date="Fri May 31 09:35:42 UTC 2024")
    user_driver(m, "550.90.07", "/usr/lib64")
    m.nvml = {"driver": "550.90.07", "cuda": 12040,
              "gpus": [gpu(0, "NVIDIA A100-SXM4-80GB", "8.0", 81920, "00000000:07:00.0", mig=False)]}  # fmt: skip
    ubuntu_gcc(m, "8.5.0", "GCC) 8.5.0 20210514 (Red Hat 8.5.0-22")
    for item in m.commands:
        item["stdout"] = item["stdout"].replace(
            "(GCC) 8.5.0 20210514 (Red Hat 8.5.0-22) 8.5.0", "(GCC) 8.5.0 20210514 (Red Hat 8.5.0-22)"
        )
    tools(m, git="2.43.5", cmake="3.26.5")
    prefix = "/home/user/miniconda3/envs/gs"
    site = python(m, prefix, "3.10.14", "conda", OLD_TOOLS)
    torch(m, site, "2.5.1+cu121", "12.1", CU121)
    for package, header in (
        ("cuda_runtime", "cuda_runtime.h"),
        ("cublas", "cublas_v2.h"),
        ("cusparse", "cusparse.h"),
    ):
        m.exists(f"{site}/nvidia/{package}/include/{header}")
    m.env["PATH"] = f"{prefix}/bin:{m.env['PATH']}"
    return m


def rtx_4090_windows() -> Machine:
    m = Machine("rtx-4090-windows-vs2022", "vswhere -format json of the Visual Studio setup project with 17.10's numbers; cl's "
                "banner 19.40.33811; Win32_OperatingSystem; the CUDA installer's folders and variables", "windows")  # fmt: skip
    cuda = "C:\\Program Files\\NVIDIA GPU Computing Toolkit\\CUDA\\v12.1"
    m.env = {
        "PATH": f"{cuda}\\bin;C:\\Windows\\system32;C:\\Program Files\\Git\\cmd", "CUDA_PATH": cuda, "CUDA_PATH_V12_1": cuda,
        "ProgramFiles(x86)": "C:\\Program Files (x86)", "USERPROFILE": "C:\\Users\\user", "TEMP": "C:\\Users\\user\\AppData\\Local\\Temp",
        "LOCALAPPDATA": "C:\\Users\\user\\AppData\\Local", "NUMBER_OF_PROCESSORS": "32", "SYSTEMROOT": "C:\\Windows",
    }  # fmt: skip
    m.paths["free_bytes"]["C:/"] = 380 * 10**9
    m.nvml = {"driver": "560.94", "cuda": 12060,
              "gpus": [gpu(0, "NVIDIA GeForce RTX 4090", "8.9", 24564, "00000000:01:00.0", display=True)]}  # fmt: skip
    m.command(["powershell", "-NoProfile", "-Command", "Get-CimInstance Win32_OperatingSystem | Select-Object Caption,Version,"
               "TotalVisibleMemorySize,FreePhysicalMemory,TotalVirtualMemorySize | ConvertTo-Json -Compress"],
              '{"Caption":"Microsoft Windows 11 Pro","Version":"10.0.22631","TotalVisibleMemorySize":66879732,'
              '"FreePhysicalMemory":48211004,"TotalVirtualMemorySize":71074036}\n')  # fmt: skip
    toolkit(m, "12.1", cuda)
    studio = "C:\\Program Files\\Microsoft Visual Studio\\2022\\Community"
    m.command(["C:\\Program Files (x86)\\Microsoft Visual Studio\\Installer\\vswhere.exe", "-products", "*", "-format", "json", "-utf8"],
              json.dumps([{"instanceId": "3d1f0b4c", "installDate": "2024-06-11T08:12:44Z", "installationName": "VisualStudio/17.10.1+34928.147",
                           "installationPath": studio, "installationVersion": "17.10.34928.147",
                           "productId": "Microsoft.VisualStudio.Product.Community", "isComplete": True, "isLaunchable": True,
                           "isPrerelease": False, "displayName": "Visual Studio Community 2022",
                           "channelId": "VisualStudio.17.Release",
                           "catalog": {"productDisplayVersion": "17.10.1", "productLine": "Dev17", "productLineVersion": "2022"}}], indent=2))  # fmt: skip
    cl = f"{studio}\\VC\\Tools\\MSVC\\14.40.33807\\bin\\Hostx64\\x64\\cl.exe"
    m.exists(cl)
    m.command([cl], stderr="Microsoft (R) C/C++ Optimizing Compiler Version 19.40.33811 for x64\nCopyright (C) Microsoft "
              "Corporation.  All rights reserved.\n\nusage: cl [ option... ] filename... [ /link linkoption... ]\n")  # fmt: skip
    m.command(["git", "--version"], "git version 2.45.1.windows.1\n")
    m.exists("C:/Program Files/Git/cmd/git.exe")
    for name in ("KERNEL32.dll", "MSVCP140.dll", "VCRUNTIME140.dll"):
        m.exists(f"C:/Windows/System32/{name}")
    site = python(
        m,
        "C:\\Users\\user\\gs\\venv",
        "3.11.9",
        "venv",
        OLD_TOOLS,
        base="C:\\Users\\user\\AppData\\Local\\Programs\\Python\\Python311",
    )
    torch(m, site, "2.4.1+cu121", "12.1", "50 60 61 70 75 80 86 90")
    return m


def h200() -> Machine:
    m = Machine(
        "h200",
        f"{PROC}; memory sizes, dates and nvcc's build line from general knowledge (unverified); {SYSFS}",
    )
    linux(m, *UBUNTU_24, glibc="2.39", gib=1024, cores=192, swap_gib=0)
    for index in range(2):
        card(m, f"0000:{0x18 + index:02x}:00.0", "10de", "2335", "nvidia", "0x030200")
    kernel_module(m, "580.95.05", is_open=True, date="Tue Sep 23 10:02:00 UTC 2025")
    user_driver(m, "580.95.05")
    m.nvml = {"driver": "580.95.05", "cuda": 13000,
              "gpus": [gpu(i, "NVIDIA H200", "9.0", 143771, f"00000000:{0x18 + i:02X}:00.0", mig=False) for i in range(2)]}  # fmt: skip
    toolkit(m, "13.0")
    ubuntu_gcc(m, *GCC_13)
    tools(m, git="2.43.0", cmake="3.28.3", ninja="1.11.1")
    site = python(m, "/home/user/gs/env", "3.12.3", "uv", TOOLS)
    torch(m, site, "2.11.0+cu130", "13.0", "75 80 86 90 100 120")
    extension(
        m, site, "gsplat", "gsplat", ["sass sm_90"], cudart="13", python_tag="cpython-312", version="1.5.3"
    )
    return m


def jetson_orin() -> Machine:
    m = Machine(
        "jetson-agx-orin",
        "nv_tegra_release, device tree and the NVRM line of JetPack 6.2 boards in public logs",
        machine="aarch64",
    )
    linux(m, "Ubuntu 22.04.5 LTS", "5.15.148-tegra", glibc="2.35", gib=64, cores=12)
    m.file("/etc/nv_tegra_release", "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8 01:49:37 UTC 2025\n"
           "# KERNEL_VARIANT: oot\nTARGET_USERSPACE_LIB_DIR=nvidia\nTARGET_USERSPACE_LIB_DIR_PATH=usr/lib/aarch64-linux-gnu/nvidia\n")  # fmt: skip
    m.file("/proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit\0")
    m.file(
        "/proc/device-tree/compatible", "nvidia,p3737-0000+p3701-0005\0nvidia,p3701-0005\0nvidia,tegra234\0"
    )
    m.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release Build  "
           "(buildbrain@mobile-u64-6336-d8000)  Tue Jan  7 17:35:12 PST 2025\nGCC version:  collect2: error: ld returned 1 exit status    \n")  # fmt: skip
    m.exists("/dev/nvhost-gpu", "/dev/nvidiactl")
    m.nvml = {"error": "Unknown Error", "error_code": 999}
    toolkit(m, "12.6", target="aarch64-linux")
    ubuntu_gcc(m, *GCC_11)
    tools(m, git="2.34.1", cmake="3.22.1")
    site = python(m, "/home/user/gs/venv", "3.10.12", "venv", OLD_TOOLS)
    m.command([m.about["python"], "{splatfix}/facts/probe_cuda.py", "libcuda.so.1"], json.dumps(
        {"init": 0, "cuda": 12060, "gpus": [{"index": 0, "name": "Orin", "cc": [8, 7], "memory_total": 65_893_945_344, "bus_id": "0000:00:00.0"}]}))  # fmt: skip
    torch(m, site, "2.8.0", "12.6", "87")
    extension(m, site, RASTERIZER, RASTERIZER, ["sass sm_87"], cudart="12", python_tag="cpython-310")
    return m


def gb10() -> Machine:
    m = Machine(
        "gb10-dgx-spark",
        "nvidia-smi of DGX Spark in public guides (memory N/A); the NVRM line for aarch64",
        machine="aarch64",
    )
    linux(m, "Ubuntu 24.04.3 LTS", "6.14.0-1013-nvidia", glibc="2.39", gib=120, cores=20)
    m.file("/sys/class/dmi/id/product_name", "NVIDIA_DGX_Spark\n")
    card(m, "000f:01:00.0", "10de", "2e12", "nvidia")
    kernel_module(m, "580.95.05", is_open=True, arch="aarch64", date="Tue Sep 23 09:42:01 UTC 2025")
    user_driver(m, "580.95.05", "/usr/lib/aarch64-linux-gnu")
    m.nvml = {
        "driver": "580.95.05",
        "cuda": 13000,
        "gpus": [gpu(0, "NVIDIA GB10", "12.1", None, "0000000F:01:00.0")],
    }
    toolkit(m, "13.0", target="sbsa-linux")
    ubuntu_gcc(m, *GCC_13)
    tools(m, git="2.43.0", cmake="3.28.3")
    site = python(m, "/home/user/gs/env", "3.12.3", "venv", TOOLS)
    torch(m, site, "2.9.1+cu130", "13.0", CU130_ARM)
    extension(m, site, RASTERIZER, RASTERIZER, ["sass sm_121"], cudart="13", python_tag="cpython-312")
    return m


def apple_m2_max() -> Machine:
    m = Machine(
        "apple-m2-max",
        "system_profiler SPDisplaysDataType, sysctl and sw_vers of M2 Max machines in public reports",
        "darwin",
        "arm64",
    )
    m.env = {"HOME": "/Users/user", "PATH": "/opt/homebrew/bin:/usr/bin:/bin", "TMPDIR": "/var/folders/zz/T/"}
    m.paths["free_bytes"]["/"] = 410 * 10**9
    m.command(["system_profiler", "SPDisplaysDataType"], "Graphics/Displays:\n\n    Apple M2 Max:\n\n      Chipset Model: Apple M2 Max\n"
              "      Type: GPU\n      Bus: Built-In\n      Total Number of Cores: 38\n      Vendor: Apple (0x106b)\n      Metal Support: Metal 3\n"
              "      Displays:\n        Color LCD:\n          Display Type: Built-in Liquid Retina XDR Display\n          Resolution: 3456 x 2234 Retina\n"
              "          Main Display: Yes\n          Mirror: Off\n          Online: Yes\n          Connection Type: Internal\n\n")  # fmt: skip
    m.command(["sysctl", "hw.memsize", "hw.logicalcpu", "machdep.cpu.brand_string"],
              "hw.memsize: 68719476736\nhw.logicalcpu: 12\nmachdep.cpu.brand_string: Apple M2 Max\n")  # fmt: skip
    m.command(["sw_vers"], "ProductName:\t\tmacOS\nProductVersion:\t\t15.6.1\nBuildVersion:\t\t24G90\n")
    clang = ("Apple clang version 17.0.0 (clang-1700.0.13.5)\nTarget: arm64-apple-darwin24.6.0\nThread model: posix\n"
             "InstalledDir: /Library/Developer/CommandLineTools/usr/bin\n")  # fmt: skip
    for name in ("gcc", "g++", "clang", "clang++"):
        m.exists(f"/usr/bin/{name}")
        m.command([f"/usr/bin/{name}", "--version"], clang)
    m.exists("/usr/bin/git")
    m.command(["git", "--version"], "git version 2.39.5 (Apple Git-154)\n")
    site = python(
        m,
        "/Users/user/gs/env",
        "3.12.7",
        "venv",
        TOOLS,
        base="/opt/homebrew/opt/python@3.12/Frameworks/Python.framework/Versions/3.12",
    )
    torch(m, site, "2.9.1", None)
    return m


def ubuntu_package() -> Machine:
    m = Machine(
        "rtx-2080-ubuntu-package",
        f"nvcc --dryrun of Ubuntu's own nvidia-cuda-toolkit (it names no TOP) in build logs; {PROC}; {SYSFS}",
    )
    linux(m, *UBUNTU_22, glibc="2.35", gib=32, cores=16)
    card(m, "0000:0a:00.0", "10de", "1e87", "nvidia")
    kernel_module(m, "550.163.01", is_open=False, date="Tue Apr  8 12:41:17 UTC 2025")
    user_driver(m, "550.163.01")
    m.nvml = {"driver": "550.163.01", "cuda": 12040,
              "gpus": [gpu(0, "NVIDIA GeForce RTX 2080", "7.5", 8192, "00000000:0A:00.0", display=True)]}  # fmt: skip
    debian_toolkit(m, "11.5")
    ubuntu_gcc(m, *GCC_11)
    tools(m, git="2.34.1", cmake="3.22.1")
    site = python(m, "/home/user/gs/env", "3.10.12", "venv", OLD_TOOLS)
    torch(m, site, "2.1.2+cu118", "11.8", "37 " + CU121)
    return m


def a100_mig_kubernetes() -> Machine:
    m = Machine(
        "a100-mig-kubernetes",
        f"a pod of NVIDIA's device plugin with one MIG instance; NVML's names of MIG devices; {PROC}",
    )
    linux(m, "Ubuntu 22.04.5 LTS", "5.15.0-1088-gke", glibc="2.35", gib=680, cores=96, swap_gib=0)
    m.file("/proc/self/cgroup", "0::/\n")
    m.file("/sys/fs/cgroup/memory.max", str(64 * 2**30) + "\n")
    m.file("/sys/fs/cgroup/memory.current", str(3 * 2**30) + "\n")
    m.file("/sys/fs/cgroup/cpu.max", "800000 100000\n")
    m.env |= {"HOME": "/home/user", "KUBERNETES_SERVICE_HOST": "10.96.0.1", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
              "NVIDIA_VISIBLE_DEVICES": "MIG-00000000-0000-0000-0000-000000000009"}  # fmt: skip
    kernel_module(m, "570.172.08", is_open=True, date="Tue Jul  8 18:16:22 UTC 2025")
    user_driver(m, "570.172.08")
    m.nvml = {"driver": "570.172.08", "cuda": 12080, "gpus": [
        gpu(0, "NVIDIA A100-SXM4-80GB", "8.0", 81920, "00000000:00:04.0", mig=True,
            mig_devices=["NVIDIA A100-SXM4-80GB MIG 3g.40gb"])]}  # fmt: skip
    toolkit(m, "12.4")
    ubuntu_gcc(m, *GCC_11)
    tools(m, git="2.34.1", ninja="1.10.1")
    site = python(m, "/opt/conda", "3.11.10", "conda", OLD_TOOLS)
    torch(m, site, "2.5.1+cu124", "12.4", CU121)
    extension(
        m,
        site,
        "gsplat",
        "gsplat",
        ["sass sm_80", "sass sm_86"],
        cudart="12",
        python_tag="cpython-311",
        version="1.4.0",
    )
    return m


def amd() -> Machine:
    m = Machine(
        "amd-rx-7900-xtx",
        f"amdgpu's files in sysfs, RADV in vulkaninfo --summary, torch's ROCm version.py; {SYSFS}",
    )
    linux(m, *UBUNTU_24, glibc="2.39", gib=64, cores=24)
    card(m, "0000:03:00.0", "1002", "744c", "amdgpu")
    m.file("/sys/bus/pci/devices/0000:03:00.0/mem_info_vram_total", "25753026560\n")
    m.file("/sys/bus/pci/devices/0000:03:00.0/drm/card1/card1-DP-1/status", "connected\n")
    m.file("/sys/bus/pci/devices/0000:03:00.0/drm/card1/card1-HDMI-A-1/status", "disconnected\n")
    m.file("/usr/share/vulkan/icd.d/radeon_icd.x86_64.json", '{\n    "ICD": {\n        "api_version": "1.4.305",\n'
           '        "library_path": "/usr/lib/x86_64-linux-gnu/libvulkan_radeon.so"\n    },\n    "file_format_version": "1.0.0"\n}\n')  # fmt: skip
    vulkaninfo(m, ("AMD Radeon RX 7900 XTX (RADV NAVI31)", "DISCRETE_GPU", "radv", "Mesa 25.0.7"))
    ubuntu_gcc(m, *GCC_13)
    tools(m, git="2.43.0", cmake="3.28.3", ninja="1.11.1")
    site = python(m, "/home/user/gs/env", "3.12.3", "venv", TOOLS)
    torch(m, site, "2.9.1+rocm6.4", None, hip="6.4.43484-123eb5128")
    return m


def card_without_driver() -> Machine:
    m = Machine("card-without-driver", f"a fresh Ubuntu with nouveau bound to the card; {SYSFS}")
    linux(m, *UBUNTU_24, glibc="2.39", gib=32, cores=16)
    card(m, "0000:00:02.0", "8086", "a780", "i915")
    card(m, "0000:01:00.0", "10de", "2786", "nouveau")
    m.file("/sys/bus/pci/devices/0000:01:00.0/drm/card0/card0-DP-1/status", "connected\n")
    ubuntu_gcc(m, *GCC_13)
    tools(m, git="2.43.0")
    site = python(m, "/home/user/gs/env", "3.12.3", "venv", TOOLS)
    torch(m, site, "2.9.1+cu128", "12.8", CU128)
    return m


def driver_without_reboot() -> Machine:
    m = Machine(
        "driver-without-reboot",
        f"nvidia-smi's words and NVML error 18 after an unattended upgrade, in public bug reports; {PROC}",
    )
    linux(m, *UBUNTU_22, glibc="2.35", gib=64, cores=16)
    card(m, "0000:01:00.0", "10de", "2206", "nvidia")
    kernel_module(m, "570.195.03", is_open=False, date="Sat Sep 20 00:32:22 UTC 2025")
    m.file("/proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA GeForce RTX 3080\nIRQ:   \t\t 152\n"
           "GPU UUID: \t GPU-00000000-0000-0000-0000-000000000001\nVideo BIOS: \t 94.02.42.00.a9\nBus Type: \t PCIe\n"
           "DMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\nBus Location: \t 0000:01:00.0\nDevice Minor: \t 0\n"
           "GPU Firmware: \t 570.195.03\nGPU Excluded:\t No\n")  # fmt: skip
    user_driver(m, "570.211.01")
    m.nvml = {"error": "RM has detected an NVML/RM version mismatch.", "error_code": 18}
    m.exists("/usr/bin/nvidia-smi")
    m.command(["nvidia-smi", "--query-gpu=index,name,compute_cap,driver_version,memory.total,memory.free,pci.bus_id,uuid",
               "--format=csv,noheader,nounits"], "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.211\n", 18)  # fmt: skip
    toolkit(m, "12.8")
    ubuntu_gcc(m, *GCC_11)
    tools(m, git="2.34.1")
    site = python(m, "/home/user/gs/venv", "3.10.12", "venv", TOOLS)
    m.command(
        [m.about["python"], "{splatfix}/facts/probe_cuda.py", "libcuda.so.1"],
        '{"init": 803, "cuda": 12080, "gpus": []}',
    )
    torch(m, site, "2.8.0+cu128", "12.8", CU128)
    extension(m, site, RASTERIZER, RASTERIZER, ["sass sm_86"], cudart="12", python_tag="cpython-310")
    return m


MACHINES = (
    rtx_5080, rtx_5060_ti_wsl2, t4_container_without_gpu, t4_container, rtx_3090_and_5090, gtx_1080_ti, a100_conda,
    rtx_4090_windows, h200, jetson_orin, gb10, ubuntu_package, a100_mig_kubernetes, apple_m2_max, amd, card_without_driver, driver_without_reboot,
)  # fmt: skip

if __name__ == "__main__":
    for make in MACHINES:
        make().write()
