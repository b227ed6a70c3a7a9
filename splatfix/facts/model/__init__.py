"""The facts as data: what was learned about one machine and one Python environment, and how. Never a judgement."""

from __future__ import annotations

from dataclasses import dataclass, field

from splatfix.facts.model.environment import (
    BuildRecord,
    Distribution,
    EnvironmentFacts,
    Extension,
    ImportProbe,
    Interpreter,
    JitCache,
    Linkage,
    RuntimeCopy,
    RuntimeLibrary,
    SplatPackage,
    ToolkitChoice,
    Torch,
)
from splatfix.facts.model.fact import Code, Fact, FatbinGroup, absent, group_fatbins, loaded_fatbins, unknown
from splatfix.facts.model.machine import (
    Adapter,
    Colmap,
    Compiler,
    Driver,
    Gpu,
    HeaderCopy,
    MachineFacts,
    Resources,
    Toolkit,
)
from splatfix.facts.model.source import (
    Checkout,
    CheckoutSource,
    CodeMatch,
    GuardedImport,
    NativeModule,
    Pin,
    RenderCall,
    Shadow,
    Source,
    Submodule,
)

__all__ = [
    "SCHEMA_VERSION",
    "Adapter",
    "BuildRecord",
    "Checkout",
    "CheckoutSource",
    "Code",
    "CodeMatch",
    "Colmap",
    "Compiler",
    "Distribution",
    "Driver",
    "EnvironmentFacts",
    "Extension",
    "Fact",
    "Facts",
    "FatbinGroup",
    "Gpu",
    "GuardedImport",
    "HeaderCopy",
    "ImportProbe",
    "Interpreter",
    "JitCache",
    "Linkage",
    "MachineFacts",
    "NativeModule",
    "Pin",
    "RenderCall",
    "Resources",
    "RuntimeCopy",
    "RuntimeLibrary",
    "Shadow",
    "Source",
    "SplatPackage",
    "Submodule",
    "Toolkit",
    "ToolkitChoice",
    "Torch",
    "absent",
    "group_fatbins",
    "loaded_fatbins",
    "unknown",
]

SCHEMA_VERSION = 2


@dataclass(frozen=True)
class Facts:
    """One document for a machine and a target environment; goes to JSON and back without loss."""

    machine: MachineFacts
    environment: EnvironmentFacts
    splatfix: str
    """The version of splatfix that gathered the facts."""
    gathered: str = ""
    """UTC time, ISO 8601."""
    checkout: Fact[Checkout] = field(default_factory=Fact)
    """The stack's folder that ``--repo`` names; unknown without one."""
    schema_version: int = SCHEMA_VERSION
