"""Which kernels a call gets, what a drop-in brought for a GPU, and where NVRTC and the driver lie on Windows and Linux."""

import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from splatfix.kernels import nvrtc
from splatfix.kernels.nvrtc import NoKernels
from tests.files import put
from tests.tables import data

from .compare import OnGpu

ON_GPU = torch.rand(3).as_subclass(OnGpu)


@pytest.mark.parametrize(
    ("chosen", "file", "expected"), data(__file__)["what_is_not_said_is_what_was_installed"]
)
def test_what_is_not_said_is_what_was_installed(
    chosen: str | None, file: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "__name__", file)
    monkeypatch.delenv("SPLATFIX_KERNELS", raising=False)
    if chosen:
        monkeypatch.setenv("SPLATFIX_KERNELS", chosen)
    assert nvrtc.wanted(ON_GPU) is expected
    assert not nvrtc.wanted(torch.rand(3)), "pure PyTorch on a CPU tensor"
    assert not nvrtc.wanted(ON_GPU.double())


def test_kernels_that_are_not_here_are_not_replaced_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLATFIX_KERNELS", "cuda")
    with pytest.raises(NoKernels, match="these kernels are nvrtc or torch"):
        nvrtc.wanted(ON_GPU)
    monkeypatch.setenv("SPLATFIX_KERNELS", "nvrtc")
    with pytest.raises(NoKernels, match=r"no driver \(SPLATFIX_KERNELS=nvrtc forbids"):
        nvrtc.fall_back("ssim", "no driver")


def test_a_drop_in_brings_machine_code_else_ptx_for_an_older_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ssim.cu").write_text("kernels")
    monkeypatch.setattr(nvrtc, "_HERE", tmp_path)
    monkeypatch.setattr(nvrtc, "find_compiler", lambda: pytest.fail("a compiler is asked"))
    for target in ("sm_75", "compute_90", "compute_100"):
        (tmp_path / nvrtc._file_name("ssim.cu", {}, target)).write_bytes(target.encode())

    def brought(architecture: int) -> str:
        return nvrtc.compile_kernels("ssim.cu", {}, architecture).target

    assert brought(75) == "sm_75"
    assert brought(90) == "compute_90" and brought(120) == "compute_100"
    with pytest.raises(pytest.fail.Exception, match="a compiler is asked"):
        brought(89)


class Library:
    """An NVRTC 13.0 that knows two GPUs."""

    loaded: list[str]

    def __init__(self, path: str) -> None:
        Library.loaded.append(path)

    def nvrtcVersion(self, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = 13, 0
        return 0

    def nvrtcGetNumSupportedArchs(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def nvrtcGetSupportedArchs(self, numbers: Any) -> int:
        numbers[0], numbers[1] = 120, 75
        return 0


@pytest.mark.parametrize(("system", "cuda", "wanted", "beside"), data(__file__)["layouts"])
def test_nvrtc_is_found_where_torch_brought_it(
    system: str,
    cuda: str,
    wanted: str,
    beside: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Simulated: files of these names, and a loader that takes them."""
    torch_file = "torch/__init__.py"
    put(tmp_path, dict.fromkeys((*beside, wanted, torch_file), ""))
    here = {"__file__": str(tmp_path / torch_file), "version": SimpleNamespace(cuda=cuda), "__version__": "2"}
    monkeypatch.setattr(nvrtc, "torch", SimpleNamespace(**here))
    monkeypatch.setattr(nvrtc, "sys", SimpleNamespace(platform=system, prefix=str(tmp_path / "env")))
    monkeypatch.setattr(ctypes, "CDLL", Library)
    monkeypatch.setattr(nvrtc, "_compilers", {})
    Library.loaded = []
    compiler = nvrtc.find_compiler()
    assert (compiler.version, compiler.architectures) == ((13, 0), (75, 120))
    assert compiler.path == Library.loaded[-1] == str(tmp_path / wanted)
    builtins = [name for name in Library.loaded if "builtins" in name]
    asked = [name for name in beside if "builtins" in name and ".alt." not in name]
    assert builtins == [str(tmp_path / name) for name in asked], "NVRTC asks by name"


def test_nothing_is_loaded_from_the_current_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the loader finds NVRTC by name, what lies in the current folder is none of its parts."""
    (tmp_path / "libnvrtc-builtins.so.13.0").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ctypes, "CDLL", Library)
    Library.loaded = []
    nvrtc.Compiler("libnvrtc.so.13")
    assert Library.loaded == ["libnvrtc.so.13"]


@pytest.mark.parametrize(("system", "name"), [("win32", "nvcuda.dll"), ("linux", "libcuda.so.1")])
def test_the_driver_is_asked_for_by_its_name(system: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(path: str) -> None:
        raise OSError(f"{path}: not found")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    monkeypatch.setattr(nvrtc, "sys", SimpleNamespace(platform=system))
    with pytest.raises(NoKernels, match=f"{name}: not found.*install the driver"):
        nvrtc._Driver()


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SPLATFIX_CACHE", raising=False)
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(nvrtc, "sys", SimpleNamespace(platform="win32"))
    assert nvrtc._cache() == tmp_path / "local" / "splatfix" / "kernels"
    monkeypatch.setattr(nvrtc, "sys", sys)
    if sys.platform != "win32":
        assert nvrtc._cache() == tmp_path / "xdg" / "splatfix" / "kernels"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows knows each user's folder")
def test_a_user_without_a_home_keeps_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As a container's: `docker run --user 1234` has no entry in passwd."""
    for variable in ("SPLATFIX_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    monkeypatch.chdir(tmp_path)
    kept = nvrtc._cache() / "13.0" / "ssim.cubin"
    nvrtc._keep(kept, b"code")
    assert nvrtc._read_kept(kept) is None and not list(tmp_path.iterdir())


TOO_MANY = OSError("libcuda.so.1: cannot open shared object file: Too many open files")


@pytest.mark.parametrize(
    ("error", "tries"),
    [(TOO_MANY, 2), (OSError(5, "Input/output error"), 2), (OSError("libcuda.so.1: no such file"), 1)],
    ids=str,
)
@pytest.mark.parametrize("of", ["driver", "compiler"])
def test_what_passes_is_tried_again(
    of: str, error: OSError, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that is not there is asked for once; where files ran out it is there at the next call."""
    loaded = []

    def load(name: str) -> Any:
        loaded.append(name)
        raise error

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(nvrtc, "_refused", {})
    monkeypatch.setattr(nvrtc, "_driver", object() if of == "compiler" else None)
    monkeypatch.setattr(nvrtc, "_libraries", lambda: iter(["libnvrtc.so.13"]))
    monkeypatch.setattr(nvrtc, "_compilers", {})
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    for _ in range(2):
        with pytest.raises(NoKernels):
            nvrtc.module("ssim.cu", {}, torch.rand(3))
    assert len(loaded) == tries


def test_a_file_that_does_not_compile_refuses_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def compile_kernels(name: str, *_: Any) -> nvrtc.Compiled:
        compiled.append(name)
        if name == "blending.cu":
            raise NoKernels("NVRTC 13.0 does not compile blending.cu")
        return nvrtc.Compiled(b"code", "sm_90", "", False)

    monkeypatch.setattr(nvrtc, "compile_kernels", compile_kernels)
    monkeypatch.setattr(nvrtc, "Module", lambda driver, code, device: code)
    for name, value in (("_refused", {}), ("_modules", {}), ("_driver", object())):
        monkeypatch.setattr(nvrtc, name, value)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    for _ in range(2):
        with pytest.raises(NoKernels, match="does not compile blending"):
            nvrtc.module("blending.cu", {}, torch.rand(3))
        assert nvrtc.module("ssim.cu", {}, torch.rand(3)) == b"code"
    assert compiled == ["blending.cu", "ssim.cu"]
