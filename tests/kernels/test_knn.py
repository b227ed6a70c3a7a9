"""Nearest neighbors against brute force in float64: direct differences, all pairs, nothing shared with the kernel."""

import builtins
import math
import threading
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import splatfix.kernels.knn as entry
from splatfix.kernels import knn_libraries as libraries
from splatfix.kernels import knn_search as module
from splatfix.kernels.knn import available_engines, distCUDA2, last_engine
from tests.tables import data

from .scenes import KINDS, points_of

ENGINES = available_engines()
FLT_MAX = torch.finfo(torch.float32).max


def mean_of_three(points: torch.Tensor) -> torch.Tensor:
    squared = (points.double().unsqueeze(1) - points.double().unsqueeze(0)).square().sum(2)
    squared.fill_diagonal_(float("inf"))
    return squared.sort(1)[0][:, :3].mean(1)


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=8 * torch.finfo(found.dtype).eps, atol=0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mean_of_three_is_exact(engine, kind, dtype):
    points = points_of(kind, 1500, seed=3, dtype=dtype)
    result = distCUDA2(points, engine=engine)
    assert last_engine() == engine
    assert result.dtype == dtype and result.shape == (1500,)
    assert_close(result, mean_of_three(points))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(KINDS),
    count=st.integers(4, 400),
    seed=st.integers(0, 2**16),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    pairs=st.sampled_from([1 << 8, 1 << 17]),
    per_leaf=st.sampled_from([2, 64, 10**9]),
)
def test_torch_engine_is_exact_for_any_cloud(kind, count, seed, dtype, pairs, per_leaf):
    """With frontiers that split early or never, and with none, few or most leaves searched point by point."""
    points = points_of(kind, count, seed, dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CPU_PAIRS", pairs)
        patch.setattr(module, "_MOST_PAIRS_PER_LEAF", per_leaf)
        result = distCUDA2(points, engine="torch")
    assert_close(result, mean_of_three(points))


@pytest.mark.parametrize("engine", [None, *ENGINES])
def test_fewer_than_four_points_as_the_extension(engine):
    three = torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 2, 0]])
    assert distCUDA2(three, engine=engine).tolist() == pytest.approx([FLT_MAX / 3] * 3, rel=1e-6)
    assert distCUDA2(three[:2], engine=engine).tolist() == [float("inf")] * 2
    assert distCUDA2(three[:1], engine=engine).tolist() == [float("inf")]
    assert distCUDA2(three[:0], engine=engine).shape == (0,)


@pytest.mark.parametrize("engine", ENGINES)
def test_small_budget_does_not_change_the_result(engine):
    """The known failure of batched fallbacks: neighbors in another batch are missed, and the mean grows."""
    points = points_of("clustered", 900, 9)
    small = distCUDA2(points, engine=engine, budget_bytes=1 << 14)
    assert torch.equal(small, distCUDA2(points, engine=engine))


def test_the_tree_counts_towards_the_budget():
    search = module.Search(points_of("uniform", 20_000, 1), 1 << 20)
    held = search.tree.held() + 4 * search.tree.rows.numel()
    assert 1 << 19 < held < 1 << 20
    assert search.budget * search.threads <= (1 << 20) - held


@pytest.mark.parametrize("startable", [0, 1, 9])
def test_threads_that_cannot_be_started_are_done_without(startable, monkeypatch):
    """As where a container's limit of processes is reached."""
    points = points_of("clustered", 3_000, 4)
    expected = distCUDA2(points, engine="torch", budget_bytes=1 << 14)
    started, start = [], threading.Thread.start

    def limited(thread):
        if len(started) == startable:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    torch.set_num_threads(3)
    monkeypatch.setattr(threading.Thread, "start", limited)
    assert torch.equal(distCUDA2(points, engine="torch", budget_bytes=1 << 14), expected)
    assert torch.get_num_threads() == 3 and bool(started) == bool(startable)


def test_an_error_in_a_thread_is_raised(monkeypatch):
    def fails(*_):
        assert torch.get_num_threads() == 1
        raise ValueError("in the middle")

    torch.set_num_threads(3)
    monkeypatch.setattr(module.Search, "_below", fails)
    with pytest.raises(ValueError, match="in the middle"):
        distCUDA2(points_of("clustered", 3_000, 4), engine="torch", budget_bytes=1 << 14)
    assert torch.get_num_threads() == 3


def test_a_library_out_of_memory_is_asked_for_less(monkeypatch):
    monkeypatch.setattr(module, "_warned", False)
    true_search, requested = libraries.library_search, []

    def short_of_memory(engine, points):
        answer = true_search(engine, points)

        def limited(queries, k):
            requested.append(queries.shape[0])
            if queries.shape[0] > 400:
                raise MemoryError
            return answer(queries, k)

        return limited

    monkeypatch.setattr(entry, "library_search", short_of_memory)
    points = points_of("clustered", 1500, 6)
    with pytest.warns(RuntimeWarning, match="out of memory") as observed:
        result = distCUDA2(points, engine=ENGINES[0]) if ENGINES[0] != "torch" else pytest.skip("no library")
    assert len(observed) == 1 and requested[0] == 1500 and max(requested[-3:]) <= 400
    assert_close(result, mean_of_three(points))


def test_out_of_memory_halves_the_batch_and_says_so_once(monkeypatch):
    monkeypatch.setattr(module, "_warned", False)
    true_distance = module.box_distance
    refused = []

    def short_of_memory(boxes, a, b):
        if a.numel() > 2000:
            refused.append(a.numel())
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return true_distance(boxes, a, b)

    monkeypatch.setattr(module, "box_distance", short_of_memory)
    points = points_of("clustered", 6000, 2)
    with pytest.warns(RuntimeWarning, match="out of memory") as observed:
        result = distCUDA2(points, engine="torch")
    assert len(refused) >= 2 and len(observed) == 1
    monkeypatch.undo()
    assert torch.allclose(result, distCUDA2(points, engine="torch"), rtol=1e-6, atol=0)


def test_other_errors_are_not_taken_for_lack_of_memory(monkeypatch):
    def broken(boxes, a, b):
        raise RuntimeError("device-side assert triggered")

    monkeypatch.setattr(module, "box_distance", broken)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match="device-side assert"):
            distCUDA2(points_of("uniform", 1000, 1), engine="torch")


def test_engines_absent_are_not_claimed(monkeypatch):
    for one in (entry, libraries):
        monkeypatch.setattr(one, "engine_module", lambda engine: None)
    assert available_engines() == ("torch",)
    distCUDA2(points_of("uniform", 50, 1))
    assert last_engine() == "torch"
    with pytest.raises(ValueError, match="not installed"):
        distCUDA2(points_of("uniform", 50, 1), engine="scipy")


def test_only_torch_serves_other_devices():
    assert available_engines("cuda") == ("torch",)
    with pytest.raises(ValueError, match="CPU tensors only"):
        libraries.choose_engine("scipy", torch.empty(10, 3, device="meta"))
    assert libraries.choose_engine(None, torch.empty(10, 3, device="meta")) == "torch"


@pytest.mark.parametrize(("shape", "dtype", "engine", "error", "says"), data(__file__)["refused"])
def test_errors_say_what_to_do(shape, dtype, engine, error, says):
    with pytest.raises(getattr(builtins, error), match=says):
        distCUDA2(torch.rand(shape).to(getattr(torch, dtype)), engine=engine)
    with pytest.raises(ValueError, match="5 of the 5 points hold NaN"):
        distCUDA2(torch.full((5, 3), math.nan))


@pytest.mark.slow
def test_a_million_clustered_points_agree_with_scipy():
    spatial = pytest.importorskip("scipy.spatial")
    points = points_of("clustered", 1_000_000, 0)
    result, _ = spatial.cKDTree(points.double().numpy()).query(points.double().numpy(), k=4, workers=-1)
    expected = torch.from_numpy(result[:, 1:]).square().mean(1)
    assert torch.allclose(distCUDA2(points, engine="torch").double(), expected, rtol=1e-6, atol=0)
