"""The simulated machines of ``scenarios.toml``, and what a diagnosis must say of each."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from splatfix.core.toml import parse_toml
from tests.driver import A100, RTX_3090, RTX_5090, Card, Instance, Scenario, h100s

BOTH = (RTX_5090, RTX_3090)
# NVML counts by bus, CUDA the fastest first: here they differ
SWAPPED = (replace(RTX_3090, bus="0000:01:00.0"), replace(RTX_5090, bus="0000:41:00.0"))
SMALL = Instance(0, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "MIG-0000000a-1111-2222-3333-444444444444", 4864)
MEDIUM = Instance(0, "NVIDIA A100-SXM4-40GB MIG 2g.10gb", "MIG-0000000b-1111-2222-3333-444444444444", 9856, 3)
_CARDS = {"RTX 5090": RTX_5090, "RTX 3090": RTX_3090, "A100": A100}
_INSTANCES = {"1g.5gb": SMALL, "2g.10gb": MEDIUM}


@dataclass(frozen=True)
class Expected:
    """A machine, and what is said of it."""

    scenario: Scenario
    loud: dict[str, str]
    """Statuses of the findings of GPU and driver that are neither pass nor skip, by code."""
    targets: tuple[str, ...]
    first: str
    """The first thing to do beside a healthy torch; "" for nothing that is to be done here."""


def _cards(row: str | dict[str, Any]) -> tuple[Card, ...]:
    """``RTX 3090``, ``H100 2-8``, or a card with other values."""
    if isinstance(row, dict):
        name, changes = row["name"], {key: value for key, value in row.items() if key != "name"}
        return (replace(_CARDS[name], **changes),)
    if row.startswith("H100 "):
        first, _, last = row.removeprefix("H100 ").partition("-")
        return h100s(8)[int(first) - 1 : int(last or first)]
    return (_CARDS[row],)


def _instance(row: str | dict[str, Any]) -> Instance:
    if isinstance(row, str):
        return _INSTANCES[row]
    return replace(_INSTANCES[row["profile"]], card=row["card"])


def _expected(row: dict[str, Any]) -> Expected:
    said = [row.pop(name, default) for name, default in (("loud", {}), ("targets", ()), ("first", ""))]
    values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in row.items()}
    for name in ("cards", "on_bus_alone"):
        values[name] = tuple(card for item in row.get(name, ()) for card in _cards(item))
    values["instances"] = tuple(map(_instance, row.get("instances", ())))
    if "visible" in values:
        variables = {"CUDA_VISIBLE_DEVICES": values.pop("visible"), **row.get("variables", {})}
        values["variables"] = variables
    loud, targets, first = said
    return Expected(Scenario(**values), loud, tuple(targets), first)


_ROWS = parse_toml(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
SCENARIOS: dict[str, Expected] = {name: _expected(row) for name, row in _ROWS.items()}
