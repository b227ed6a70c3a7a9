"""Nearest neighbors against brute force in float64: direct differences, all pairs, nothing shared with the kernel."""

import builtins
import math
import warnings
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import splatfix.kernels.knn as entry
from splatfix.kernels import knn_search as module
from splatfix.kernels.knn import distCUDA2, last_engine
from tests.tables import data

from .scenes import KINDS, points_of

ENGINES = ["scipy", "torch"] if find_spec("scipy") else ["torch"]
FLT_MAX = torch.finfo(torch.float32).max


def mean_of_three(points: torch.Tensor) -> torch.Tensor:
    squared = (points.double().unsqueeze(1) - points.double().unsqueeze(0)).square().sum(2)
    squared.fill_diagonal_(float("inf"))
    return squared.topk(3, largest=False).values.mean(1)


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=8 * torch.finfo(found.dtype).eps, atol=0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mean_of_three_is_exact(engine, kind, dtype):
    points = points_of(kind, 700, seed=3, dtype=dtype)
    result = distCUDA2(points, engine=engine)
    assert last_engine() == engine
    assert result.dtype == dtype and result.shape == (700,)
    assert_close(result, mean_of_three(points))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(KINDS),
    count=st.integers(4, 400),
    seed=st.integers(0, 2**16),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    pairs=st.sampled_from([1 << 5, 1 << 16]),
    candidates=st.sampled_from([2, 64, 10**9]),
)
def test_torch_engine_is_exact_for_any_cloud(kind, count, seed, dtype, pairs, candidates):
    """With batches that split early or never, and with none, few or most leaves searched point by point."""
    points = points_of(kind, count, seed, dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CPU_PAIRS", pairs)
        patch.setattr(module, "_MOST_CANDIDATES", candidates)
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


def test_the_sorted_points_count_towards_the_budget():
    points = points_of("uniform", 20_000, 1)
    search = module._Search(points, 1 << 20, 2)
    held = 4 * (search.rows.numel() + search.ids.numel() + sum(level[0].numel() for level in search.levels))
    assert 1 << 18 < held < 1 << 20
    assert 1 << 18 < search.most_pairs * 2 * module._BYTES_PER_PAIR <= (1 << 20) - held


def test_points_that_are_all_equal_are_no_quadratic_work():
    assert not distCUDA2(points_of("one point", 200_000, 1), engine="torch").any()


def test_inference_mode_of_the_caller_does_not_matter():
    points = points_of("clustered", 1_000, 4)
    with torch.inference_mode():
        result = distCUDA2(points, engine="torch")
    assert_close(result, mean_of_three(points))


def test_an_error_in_a_thread_is_raised(monkeypatch):
    def fails(*_):
        assert torch.get_num_threads() == 1
        raise ValueError("in the middle")

    torch.set_num_threads(3)
    monkeypatch.setattr(module._Search, "_improve", fails)
    with pytest.raises(ValueError, match="in the middle"):
        distCUDA2(points_of("clustered", 3_000, 4), engine="torch", budget_bytes=1 << 14)
    assert torch.get_num_threads() == 3


def test_scipy_out_of_memory_is_asked_for_less(monkeypatch):
    monkeypatch.setattr(module, "_warned", False)
    requested = []

    class Limited(pytest.importorskip("scipy.spatial").cKDTree):
        def query(self, x, **options):
            requested.append(len(x))
            if len(x) > 400:
                raise MemoryError
            return super().query(x, **options)

    monkeypatch.setattr(entry, "_scipy_spatial", lambda: SimpleNamespace(cKDTree=Limited))
    points = points_of("clustered", 1500, 6)
    with pytest.warns(RuntimeWarning, match="out of memory") as observed:
        result = distCUDA2(points, engine="scipy")
    assert len(observed) == 1 and requested == [1500, 750, 375, 375, 750, 375, 375]
    assert_close(result, mean_of_three(points))


def test_out_of_memory_halves_the_batch_and_says_so_once(monkeypatch):
    monkeypatch.setattr(module, "_warned", False)
    refused, honest = [], module._sum_of_squares

    def short_of_memory(gaps):
        if gaps.numel() > 20_000:
            refused.append(gaps.numel())
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return honest(gaps)

    monkeypatch.setattr(module, "_sum_of_squares", short_of_memory)
    points = points_of("clustered", 6000, 2)
    with pytest.warns(RuntimeWarning, match="out of memory") as observed:
        result = distCUDA2(points, engine="torch")
    assert len(refused) >= 2 and len(observed) == 1
    monkeypatch.undo()
    assert torch.equal(result, distCUDA2(points, engine="torch"))


def test_other_errors_are_not_taken_for_lack_of_memory(monkeypatch):
    def broken(gaps):
        raise RuntimeError("device-side assert triggered")

    monkeypatch.setattr(module, "_sum_of_squares", broken)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match="device-side assert"):
            distCUDA2(points_of("uniform", 1000, 1), engine="torch")


def test_scipy_absent_is_not_claimed(monkeypatch):
    monkeypatch.setattr(entry, "_scipy_spatial", lambda: None)
    distCUDA2(points_of("uniform", 50, 1))
    assert last_engine() == "torch"
    with pytest.raises(ValueError, match="not installed"):
        distCUDA2(points_of("uniform", 50, 1), engine="scipy")


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
