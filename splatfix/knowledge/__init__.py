"""Sourced tables (architectures, drivers, compilers, torch builds, stacks, failures) and small typed loaders for them."""

from splatfix.knowledge.archs import (
    AUTO,
    Arch,
    Auto,
    arch_info,
    cubin_runs_on,
    parse_requested,
    parse_target,
    parse_targets,
    ptx_runs_on,
    split_targets,
    toolkit_supports,
)
from splatfix.knowledge.tables import KnowledgeError, Overrides, load_overrides, table_names, using

__all__ = [
    "AUTO",
    "Arch",
    "Auto",
    "KnowledgeError",
    "Overrides",
    "arch_info",
    "cubin_runs_on",
    "load_overrides",
    "parse_requested",
    "parse_target",
    "parse_targets",
    "ptx_runs_on",
    "split_targets",
    "table_names",
    "toolkit_supports",
    "using",
]
