"""Sourced tables (architectures, drivers, compilers, torch builds, stacks, failures) and small typed loaders for them."""

from splatfix.knowledge._tables import (
    KnowledgeError,
    Overrides,
    Provenance,
    load_overrides,
    provenance,
    table_names,
    using,
)
from splatfix.knowledge.archs import (
    Arch,
    arch_info,
    cubin_runs_on,
    ptx_runs_on,
    toolkit_supports,
)
from splatfix.knowledge.typed_targets import parse_target, parse_targets, split_targets

__all__ = [
    "Arch",
    "KnowledgeError",
    "Overrides",
    "Provenance",
    "arch_info",
    "cubin_runs_on",
    "load_overrides",
    "parse_target",
    "parse_targets",
    "provenance",
    "ptx_runs_on",
    "split_targets",
    "table_names",
    "toolkit_supports",
    "using",
]
