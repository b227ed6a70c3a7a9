"""A rehearsal's stand-in for torch's CUDA: what a trainer asks of ``cuda`` lands on the CPU. It proves nothing about CUDA.

Two parts. A ``TorchFunctionMode``, in every thread, sees each call of torch's functions and tensor methods and changes the
devices in them (torch.overrides, torch 1.13 and newer). What is plain Python and no torch function is replaced by name:
``torch.cuda``, ``torch.load``, autocast, gradient scaling. ``torch.load`` keeps its ``weights_only``: what fails there fails on
a GPU too.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device

NAME = "rehearsal on the CPU"
"""What ``torch.cuda.get_device_name`` says."""
_STAYS = {torch.Tensor.cuda, torch.Tensor.pin_memory}
"""Methods of a tensor that leave it where it is."""
_IS_CUDA = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]


def here(value: Any) -> Any:
    """Return the same device, or name of a type, on the CPU: ``"cuda:0"``, ``torch.device("cuda")`` and an index are ``cpu``;
    anything else is as it was."""
    index = isinstance(value, int) and not isinstance(value, bool)
    if index or (isinstance(value, (str, torch.device)) and str(value).partition(":")[0] == "cuda"):
        return "cpu"
    if isinstance(value, str):  # of a tensor's type
        return value.replace("torch.cuda.", "torch.")
    return value


class OnCpu(TorchFunctionMode):
    """Changes the devices in every call of torch's functions and tensor methods."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch as it would be called on the CPU."""
        kwargs = kwargs or {}
        if "device" in kwargs:
            kwargs = {**kwargs, "device": here(kwargs["device"])}
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        if func in _STAYS:
            return args[0]
        if func is torch.Tensor.to and len(args) > 1 and not torch.is_tensor(args[1]):
            args = (args[0], here(args[1]), *args[2:])
        elif func is torch.Tensor.type:
            args = tuple(map(here, args))
        elif func is torch.as_tensor and len(args) > 2:
            args = (*args[:2], here(args[2]))
        elif func == _IS_CUDA:
            # torch's own code asks to choose kernels, a trainer to see that it is on the GPU
            asks = sys._getframe(1).f_globals.get("__name__", "")
            return asks.partition(".")[0] != "torch" or func(*args)
        return func(*args, **kwargs)


def land() -> None:
    """Replace what asks for a GPU, for the rest of this process."""
    mode: Any = OnCpu()
    mode.__enter__()

    def begin_with_it(begin: Any, thread: threading.Thread) -> None:
        with OnCpu():
            begin(thread)

    # a mode holds for one thread; loaders of images use several
    replace_call(threading.Thread, "_bootstrap_inner", begin_with_it)
    _replace_devices()
    _replace_cuda()
    _replace_half_precision()

    def load_here(load: Any, f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        return load(f, "cpu" if map_location is None else here(map_location), *args, **kwargs)

    replace_call(torch, "load", load_here)
    # it would ask of these stand-ins what only a GPU can answer, as that of torch 2.13 does
    torch.compile = lambda model=None, **_: (lambda function: function) if model is None else model  # type: ignore[assignment]


def replace_call(owner: Any, name: str, call: Callable[..., Any]) -> None:
    """Replace a function by one that is given the original, and after it the arguments."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return call(original, *args, **kwargs)

    setattr(owner, name, replaced)


def _replace_devices() -> None:
    """``with torch.device("cuda")``, ``torch.set_default_device("cuda")``, ``torch.cuda.FloatTensor`` and its like."""

    def begin_here(begin: Any, context: Any, device: Any) -> None:
        begin(context, torch.device(here(device)))

    replace_call(_device.DeviceContext, "__init__", begin_here)

    class Generator(torch.Generator):
        def __new__(cls, device: Any = "cpu") -> Any:
            return super().__new__(cls, device=here(device))  # type: ignore[call-arg]

    torch.Generator = Generator  # type: ignore[misc]
    for name in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool"):
        setattr(torch.cuda, f"{name}Tensor", getattr(torch, f"{name}Tensor"))
    replace_call(torch, "set_default_tensor_type", lambda choose, kind: choose(here(kind)))


class _InOrder:
    """A stream, a device or an event of which nothing is waited for: a CPU has done everything before."""

    cuda_stream = 0
    device_index = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        self.at = 0.0

    def wait(self, *_: Any) -> None:
        """Everything before it is done."""

    synchronize = wait_stream = wait_event = wait

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def record(self, *_: Any) -> None:
        self.at = time.perf_counter()

    def record_event(self, event: Any = None) -> Any:
        event = event or _InOrder()
        event.record()
        return event

    def elapsed_time(self, other: _InOrder) -> float:
        """Milliseconds."""
        return 1000.0 * (other.at - self.at)

    def __enter__(self) -> _InOrder:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


def _replace_cuda() -> None:
    """What ``torch.cuda`` answers. Of itself it says that it is there, because a trainer's path on a GPU is what is rehearsed."""
    cuda: Any = torch.cuda
    total, held = 8 << 30, 1 << 30  # of memory that is not there

    def says(value: Any) -> Callable[..., Any]:
        return lambda *_, **__: value

    nothing = (
        "init _lazy_init synchronize empty_cache ipc_collect reset_peak_memory_stats reset_max_memory_allocated "
        "reset_max_memory_cached reset_accumulated_memory_stats manual_seed manual_seed_all seed seed_all set_stream "
        "set_per_process_memory_fraction set_rng_state set_rng_state_all"
    )
    for name in nothing.split():
        setattr(cuda, name, says(None))
    for name in ("allocated", "reserved", "cached"):
        setattr(cuda, f"memory_{name}", says(held))
        setattr(cuda, f"max_memory_{name}", says(held))
    # refuses what the real one refuses: "cuda" without a number
    cuda.set_device = lambda device: cuda._utils._get_device_index(device) and None
    cuda.is_available, cuda.device_count, cuda.current_device = says(True), says(1), says(0)
    cuda.is_initialized, cuda.is_bf16_supported = says(True), says(False)
    cuda.is_current_stream_capturing = says(False)
    cuda.get_device_name, cuda.get_device_capability = says(NAME), says((8, 0))
    properties = {"name": NAME, "major": 8, "minor": 0, "multi_processor_count": 1, "warp_size": 32}
    cuda.get_device_properties = says(SimpleNamespace(**properties, is_integrated=False, total_memory=total))
    cuda.mem_get_info = says((total - held, total))
    cuda.memory_stats = says({"allocated_bytes.all.current": held, "allocated_bytes.all.peak": held})
    cuda.memory_summary = says(f"{NAME}: there is no GPU memory\n")
    cuda.get_rng_state = lambda *_: torch.get_rng_state()
    cuda.get_rng_state_all = lambda: [torch.get_rng_state()]
    cuda.Event = cuda.Stream = cuda.ExternalStream = cuda.stream = cuda.device = cuda.device_of = _InOrder
    cuda.current_stream = cuda.default_stream = says(_InOrder())
    cuda.nvtx.range_push = cuda.nvtx.range_pop = cuda.nvtx.mark = says(0)
    cuda.nvtx.range = _InOrder
    accelerator: Any = getattr(torch, "accelerator", None)
    if accelerator is not None:  # of torch 2.6 and newer; optimizers of 2.15 ask it for the stream
        accelerator.is_available, accelerator.device_count = says(True), says(1)
        accelerator.current_device_index = accelerator.current_device_idx = says(0)
        accelerator.current_stream, accelerator.synchronize = says(_InOrder()), says(None)
        # a loader of data with pin_memory sets it
        accelerator.set_device_index = accelerator.set_device_idx = says(None)


def _replace_half_precision() -> None:
    """Autocast for ``cuda`` and scaling of gradients are off: the CPU has other half types, and float32 shows the calls."""

    def autocast_off(begin: Any, this: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        if here(device_type) != device_type:
            device_type, args, kwargs = "cpu", (), {"enabled": False}
        begin(this, device_type, *args, **kwargs)

    def scaling_off(begin: Any, scaler: Any, *args: Any, **kwargs: Any) -> None:
        begin(scaler, *args, **kwargs)
        scaler._enabled = False

    def without_fused(begin: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("fused", None)
        begin(*args, **kwargs)

    replace_call(torch.amp.autocast_mode.autocast, "__init__", autocast_off)
    for scaler in {getattr(torch.amp, "GradScaler", None), torch.cuda.amp.GradScaler} - {None}:
        replace_call(scaler, "__init__", scaling_off)
    for optimizer in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD):
        # before torch 2.4 the CPU had none
        replace_call(optimizer, "__init__", without_fused)
