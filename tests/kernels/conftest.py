"""For all tests of the kernels."""

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from .cuda.emulator import COMPILER, emulated_module, use_kernels  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors gain nothing from a second thread, and lose much where other processes keep the cores busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for kernels gets emulated ones."""
    if COMPILER is None:
        pytest.skip("no C++ compiler")
    use_kernels(emulated_module, monkeypatch)


@pytest.fixture
def compiled(request: pytest.FixtureRequest) -> None:
    """Those that NVRTC compiles for this GPU; emulated in a rehearsal of gpu-check, where `cuda` is the CPU."""
    if not torch.zeros(1, device="cuda").is_cuda:
        request.getfixturevalue("emulated")
