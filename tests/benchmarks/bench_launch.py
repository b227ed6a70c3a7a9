"""What a frame costs on the host: our own Python and launch code, beside a plain ctypes launch and NVIDIA Warp's, in one run.

    python tests/benchmarks/bench_launch.py [--rounds 20]

A library in the place of libcuda takes the launches and runs nothing: no GPU is needed, and none is measured. A frame is a call
of `rasterize` for Gaussians with harmonics, in which the autograd node goes forward and at once backward, without its engine.
"Ours" is the frame with torch's operations put aside, each giving back what it was called on, less what those calls take:
Python and launches; the limit is 60 microseconds. The rest of the frame is torch's, on tensors of a CPU. One launch is of a
kernel with as many arguments as `blend`: ours; one call of ctypes with all prepared, which nothing through ctypes undercuts; and
by Warp (`pip install warp-lang`) on its CPU device, as a call and recorded, which is how gswarp 1.1 launches (it refuses tensors
of a CPU). All numbers are microseconds of this process on this processor, the least of the rounds, in turns.
"""

import ctypes
import importlib
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import measuring
import torch
from torch import Tensor

from splatfix.kernels import nvrtc, rasterizer, rasterizer_cuda
from tests.kernels.compare import in_precision
from tests.kernels.cuda.emulator import stand_in_for_libcuda
from tests.kernels.scenes import cloud, look_at

LIMIT = 60.0
CALLS, COUNT, SIZE = 200, 64, 64


class Context:
    """An autograd node's, without autograd's engine."""

    needs_input_grad = (False, False, True, True, True, True, False, True, True, False)
    saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def set_materialize_grads(self, _: bool) -> None: ...

    def mark_non_differentiable(self, *_: Any) -> None: ...


@contextmanager
def no_gpu(library: ctypes.CDLL) -> Iterator[None]:
    """CPU tensors are launched with, on the stand-in; nothing is compiled."""
    cdll = ctypes.CDLL
    patches = (
        mock.patch.object(ctypes, "CDLL", lambda name: library if "cuda" in str(name) else cdll(name)),
        mock.patch.object(torch.cuda, "device", lambda _: nullcontext()),
        mock.patch.object(torch.cuda, "get_device_capability", lambda _: (12, 0)),
        mock.patch.object(nvrtc, "_current_stream", abs),
        mock.patch.object(Tensor, "is_cuda", True),
        mock.patch.dict(os.environ, {"SPLATFIX_KERNELS": "nvrtc"}),
        mock.patch.object(nvrtc, "compile_kernels", lambda *_: nvrtc.Compiled(b"", "", "", True)),
        # a tile for each Gaussian, where a kernel would count
        mock.patch.object(torch, "empty_like", torch.ones_like),
    )
    with ExitStack() as stack:
        for patch in (torch.no_grad(), *patches):
            stack.enter_context(patch)
        yield


@contextmanager
def torch_put_aside() -> Iterator[Iterator[int]]:
    """Operations of torch give back what they were called on; yields the calls so far."""
    some, calls = torch.ones(COUNT, 4), itertools.count()

    def itself(tensor: Any, *_: Any, **__: Any) -> Any:
        next(calls)
        return tensor

    def same(*_: Any, **__: Any) -> Any:
        next(calls)
        return some

    names = "detach __getitem__ contiguous to reshape new_empty new_zeros clone view index_select cumsum"
    methods: dict[str, Any] = dict.fromkeys(names.split(), itself)
    methods["tolist"] = lambda _: [COUNT]
    functions: dict[str, Any] = dict.fromkeys(("empty", "zeros", "empty_like", "cat"), same)
    functions["sort"] = lambda *_, **__: (some, some)
    with mock.patch.multiple(Tensor, **methods), mock.patch.multiple(torch, **functions):
        yield calls


def frame() -> Callable[[], object]:
    """A call of `rasterize`, in which autograd's node goes forward and at once backward."""
    settings, inputs = in_precision(look_at(SIZE, SIZE), torch.float32), cloud(COUNT)
    leaves = {name: inputs[name].float() for name in ("means3D", "opacities", "scales", "rotations")}
    statistic, shs, upstream = torch.zeros(COUNT, 3), torch.rand(COUNT, 16, 3), torch.ones(3, SIZE, SIZE)
    node: Any = rasterizer_cuda._RasterizeOnCuda

    def apply(*given: Any) -> Any:
        context = Context()
        drawn = node.forward(context, *given)
        node.backward.__wrapped__(context, upstream, None, None, None, None)
        return drawn

    node.apply = apply
    return lambda: rasterizer.rasterize(settings, means2D=statistic, shs=shs, **leaves)


def arguments() -> list[Any]:
    """As `blend` has them, but for one that is null there: 11 tensors and 5 numbers."""
    return [*(torch.ones(4) for _ in range(11)), 3, 0, 640, 480, 0.5]


def our_launch() -> Callable[[], object]:
    module = nvrtc.module("blending.cu", {"COLORS": 3}, torch.zeros(1))
    given = arguments()
    return lambda: module.launch("blend", (40, 30, 1), 256, given)


def plain_launch(library: ctypes.CDLL) -> Callable[[], object]:
    launch, function, stream = library.cuLaunchKernel, ctypes.c_void_p(1), ctypes.c_void_p(1)
    pointers = (ctypes.c_void_p * 16)()
    return lambda: launch(function, 40, 30, 1, 256, 1, 1, 0, stream, pointers, None)


WARP = """
import warp
@warp.kernel
def take({arrays}, {numbers}, x: float):
    a0[warp.tid()] = x
"""


def launches_of_warp(folder: Path) -> dict[str, Callable[[], object]]:
    """Nothing where Warp is not installed."""
    try:
        import warp
    except ImportError:
        return {}
    warp.config.quiet = True
    warp.init()
    arrays = ", ".join(f"a{k}: warp.array(dtype=float)" for k in range(11))
    numbers = ", ".join(f"n{k}: int" for k in range(4))
    (folder / "take.py").write_text(WARP.format(arrays=arrays, numbers=numbers))
    with mock.patch.object(sys, "path", [str(folder), *sys.path]):
        kernel = importlib.import_module("take").take
    given = [warp.from_torch(item) if isinstance(item, Tensor) else item for item in arguments()]
    recorded = warp.launch(kernel, dim=1, inputs=given, device="cpu", record_cmd=True)

    def again() -> None:
        values = [item.__ctype__() if hasattr(item, "__ctype__") else item for item in given]
        recorded.set_params_from_ctypes(values)
        recorded.launch()

    return {
        "warp.launch": lambda: warp.launch(kernel, dim=1, inputs=given, device="cpu"),
        "warp, recorded, parameters set again, as gswarp": again,
    }


def microseconds(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Of this processor for a call of each, which run in turns."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            begun = time.process_time()
            for _ in range(CALLS):
                call()
            best[name] = min(best[name], 1e6 * (time.process_time() - begun) / CALLS)
    return best


def main() -> None:
    asked = measuring.parser(__doc__, rounds=20).parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        library = stand_in_for_libcuda(Path(folder), "-DSILENT")
        warps = launches_of_warp(Path(folder))
        with no_gpu(library):
            call = frame()
            taken = microseconds({"frame": call}, asked.rounds)
            with torch_put_aside() as calls:
                before = next(calls)
                call()
                put_aside = next(calls) - before - 1
                some = torch.ones(1)
                ours = microseconds({"frame": call, "nothing": lambda: some.contiguous()}, asked.rounds)
                taken["frame, ours"] = ours["frame"] - put_aside * ours["nothing"]
            launches = {"launch by ctypes, all prepared": plain_launch(library), "launch, ours": our_launch()}
            taken |= microseconds({**launches, **warps}, asked.rounds)
    plain = taken["launch by ctypes, all prepared"]
    for name, value in taken.items():
        tail = f"{value / LIMIT:5.2f} of the limit" if name == "frame, ours" else ""
        if "frame" not in name:
            tail = f"{value / plain:5.1f} x ctypes"
        print(f"{name:<50}{value:8.1f} us   {tail}")


if __name__ == "__main__":
    main()
