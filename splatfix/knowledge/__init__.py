"""Sourced tables (architectures, drivers, compilers, torch builds, stacks, failures) and small typed loaders for them."""

from splatfix.knowledge.archs import (
    AUTO,
    Arch,
    RequestedTarget,
    cubin_runs_on,
    parse_requested,
    parse_target,
    parse_targets,
    ptx_runs_on,
    toolkit_supports,
)
from splatfix.knowledge.tables import KnowledgeError, load_overrides, table_names, using
