"""The facts as data: what was found out about one machine and one Python environment, and how. No judgement."""

from msgspec import Struct, field

from splatfix.core.reading import Unread
from splatfix.model.environment import EnvironmentFacts
from splatfix.model.fact import Fact
from splatfix.model.machine import MachineFacts
from splatfix.model.source import Checkout

SCHEMA_VERSION = 3


class Facts(Struct, frozen=True, forbid_unknown_fields=True):
    """One document for a machine and a target environment; goes to JSON and back without loss."""

    machine: MachineFacts
    environment: EnvironmentFacts
    splatfix: str
    """The version of splatfix that gathered the facts."""
    gathered: str = ""
    """UTC time, ISO 8601."""
    checkout: Fact[Checkout] = field(default_factory=Fact)
    """The stack's folder that ``--repo`` names; unknown without one."""
    unreadable: tuple[Unread, ...] = ()
    """Files and folders of the machine and the environment that are there, but were not read, or not to their end."""
    schema_version: int = SCHEMA_VERSION
