"""The options of every simulated machine, for its own GPUs and for three others, as an expert would rank them.

``SPLATFIX_UPDATE_GOLDENS=1 pytest tests/machines`` writes the goldens anew; read them before they are committed.
"""

from typing import Any

import pytest

from splatfix.core.files import dumps
from splatfix.core.step import Step
from tests.archs import goal
from tests.files import assert_golden
from tests.machines import HERE, NAMES, facts_of
from tests.plan.machines import find_options

TARGETS = ("auto", "sm_120", "sm_90", "sm_75")


def readable(machine: str, target: str) -> dict[str, Any]:
    """The options with every step as its sentence and its command."""
    facts = facts_of(machine)
    made = find_options(goal(target), facts)
    windows = facts.machine.system == "windows"
    return {
        "targets": [target.sm for target in made.targets],
        "available": [
            {
                "kind": option.kind.value,
                "steps": [_sentence(step, windows) for step in option.steps],
                "because": [reason.text for reason in option.reasons],
                "not_known": option.unsure,
                "proves": [rung.value for rung in option.proves],
                "cannot_prove": {limit.rung.value: limit.why for limit in option.cannot_prove},
            }
            for option in made.available
        ],
        "rejected": {option.kind.value: option.rejected_because for option in made.rejected},
        "notes": made.notes,
    }


def _sentence(step: Step, windows: bool) -> str:
    command = f" $ {step.command.shell(windows=windows)}" if step.command else ""
    return f"{step.text}{command}".strip()


@pytest.mark.parametrize("name", NAMES)
def test_plans_read_as_the_golden(name: str) -> None:
    found = {target: readable(name, target) for target in TARGETS}
    assert_golden(HERE / name / "plans.json", dumps(found))
