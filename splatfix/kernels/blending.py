"""Alpha blending in chunks of (depth K) x (tiles G) x (64 pixels), and the same chunks backwards; see `rasterizer.py`."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import threading
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, TypeVar, cast

import torch
from torch import Tensor

from splatfix.kernels.binning import AREA
from splatfix.kernels.scene import ALPHA_MIN, LOG2E, OFF, ProjectedScene

DEPTH_BLOCK = 32  # pairs of one tile worked on at a time; stopped tiles leave between blocks
_BUFFERS = 7  # chunk-sized buffers alive at once in the backward pass: six, and the smaller ones together
_CPU_CHUNK = 1 << 19  # more pixel-pairs in a chunk fall out of the CPU caches


@functools.lru_cache(maxsize=None)
def _just_below(value: float, dtype: torch.dtype) -> float:
    """The largest number of `dtype` below `value`: `torch.threshold` keeps what is *greater* than its bound."""
    exact = torch.tensor(value, dtype=dtype)
    return float(torch.nextafter(exact, torch.zeros_like(exact)))


class Chunk(NamedTuple):
    """A block of depth of some tiles in the forward pass, with its transmittance checkpoint."""

    tiles: Tensor  # [G] int64, positions in Pairs
    first: int  # depth rank of the first pair
    depth: int  # K
    before: Tensor  # [G, 64] transmittance in front of the block; 0 where the pixel has stopped


class _Workspace:
    """Buffers that every chunk reuses: on a CPU, allocating costs more than the arithmetic."""

    def __init__(self, like: Tensor) -> None:
        self._dtype, self._device = like.dtype, like.device
        self._flat: dict[int, Tensor] = {}

    def take(self, slot: int, count: int) -> Tensor:
        buffer = self._flat.get(slot)
        if buffer is None or buffer.numel() < count:
            with torch.inference_mode(False):  # a tensor born in inference mode could not be used in training
                buffer = torch.empty(count, dtype=self._dtype, device=self._device)
            self._flat[slot] = buffer
        return buffer[:count]


class _Kept(threading.local):
    """The workspaces of this thread."""

    def __init__(self) -> None:
        self.by_dtype: dict[torch.dtype, _Workspace] = {}


_kept = _Kept()


def _workspace(like: Tensor) -> _Workspace:
    """A workspace; on a CPU the thread keeps it for its next call (6 buffers of at most `_CPU_CHUNK` numbers)."""
    if like.device.type != "cpu":
        return _Workspace(like)
    return _kept.by_dtype.setdefault(like.dtype, _Workspace(like))


@contextlib.contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """No autocast and no TF32 inside: the products here need the full precision of their type."""
    with contextlib.ExitStack() as stack:
        if device.type in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(device.type, enabled=False))
        if device.type == "cuda":
            matmul: Any = torch.backends.cuda.matmul
            # torch 2.9 renamed the switch, and refuses to read the old name once the new one was used
            renamed = hasattr(torch.backends, "fp32_precision")
            switch, exact = ("fp32_precision", "ieee") if renamed else ("allow_tf32", False)
            stack.callback(setattr, matmul, switch, getattr(matmul, switch))
            setattr(matmul, switch, exact)
        yield


_Function = TypeVar("_Function", bound=Callable[..., Any])


def untraced(function: _Function) -> _Function:
    """Keep `torch.compile` out of the function: its sizes are those of the data, and its kernels take pointers.

    Where a named tuple is changed by `_replace` the compiler of torch 2.11 fails, and does not step aside.
    """

    kept: List[
        Callable[..., Any]
    ] = []  # made once: 7 microseconds, of the 60 that a frame may take of the host

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        compiler = sys.modules.get("torch._dynamo")  # not imported: that takes a second, and few need it
        if compiler is None:
            return function(*arguments, **options)
        if not kept:
            kept.append(compiler.disable(function))
        return kept[0](*arguments, **options)

    return cast(_Function, call)


class Alpha(NamedTuple):
    """Alpha and transmittance of one chunk, and intermediates for the backward pass."""

    rows: Tensor  # [K * G] rows of the tables
    offset_x: Tensor  # [K * G] Gaussian minus tile center
    offset_y: Tensor
    coefficients: Tensor  # [6, K * G]
    alpha: Tensor  # [K, G * 64], zero where skipped
    uncapped: Tensor  # the same without the 0.99 cap (the same tensor where nothing is capped)
    transmittance: Tensor  # [K + 1, G * 64]
    stopping: bool  # some pixel stops inside the chunk
    first: int  # depth rank of the first pair


_Visit = Callable[[Tensor, Alpha, Tensor], None]


def _alpha(
    scene: ProjectedScene, work: _Workspace, tiles: Tensor, first: int, depth: int, before: Tensor
) -> Alpha:
    """Evaluate a chunk: one matrix product for the power, elementwise rules, a loop over depth for transmittance."""
    groups = tiles.numel()
    # depth-major; tiles that end early get the padding row
    start = scene.pairs.start.index_select(0, tiles)
    ranks = torch.arange(first, first + depth, device=start.device)[:, None]
    position = (start + ranks).clamp_max(scene.pairs.gaussian.numel() - 1)
    index = scene.pairs.gaussian.index_select(0, position.view(-1)).to(torch.int64)
    padding = (ranks >= scene.pairs.length.index_select(0, tiles)).view(-1)
    index.masked_fill_(padding, scene.features.shape[0] - 1)
    x, y, aa, bb, cc, log_opacity = scene.geometry.index_select(0, index).unbind(1)
    dx = (x.view(depth, groups) - scene.center_x.index_select(0, tiles)).view(-1)
    dy = (y.view(depth, groups) - scene.center_y.index_select(0, tiles)).view(-1)
    coefficients = scene.features.new_empty(6, depth * groups)
    across, down = aa * dx, cc * dy
    coefficients[0] = log_opacity + across * dx + down * dy + bb * dx * dy
    coefficients[1] = -2.0 * across - bb * dy
    coefficients[2] = -2.0 * down - bb * dx
    coefficients[3], coefficients[4], coefficients[5] = aa, bb, cc

    alpha = work.take(0, depth * groups * AREA).view(depth * groups, AREA)
    if scene.basis.dim() == 2:
        torch.mm(coefficients.t(), scene.basis, out=alpha)
    else:
        per_tile = coefficients.view(6, depth, groups).permute(2, 1, 0)
        power = torch.bmm(per_tile, scene.basis.index_select(0, tiles))
        alpha.view(depth, groups, AREA).copy_(power.transpose(0, 1))
    if scene.ceiling is not None:
        alpha.masked_fill_(alpha > scene.ceiling.index_select(0, index)[:, None], OFF)
    torch.exp2(alpha, out=alpha)
    torch.threshold_(alpha, _just_below(ALPHA_MIN, alpha.dtype), 0.0)
    uncapped = alpha = alpha.view(depth, groups * AREA)
    if float(log_opacity.max()) > math.log2(scene.rules.cap):
        capped = work.take(1, alpha.numel()).view_as(alpha)
        alpha = torch.clamp(uncapped, max=scene.rules.cap, out=capped)

    running = work.take(2, (depth + 1) * groups * AREA).view(depth + 1, groups * AREA)
    running[0] = before.view(-1)
    steps = running.unbind(0)
    for rank, opaque in enumerate(alpha.unbind(0)):
        torch.addcmul(steps[rank], steps[rank], opaque, value=-1.0, out=steps[rank + 1])
    stopping = bool(((steps[-1] < scene.rules.stop) & (steps[0] > 0)).any())
    return Alpha(index, dx, dy, coefficients, alpha, uncapped, running, stopping, first)


def _weights(state: Alpha, stop: float, out: Tensor) -> Tensor:
    """alpha T of every pair and pixel, 0 from the stop on. Also zeroes `state.alpha` there if the pixel stops here."""
    if state.stopping:
        torch.ge(state.transmittance[1:], stop, out=out)
        state.alpha.mul_(out)
        if state.uncapped is not state.alpha:
            state.uncapped.mul_(out)
    return torch.mul(state.alpha, state.transmittance[:-1], out=out)


def blend(
    scene: ProjectedScene,
    channels: int,
    cells: int,
    keep: bool,
    visit: Optional[_Visit] = None,
    ahead: Optional[Tensor] = None,
) -> tuple[Tensor, list[Chunk]]:
    """Front-to-back blending: [N, channels, 64] sums of feature times weight, and the chunks for the backward pass.

    `visit`, where given, sees every chunk: its tiles [G], its alpha, and its weights alpha T, [K, G * 64], 0 where a pixel
    is not reached. They are buffers, which the next chunk overwrites. `ahead` [N, 64] is the transmittance to begin with, else 1.
    """
    pairs, features = scene.pairs, scene.features
    tiles = pairs.tile.numel()
    sums = features.new_zeros(tiles, channels, AREA)
    transmittance = torch.ones_like(scene.inside) if ahead is None else ahead.clone()
    work = _workspace(features)
    chunks: list[Chunk] = []
    active = torch.arange(tiles, device=features.device)
    first = 0
    while active.numel():
        counts: list[int] = pairs.length.index_select(0, active).tolist()
        at = 0
        while at < len(counts):
            depth = min(DEPTH_BLOCK, counts[at] - first)
            chosen = active[at : at + max(1, cells // ((depth + 1) * AREA))]
            at += chosen.numel()
            before = transmittance.index_select(0, chosen)
            state = _alpha(scene, work, chosen, first, depth, before)
            weights = _weights(
                state, scene.rules.stop, work.take(3, state.alpha.numel()).view_as(state.alpha)
            )
            if visit is not None:
                visit(chosen, state, weights)
            rows = features.index_select(0, state.rows).view(depth, chosen.numel(), -1)[:, :, :channels]
            blended = torch.bmm(rows.permute(1, 2, 0), weights.view(depth, -1, AREA).transpose(0, 1))
            sums.index_add_(0, chosen, blended)
            after = torch.threshold(
                state.transmittance[-1], _just_below(scene.rules.stop, features.dtype), 0.0
            )
            transmittance.index_copy_(0, chosen, after.view(-1, AREA))
            if keep:
                chunks.append(Chunk(chosen, first, depth, before))
        first += DEPTH_BLOCK
        unfinished = (transmittance * scene.inside).index_select(0, active).amax(1) > 0
        active = active[unfinished & (pairs.length.index_select(0, active) > first)]
    return sums, chunks


class PairGradients(NamedTuple):
    """Gradients gathered per visible Gaussian, double precision where the device has it."""

    moments: Tensor  # [6, V] sums of E, E dx, E dy, E dx^2, E dx dy, E dy^2 with E = dL/d(power), d = Gaussian - pixel
    features: Tensor  # [channels, V]
    absolute: Optional[Tensor]  # [2, V] sums over pixels of |dL/dx| and |dL/dy|


def blend_backward(
    scene: ProjectedScene, chunks: Sequence[Chunk], upstream: Tensor, behind: Tensor, with_absolute: bool
) -> PairGradients:
    """Back-to-front over the chunks of `blend`.

    With B_k the feature covered behind contribution k (dotted with the upstream gradient g), B_{k-1} = lerp(B_k, f_k g, alpha_k)
    and dL/dalpha_k = T_k (f_k g - B_k): no division by 1 - alpha, no cancellation in dark pixels.

    Args:
        upstream: [N, channels, 64] gradient of the image, per tile.
        behind: [N, 64] gradient dotted with what lies behind everything (the background); overwritten.
        with_absolute: also sum absolute position gradients.
    """
    channels, visible = upstream.shape[1], scene.features.shape[0]
    moments = scene.geometry.new_zeros(6, visible)
    features = scene.features.new_zeros(channels, visible)
    absolute = scene.geometry.new_zeros(2, visible) if with_absolute else None
    work = _workspace(scene.features)
    for chunk in reversed(chunks):
        groups, depth = chunk.tiles.numel(), chunk.depth
        size, slab = depth * groups * AREA, (depth, groups * AREA)
        state = _alpha(scene, work, chunk.tiles, chunk.first, depth, chunk.before)
        weights = _weights(state, scene.rules.stop, work.take(3, size).view(slab))

        rows = scene.features.index_select(0, state.rows).view(depth, groups, -1)[:, :, :channels]
        gradient = upstream.index_select(0, chunk.tiles)
        # `per_tile` is done with when `covered`, in the same buffer, begins
        covered = work.take(5, size + groups * AREA).view(depth + 1, groups * AREA)
        per_tile = work.take(5, size).view(groups, depth, AREA)
        torch.bmm(rows.transpose(0, 1).contiguous(), gradient, out=per_tile)
        own = work.take(4, size).view(slab)
        own.view(depth, groups, AREA).copy_(per_tile.transpose(0, 1))
        covered[depth] = behind.index_select(0, chunk.tiles).view(-1)
        steps, owns, alphas = covered.unbind(0), own.unbind(0), state.alpha.unbind(0)
        for rank in range(depth - 1, -1, -1):
            torch.lerp(steps[rank + 1], owns[rank], alphas[rank], out=steps[rank])
        # a pixel that had stopped in front of this block does not see it
        carried = torch.where(chunk.before > 0, steps[0].view(groups, AREA), steps[depth].view(groups, AREA))
        behind.index_copy_(0, chunk.tiles, carried)

        by_tile = weights.view(depth, groups, AREA).permute(1, 2, 0)
        for_features = torch.bmm(gradient, by_tile)  # [G, channels, K]
        add_rows(features, state.rows, for_features.permute(1, 2, 0).reshape(channels, -1))

        power = own.sub_(covered[1:])
        if state.uncapped is state.alpha:
            power.mul_(weights)
        elif not scene.rules.through_cap:
            power.mul_(weights).masked_fill_(state.uncapped > scene.rules.cap, 0.0)
        else:  # the cap passes the gradient straight through: opacity e^power instead of alpha
            power.mul_(state.transmittance[:-1]).mul_(state.uncapped)
        _gather_moments(scene, chunk, state, power.view(depth * groups, AREA), moments)
        if absolute is not None:
            _gather_absolute(scene, chunk, state, power.view(depth * groups, AREA), absolute)
    return PairGradients(moments[:, :-1], features[:, :-1], None if absolute is None else absolute[:, :-1])


def _gather_moments(
    scene: ProjectedScene, chunk: Chunk, state: Alpha, power: Tensor, moments: Tensor
) -> None:
    """Add a chunk's moments of dL/d(power) about the Gaussians' centers to `moments` [6, V + 1]."""
    if scene.basis.dim() == 2:
        local = torch.mm(scene.basis, power.t())  # twice as fast as the transpose
    else:
        per_tile = power.view(chunk.depth, -1, AREA).permute(1, 2, 0)
        local = torch.bmm(scene.basis.index_select(0, chunk.tiles), per_tile)  # [G, 6, K]
        local = local.permute(1, 2, 0).reshape(6, -1)
    m0, mu, mv, muu, muv, mvv = local.to(moments.dtype).unbind(0)
    dx, dy = state.offset_x, state.offset_y
    sx, sy = dx * m0 - mu, dy * m0 - mv
    sums = [m0, sx, sy, dx * (sx - mu) + muu, dx * sy - dy * mu + muv, dy * (sy - mv) + mvv]
    add_rows(moments, state.rows, torch.stack(sums))


def add_rows(totals: Tensor, rows: Tensor, values: Tensor) -> None:
    """totals[:, rows] += values, in order on a CPU."""
    totals.scatter_add_(1, rows.expand(values.shape[0], -1), values)


def _gather_absolute(
    scene: ProjectedScene, chunk: Chunk, state: Alpha, power: Tensor, absolute: Tensor
) -> None:
    """Add the sums over pixels of |dL/dx| and |dL/dy| to `absolute` [2, V + 1]."""
    _, linear_u, linear_v, aa, bb, cc = state.coefficients.unbind(0)
    slopes = []
    # q(u, v) has dq/dx_Gaussian = -dq/du at the pixel (u, v)
    for constant, along_u, along_v in ((linear_u, 2 * aa, bb), (linear_v, bb, 2 * cc)):
        terms = torch.stack([constant, along_u, along_v], dim=1)
        if scene.basis.dim() == 2:
            slope = torch.mm(terms, scene.basis[:3])
        else:
            by_tile = terms.view(chunk.depth, -1, 3).transpose(0, 1)
            slope = torch.bmm(by_tile, scene.basis.index_select(0, chunk.tiles)[:, :3])
            slope = slope.transpose(0, 1).reshape(-1, AREA)
        slopes.append(slope.mul_(power).abs_().sum(1).to(absolute.dtype) / LOG2E)
    add_rows(absolute, state.rows, torch.stack(slopes))


def chunk_cells(budget_bytes: int, like: Tensor) -> int:
    """How many pairs of a Gaussian and a pixel a chunk may have, for temporary buffers of `budget_bytes` in all."""
    cells = budget_bytes // (_BUFFERS * like.element_size())
    return min(cells, _CPU_CHUNK) if like.device.type == "cpu" else cells
