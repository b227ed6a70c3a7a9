"""What lies around a build: libcuda, graphics headers, copies of CUB, container and Windows runtimes, COLMAP; what was not
looked at stays unknown."""

import json
from typing import Any

import pytest

from splatfix.core.codec import to_json
from splatfix.facts.machine import libraries as look
from tests.facts.conftest import MachineOf
from tests.tables import data

TABLE = data(__file__)


@pytest.mark.parametrize(("question", "given", "value"), TABLE["looks"])
def test_around_a_build(machine_of: MachineOf, question: str, given: dict[str, Any], value: object) -> None:
    found = getattr(look, question)(machine_of(**given)).value
    assert to_json(found) == json.loads(json.dumps(value))


def test_folders_never_seen_leave_facts_unknown(machine_of: MachineOf) -> None:
    bare = machine_of()
    assert not look.loaded_libcuda(bare).known
    assert not look.missing_graphics(bare).known
    assert not look.missing_msvc_runtime(bare).known
    assert not look.container_toolkit(bare).known
    assert look.header_copies(bare).value == ()
