"""What lies around a build: libcuda, graphics headers, copies of CUB, container and Windows runtimes, COLMAP; what was not
looked at stays unknown."""

import json
from pathlib import Path
from typing import Any

import pytest

from splatfix.checks import run_checks
from splatfix.context import make_context
from splatfix.core.codec import to_json
from splatfix.core.files import write_json
from splatfix.facts import load
from splatfix.facts.machine import libraries as look
from tests.facts.conftest import MachineOf
from tests.machines import facts_of
from tests.tables import data

TABLE = data(__file__)


@pytest.mark.parametrize(("question", "given", "value"), TABLE["looks"])
def test_what_lies_around_a_build(
    machine_of: MachineOf, question: str, given: dict[str, Any], value: object
) -> None:
    found = getattr(look, question)(machine_of(**given)).value
    assert to_json(found) == json.loads(json.dumps(value))


def test_folders_never_seen_leave_facts_unknown(machine_of: MachineOf) -> None:
    bare = machine_of()
    assert not look.loaded_libcuda(bare).known
    assert not look.missing_graphics(bare).known
    assert not look.missing_msvc_runtime(bare).known
    assert not look.container_toolkit(bare).known
    assert look.header_copies(bare).value == ()


def test_older_facts_leave_new_fields_unknown(tmp_path: Path) -> None:
    """A facts.json that was saved before these fields were there still loads, and checks say nothing of them."""
    new = facts_of("rtx-5060-ti-wsl2")
    document = to_json(new)
    assert isinstance(document, dict)
    fields = (
        *("libcuda", "linkable_libcuda", "header_copies", "missing_graphics", "missing_msvc_runtime"),
        *("container_toolkit", "colmap"),
    )
    for name in fields:
        del document["machine"][name]
    for toolkit in document["machine"]["toolkits"]["value"]:
        for name in ("cudart_in", "has_lib64", "cub"):
            del toolkit[name]
    for extension in document["environment"]["extensions"]["value"]:
        extension.pop("python_module", None)
    write_json(tmp_path / "facts.json", document)
    old = load(tmp_path / "facts.json")
    assert not [name for name in fields if getattr(old.machine, name).known]
    assert {item.code for item in run_checks(make_context(new))} - {
        item.code for item in run_checks(make_context(old))
    } == {"wsl-wrong-libcuda"}
