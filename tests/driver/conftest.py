"""The simulated driver libraries, compiled once."""

import venv
from collections.abc import Iterator

import pytest

from tests.driver import Machines


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Diagnoses scenarios on simulated libraries; see :mod:`tests.driver`."""
    folder = tmp_path_factory.mktemp("driver")
    venv.create(folder / "venv", symlinks=True, with_pip=False)
    found = Machines(folder, folder / "venv" / "bin" / "python")
    yield found
    found.close()
