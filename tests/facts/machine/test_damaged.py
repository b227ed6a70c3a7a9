"""Damaged answers: whatever programs, files and NVML say, the machine's probes end in facts or in unknowns with a reason."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from splatfix.checks import run_checks
from splatfix.context import make_context
from splatfix.core.codec import from_json, to_json
from splatfix.core.runner import Completed
from splatfix.facts.machine import adapters, compilers, resources, toolkits
from splatfix.facts.machine import gpu as gpus
from splatfix.facts.machine import probe as machine
from splatfix.facts.system.playback import PlaybackSystem
from splatfix.model import MachineFacts, Status
from tests.archs import goal
from tests.machines import NAMES, facts_of, raw_machines


def noise(text: str, dice: random.Random) -> str:
    """One letter in twenty is another, or not there."""
    letters = list(text)
    for place in dice.sample(range(len(letters)), (len(letters) + 19) // 20):
        letters[place] = dice.choice([*"\0\x1b\ufffd²٣\n\t,:;[]{}()=-9 ", ""])
    return "".join(letters)


def with_digits(others: Sequence[str], share: float) -> Callable[[str, random.Random], str]:
    """Put other digits in the place of a share of them."""
    return lambda text, dice: "".join(
        dice.choice(others) if letter.isdigit() and dice.random() < share else letter for letter in text
    )


DAMAGES: tuple[Callable[[str, random.Random], str], ...] = (
    lambda text, dice: text[: dice.randrange(len(text) + 1)],
    noise,
    with_digits(("9" * 3, "9" * 30, "9" * 5000), 0.2),
    with_digits("٣²߉𝟗", 0.4),
    lambda text, dice: "",
    lambda text, dice: text + text[dice.randrange(len(text) + 1) :] + text,
)


class Damaged(PlaybackSystem):
    """A simulated machine some of whose answers are damaged, the same ones for the same seed."""

    def __init__(self, name: str, seed: int, share: float) -> None:
        super().__init__(raw_machines()[name])
        self._seed, self._share = seed, share

    def _damage(self, text: str, what: object) -> str:
        dice = random.Random(f"{self._seed} {what}")
        return dice.choice(DAMAGES)(text, dice) if dice.random() < self._share else text

    def read(self, path: str) -> str | None:
        text = super().read(path)
        return None if text is None else self._damage(text, path)

    def run(self, argv: Sequence[str], timeout: float = 8.0) -> Completed:
        done = super().run(argv, timeout)
        stdout, stderr = self._damage(done.stdout, (*argv, 1)), self._damage(done.stderr, (*argv, 2))
        return replace(done, stdout=stdout, stderr=stderr)


def probe_each(system: PlaybackSystem) -> None:
    """Every probe by itself: the net that machine.probe spreads under them must not be what holds them."""
    gpus.probe(system)
    adapters.cards(system)
    adapters.probe(system)
    toolkits.probe(system)
    compilers.probe(system)
    compilers.tools(system)
    resources.probe(system)
    toolkits.torch_choice(system, torch_is_cuda=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
def test_damaged_machines_never_break_a_probe(name: str, seed: int) -> None:
    probe_each(Damaged(name, seed, 0.5))
    probe_each(Damaged(name, seed + 1000, 1.0))


@pytest.mark.parametrize("name", NAMES)
def test_facts_of_a_damaged_machine_are_still_facts(name: str) -> None:
    found = machine.probe(Damaged(name, 7, 1.0))
    assert from_json(MachineFacts, to_json(found)) == found
    for fact in (found.gpus, found.driver, found.toolkits, found.compilers, found.adapters, found.libc):
        assert fact.known or fact.error, "what is not known says why"
        assert "the probe itself broke" not in fact.error
    findings = run_checks(make_context(replace(facts_of(name), machine=found), goal("sm_120")))
    assert not [item.summary for item in findings if item.status is Status.CRASH]


NVML_KEYS = "gpus driver cuda cc name error mig mig_devices bus_id memory_total error_code".split()  # noqa: SIM905
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NVML_KEYS), inner, max_size=6)
    ),
    max_leaves=20,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(reply=st.dictionaries(st.sampled_from(["gpus", "driver", "cuda", "error", "error_code"]), JSON))
def test_whatever_nvml_answers(reply: dict[str, Any]) -> None:
    seen = gpus.probe(PlaybackSystem(replace(raw_machines()["card-without-driver"], nvml=reply)))
    assert all(fact.known or fact.error for fact in (seen.gpus, seen.driver))
