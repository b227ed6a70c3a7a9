"""CUDA kernels without a compiler: NVRTC, which a CUDA build of torch brings, compiles them; the driver loads and launches them.

Both are called through ctypes: nothing is to be installed, no Python or torch version is bound, and Windows works the
same. (torch's own runtime compiler is private and begins with torch 2.9; cuda-core needs Python 3.10 and torch's exact
CUDA major.) This file needs torch >= 1.13.

A drop-in that was installed for certain GPUs brings their code along, compiled then (`python nvrtc.py FOLDER ...` does
it). What is compiled at the first call is kept in a folder of the user's cache, one file for kernel source, options,
architecture and NVRTC release, written beside and renamed, and checked when it is read; a damaged one is compiled anew.

One GPU has run these kernels so far, an H200, where they agree with float64; emulated on a CPU they agree with the
pure-PyTorch ones to rounding. splatfix's own trainer takes them only with SPLATFIX_KERNELS=nvrtc; a drop-in that
carries this file was installed for them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import re
import struct
import sys
import threading
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

_HERE = Path(__file__).resolve().parent / "cuda"
_OPTIONS = ("--std=c++17", "--extra-device-vectorization", "-default-device")
_PREFIX = b"splatfix kernels 1\n"
# Invalid image, no kernel image, invalid PTX, unsupported PTX version.
_CUDA_ERROR_NO_BINARY = (200, 209, 218, 222)
# What a later call may be spared: too many open files, no memory, a network's folder that is away.
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EIO, errno.ESTALE, errno.ETIMEDOUT)


class NoKernels(RuntimeError):
    """The kernels cannot be had here; the message says why, and what would change it."""


ran: Dict[str, str] = {}
"""What the last call of a kernel ran on: "nvrtc", or "torch" and why. Only calls with CUDA tensors are listed."""


def wanted(like: Tensor) -> bool:
    """Whether a call with this tensor is one for the CUDA kernels: single precision on a GPU, and they were chosen.

    SPLATFIX_KERNELS, nvrtc or torch, decides; where it is not set, a drop-in takes them, splatfix's own trainer not.

    Raises:
        NoKernels: SPLATFIX_KERNELS names what is not here.
    """
    chosen = os.environ.get("SPLATFIX_KERNELS")
    if not chosen:
        chosen = "torch" if __name__.startswith("splatfix.") else "nvrtc"
    if chosen not in ("torch", "nvrtc"):
        raise NoKernels(f"SPLATFIX_KERNELS={chosen}: these kernels are nvrtc or torch.")
    return bool(like.is_cuda) and like.dtype == torch.float32 and chosen == "nvrtc"


def fall_back(kernel: str, reason: str) -> None:
    """Say once that pure PyTorch runs instead; where SPLATFIX_KERNELS names the kernels that is an error.

    Raises:
        NoKernels: the user insists.
    """
    if os.environ.get("SPLATFIX_KERNELS") == "nvrtc":
        raise NoKernels(f"{reason} (SPLATFIX_KERNELS=nvrtc forbids pure PyTorch in their place.)")
    if ran.get(kernel) != f"torch: {reason}":
        warnings.warn(
            f"splatfix: the {kernel} runs in pure PyTorch, which is slower: {reason}",
            RuntimeWarning,
            stacklevel=4,
        )
    ran[kernel] = f"torch: {reason}"


def by_kernels(
    kernel: str, like: Tensor, call: Callable[[], Any], refusal: Callable[[], str] = lambda: ""
) -> Any:
    """What `call` gives on the CUDA kernels, noted in `ran`; None where pure PyTorch is to run.

    Args:
        like: a tensor of the call, which says where and how precisely it computes.
        refusal: why the kernels do not serve this call; empty where they do.

    Raises:
        NoKernels: they do not serve, and SPLATFIX_KERNELS names them.
    """
    if not wanted(like):
        return None
    reason = refusal()
    if not reason:
        try:
            result = call()
        except NoKernels as error:
            reason = str(error)
        else:
            ran[kernel] = "nvrtc"
            return result
    fall_back(kernel, reason)
    return None


# ---------------------------------------------------------------------------------------------------------------------
# NVRTC
# ---------------------------------------------------------------------------------------------------------------------


class Compiler:
    """One NVRTC library.

    Attributes:
        version: its release, such as (13, 0).
        architectures: numbers of the GPU architectures that it compiles for, such as 75 and 120, ascending.
    """

    def __init__(self, path: str) -> None:
        folder = Path(path).parent
        # NVRTC looks for its builtins by name only, and finds them where they are loaded already.
        if folder.is_absolute():
            name = "nvrtc-builtins64_*.dll" if sys.platform == "win32" else "libnvrtc-builtins.so*"
            for builtins in sorted(folder.glob(name)):
                ctypes.CDLL(str(builtins))
        self._library: Any = ctypes.CDLL(path)
        self.path = path
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = (major.value, minor.value)
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))  # since CUDA 11.2
        numbers = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", numbers)
        self.architectures = tuple(sorted(numbers))

    def compile(
        self, source: str, name: str, headers: Mapping[str, str], options: Sequence[str], cubin: bool
    ) -> Tuple[bytes, str]:
        """(a cubin, or PTX; the compiler's log).

        Raises:
            NoKernels: with the compiler's errors.
        """
        program = ctypes.c_void_p()
        texts = (ctypes.c_char_p * len(headers))(*(text.encode() for text in headers.values()))
        names = (ctypes.c_char_p * len(headers))(*(header.encode() for header in headers))
        flags = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        self._call(
            "nvrtcCreateProgram",
            ctypes.byref(program),
            source.encode(),
            name.encode(),
            len(headers),
            texts,
            names,
        )
        try:
            code = self._library.nvrtcCompileProgram(program, len(options), flags)
            log = self._read(program, "nvrtcGetProgramLog").rstrip(b"\0").decode(errors="replace").strip()
            if code:
                raise NoKernels(
                    f"NVRTC {'.'.join(map(str, self.version))} does not compile {name}: {log or self._message(code)}"
                )
            form = "CUBIN" if cubin else "PTX"
            return self._read(program, f"nvrtcGet{form}"), log
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _read(self, program: ctypes.c_void_p, function: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"{function}Size", program, ctypes.byref(size))
        content = ctypes.create_string_buffer(size.value)
        self._call(function, program, content)
        return content.raw

    def _call(self, function: str, *arguments: Any) -> None:
        try:
            code = getattr(self._library, function)(*arguments)
        except AttributeError:
            raise NoKernels(
                f"{self.path} is too old: it has no {function} (CUDA 11.2 or newer does)."
            ) from None
        if code:
            raise NoKernels(f"{function}: {self._message(code)}")

    def _message(self, code: int) -> str:
        error_string = self._library.nvrtcGetErrorString
        error_string.restype = ctypes.c_char_p
        message: bytes = error_string(code)
        return message.decode()


def _libraries() -> Iterator[str]:
    """Where the NVRTC of torch may be: beside torch (wheels, conda), in its own wheel, then wherever the loader finds it."""
    cuda = getattr(torch.version, "cuda", None)
    major = (cuda or "").split(".")[0]
    site = Path(torch.__file__).resolve().parent.parent
    if sys.platform == "win32":
        patterns = [f"nvrtc64_{major}*_0.dll"]
        folders = [
            site / "torch" / "lib",
            *site.glob("nvidia/*/bin"),
            *site.glob("nvidia/*/bin/x86_64"),
            Path(sys.prefix, "Library", "bin"),
        ]
    else:
        patterns = [f"libnvrtc.so.{major}*", "libnvrtc-*.so*"]  # torch 1.13 has a hash in the name
        folders = [*site.glob("nvidia/*/lib"), site / "torch" / "lib", Path(sys.prefix, "lib")]
    for folder in folders:
        for pattern in patterns:
            for library in sorted(folder.glob(pattern)):
                if "builtins" not in library.name and ".alt." not in library.name:
                    yield str(library)
    if major and sys.platform != "win32":
        yield f"libnvrtc.so.{major}"


_compilers: Dict[str, Compiler] = {}


def find_compiler() -> Compiler:
    """The NVRTC that torch brought.

    Raises:
        NoKernels: there is none, or none that loads.
        OSError: it may load another time.
    """
    errors: List[Exception] = []
    for path in _libraries():
        if path in _compilers:
            return _compilers[path]
        try:
            _compilers[path] = Compiler(path)
            return _compilers[path]
        except (OSError, NoKernels) as error:
            errors.append(error)
    for reason in filter(_passes, errors):
        raise reason
    cuda = getattr(torch.version, "cuda", None)
    if cuda is None and not errors:
        raise NoKernels(
            f"torch {torch.__version__} is no CUDA build, so no NVRTC came with it: install a CUDA build of torch."
        )
    major = int((cuda or "13").split(".")[0])
    package = "nvidia-cuda-nvrtc"
    if major <= 12:
        package += f"-cu{major}"
    raise NoKernels(
        f"No NVRTC of CUDA {cuda} was found ({'; '.join(map(str, errors)) or 'no such library'}): pip install {package}"
    )


def _passes(error: Exception) -> bool:
    """Return whether the same may succeed later; the loader gives its reason in words alone."""
    return isinstance(error, OSError) and any(os.strerror(code) in str(error) for code in _PASSING)


class Compiled(NamedTuple):
    """Code for one GPU architecture: a cubin, or PTX that the driver compiles."""

    code: bytes
    target: str  # sm_120, or compute_90
    log: str
    cached: bool


def _target(architecture: int, compiler: Compiler) -> Tuple[str, bool]:
    """(value of --gpu-architecture, whether that makes a cubin)."""
    if architecture in compiler.architectures:
        return f"sm_{architecture}", True
    older = [number for number in compiler.architectures if number < architecture]
    if not older:
        release = ".".join(map(str, compiler.version))
        raise NoKernels(
            f"NVRTC {release} compiles for sm_{compiler.architectures[0]} and newer, and this GPU is sm_{architecture}: "
            "use a torch of an older CUDA release."
        )
    return f"compute_{older[-1]}", False


def compile_kernels(
    name: str,
    defines: Mapping[str, object],
    architecture: int,
    compiler: Optional[Compiler] = None,
    extra: Sequence[str] = (),
) -> Compiled:
    """The kernels of a file of `cuda` for one architecture, such as 120; from the cache where they are in it.

    Raises:
        NoKernels: no NVRTC, or it cannot compile them.
    """
    source, *headers = _texts(name).items()
    if compiler is None:
        brought = _brought(name, defines, architecture)
        if brought is not None:
            return brought
        compiler = find_compiler()
    target, cubin = _target(architecture, compiler)
    options = [
        *_OPTIONS,
        f"--gpu-architecture={target}",
        *(f"-D{key}={value}" for key, value in defines.items()),
        *extra,
    ]
    release = ".".join(map(str, compiler.version))
    kept = _cache() / release / _file_name(name, defines, target)
    if not extra:  # the name of a kept file does not tell them apart
        kept_code = _read_kept(kept)
        if kept_code is not None:
            return Compiled(kept_code, target, "", True)
    code, log = compiler.compile(source[1], name, dict(headers), options, cubin)
    if not extra:
        _keep(kept, code)
    return Compiled(code, target, log, False)


def _brought(name: str, defines: Mapping[str, object], architecture: int) -> Optional[Compiled]:
    """What the drop-in brought for this GPU: a cubin, else PTX for an older one; None where neither is there."""
    own = _HERE / _file_name(name, defines, f"sm_{architecture}")
    if own.is_file():
        return Compiled(own.read_bytes(), f"sm_{architecture}", "", True)
    for older in range(architecture, 49, -1):
        path = own.with_name(own.name.replace(f"sm_{architecture}", f"compute_{older}")).with_suffix(".ptx")
        if path.is_file():
            return Compiled(path.read_bytes(), f"compute_{older}", "", True)
    return None


def _texts(name: str) -> Dict[str, str]:
    """A file and all that it includes, by name, itself first."""
    texts = {name: (_HERE / name).read_text(encoding="utf-8")}
    for included in re.findall(r'^#include "(.+)"$', texts[name], re.MULTILINE):
        if (_HERE / included).is_file():  # the tests' own header is not there
            texts.update(_texts(included))
    return texts


def _file_name(name: str, defines: Mapping[str, object], target: str) -> str:
    """Of compiled code: what it was compiled from is in it."""
    origin = (sorted(_texts(name).items()), _OPTIONS, sorted(defines.items()))
    digest = hashlib.sha256(repr(origin).encode()).hexdigest()[:24]
    suffix = "cubin" if target.startswith("sm_") else "ptx"
    return f"{Path(name).stem}-{target}-{digest}.{suffix}"


def _cache() -> Path:
    chosen = os.environ.get("SPLATFIX_CACHE")
    if chosen:
        return Path(chosen, "kernels")
    variable, below = (
        ("LOCALAPPDATA", "AppData/Local") if sys.platform == "win32" else ("XDG_CACHE_HOME", ".cache")
    )
    home = os.path.expanduser("~")  # noqa: PTH111 - Path's raises where a container's user has none
    folder = Path(os.environ.get(variable) or Path(home, below))
    if not folder.is_absolute():
        folder = Path(os.devnull)  # below it nothing is read and nothing is kept
    return folder / "splatfix" / "kernels"


def _read_kept(path: Path) -> Optional[bytes]:
    """The code that was kept there, or None where there is none or it is not what was written."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    head, code = content[: len(_PREFIX) + 32], content[len(_PREFIX) + 32 :]
    if head != _PREFIX + hashlib.sha256(code).digest():
        return None
    return code


def _keep(path: Path, code: bytes) -> None:
    """Keep it for later processes. Where nothing can be written, every process compiles for itself: a second or two."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside.write_bytes(_PREFIX + hashlib.sha256(code).digest() + code)
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()


# ---------------------------------------------------------------------------------------------------------------------
# The driver
# ---------------------------------------------------------------------------------------------------------------------


class _Driver:
    """libcuda, as far as it is needed."""

    def __init__(self) -> None:
        name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
        try:
            self._library: Any = ctypes.CDLL(name)
        except OSError as error:
            if _passes(error):
                raise
            raise NoKernels(
                f"The NVIDIA driver's library was not found ({error}): install the driver."
            ) from None
        self.current_context = self._library.cuCtxGetCurrent
        self.launch_kernel = self._library.cuLaunchKernel

    def call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, function)(*arguments)
        if code:
            raise self.error(function, code)

    def error(self, function: str, code: int) -> RuntimeError:
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(code, ctypes.byref(text))
        message = f"{function}: {(text.value or b'unknown error').decode()} (CUDA driver error {code})"
        if code in _CUDA_ERROR_NO_BINARY:
            return NoKernels(message)
        return RuntimeError(message)


class _Passed:
    """What a launch passes, packed into one buffer; the driver copies it."""

    def __init__(self) -> None:
        self.buffer = ctypes.create_string_buffer(4096)  # the most that a kernel takes
        self.size = ctypes.c_size_t()
        # CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END of cuda.h
        places = (1, ctypes.addressof(self.buffer), 2, ctypes.addressof(self.size), 0)
        self.extra = (ctypes.c_void_p * 5)(*places)
        self.context = ctypes.c_void_p()
        self.to_context = ctypes.byref(self.context)


class _Thread(threading.local):
    """Launches of different threads may overlap."""

    def __init__(self) -> None:
        self.passed = _Passed()


_thread = _Thread()


class _Kernel:
    """A function, and how it takes its arguments: whether each is a pointer, and all by C's alignment."""

    def __init__(self, function: ctypes.c_void_p, arguments: Sequence[Any]) -> None:
        self.function = function
        self.pointers = tuple(value is None or isinstance(value, Tensor) for value in arguments)
        kinds = ""
        for value, pointer in zip(arguments, self.pointers):
            if pointer:
                kinds += "P"
            else:
                kinds += "f" if isinstance(value, float) else "i"
        self.layout = struct.Struct(kinds)

    def misfit(self, name: str, arguments: Sequence[Any]) -> TypeError:
        """Why these cannot be passed: the first that does not fit its kind."""
        for place, (kind, item) in enumerate(zip(self.layout.format, arguments)):
            if kind == "P":
                fits = item is None or isinstance(item, Tensor)
            else:
                fits = _packs(kind, item)
            if not fits:
                given = "a tensor" if isinstance(item, Tensor) else repr(item)
                return TypeError(f"{name}: argument {place} is {given}, and the kernel takes {_KINDS[kind]}")
        return TypeError(f"{name} takes {len(self.pointers)} arguments, not {len(arguments)}")


_KINDS = {"P": "a tensor or None", "i": "an integer of 32 bits", "f": "a float of 32 bits"}


def _packs(kind: str, number: Any) -> bool:
    try:
        struct.pack(kind, number)
    except (struct.error, OverflowError, TypeError):
        return False
    return True


# as the driver calls it; torch's faster way to it is private
_current_stream: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", lambda device: torch.cuda.current_stream(device).cuda_stream
)


class Module:
    """Loaded kernels of one device."""

    def __init__(self, driver: _Driver, code: bytes, device: int) -> None:
        self._driver, self._device = driver, device
        self._kernels: Dict[str, _Kernel] = {}
        self._module, self._context = ctypes.c_void_p(), ctypes.c_void_p()
        handle = ctypes.c_int()
        with torch.cuda.device(device):
            driver.call("cuDeviceGet", ctypes.byref(handle), device)
            driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), handle)
            driver.call("cuCtxSetCurrent", self._context)
            driver.call("cuModuleLoadData", ctypes.byref(self._module), code)
        self._current = self._context.value

    def launch(self, name: str, grid: Tuple[int, int, int], threads: int, arguments: Sequence[Any]) -> None:
        """Enqueue a kernel on torch's current stream. Tensors go as pointers, None as null, int and float as 32 bits.

        Raises:
            TypeError: an argument does not fit its kind, which the first launch of a kernel decides: its place, and what fits.
        """
        passed, driver = _thread.passed, self._driver
        driver.current_context(passed.to_context)
        if passed.context.value != self._current:
            # autograd's threads may have none yet, or another device's
            with torch.cuda.device(self._device):
                driver.call("cuCtxSetCurrent", self._context)
                self.launch(name, grid, threads, arguments)
            return
        kernel = self._kernels.get(name)
        if kernel is None:
            function = ctypes.c_void_p()
            driver.call("cuModuleGetFunction", ctypes.byref(function), self._module, name.encode())
            kernel = self._kernels[name] = _Kernel(function, arguments)
        # a function called for each of a frame's hundred arguments would take longer than the launches
        try:
            values = [
                item is not None and item.data_ptr() if pointer else item
                for pointer, item in zip(kernel.pointers, arguments)
            ]
            kernel.layout.pack_into(passed.buffer, 0, *values)
        except (struct.error, OverflowError, TypeError, AttributeError):
            raise kernel.misfit(name, arguments) from None
        passed.size.value = kernel.layout.size
        stream = ctypes.c_void_p(_current_stream(self._device))
        code = driver.launch_kernel(kernel.function, *grid, threads, 1, 1, 0, stream, None, passed.extra)
        if code:
            raise driver.error("cuLaunchKernel", code)


_driver: Optional[_Driver] = None
_modules: Dict[Tuple[Any, ...], Module] = {}
_refused: Dict[Tuple[Any, ...], str] = {}
_lock = threading.Lock()


def module(name: str, defines: Mapping[str, object], like: Tensor) -> Module:
    """The kernels of a file, compiled and loaded for the GPU of `like`.

    Raises:
        NoKernels: they cannot be had; asked again for the same, at once and with the same words, but where it may pass. Other
            files and options are not refused with them: a drop-in brought the code of some, which need no NVRTC.
    """
    global _driver
    device = like.get_device()
    key = (name, tuple(defines.items()), device)
    loaded = _modules.get(key)
    if loaded is not None:
        return loaded
    with _lock:
        if key in _refused:
            raise NoKernels(_refused[key])
        if key not in _modules:
            try:
                _driver = _driver or _Driver()
                major, minor = torch.cuda.get_device_capability(device)
                compiled = compile_kernels(name, defines, 10 * major + minor)
                _modules[key] = Module(_driver, compiled.code, device)
            except OSError as error:
                raise NoKernels(f"The kernels could not be loaded this time: {error}") from None
            except NoKernels as error:
                _refused[key] = str(error)
                raise
        return _modules[key]


def main(arguments: Sequence[str]) -> int:
    """Compile into FOLDER what a JSON text lists, [[file, options, architecture], ...]; prints a JSON object.

    The object has `nvrtc` and `files`, [[name, file, architecture], ...], or `error`; the exit status is then 1.
    For an architecture that this NVRTC does not know yet, the file is PTX for the newest that it knows.
    """
    folder, wanted_code = Path(arguments[0]), json.loads(arguments[1])
    try:
        compiler = find_compiler()
        files = []
        for name, defines, architecture in wanted_code:
            made = folder / _file_name(name, defines, _target(architecture, compiler)[0])
            made.write_bytes(compile_kernels(name, defines, architecture, compiler).code)
            files.append([made.name, name, architecture])
    except (NoKernels, OSError) as error:
        sys.stdout.write(json.dumps({"error": str(error)}))
        return 1
    sys.stdout.write(json.dumps({"nvrtc": ".".join(map(str, compiler.version)), "files": files}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
