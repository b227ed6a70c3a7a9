"""The visit that the steps are a part of."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from splatfix.core.scratch import temporary_folder

from . import needs
from .context import Context
from .visit import BUDGET, Visit

VISIT = pytest.StashKey[Visit]()


@pytest.fixture(scope="session")
def visit(request: pytest.FixtureRequest) -> Iterator[Visit]:
    """That of ``make gpu-check``; plain pytest makes one where there is a GPU."""
    parameters = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    with temporary_folder() as work:
        current = request.config.stash.get(VISIT, None) or _plain_visit(work)
        current.begin(given["step"] for given in parameters if "step" in given)
        yield current
        current.close()


def _plain_visit(work: Path) -> Visit:
    machine, obstacle = needs.machine()
    if obstacle:
        pytest.skip(obstacle)
    sources, _ = needs.sources_in(Path(os.environ["GPU_SOURCES"]) if "GPU_SOURCES" in os.environ else None)
    out = Path("gpu-check").absolute()
    out.mkdir(exist_ok=True)
    return Visit(Context(str(work), str(out), sources), machine, until=time.monotonic() + BUDGET)
