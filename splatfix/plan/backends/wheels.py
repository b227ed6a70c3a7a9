"""Compile with a CUDA toolkit from PyPI wheels, unpacked into splatfix's own cache: CUDA 13 has a whole compiler there."""

from __future__ import annotations

from splatfix.core.errors import SplatfixError
from splatfix.plan.assessment import Assessment
from splatfix.plan.backends.native import rebuild_steps, tools_without_toolkit, torch_to_build_for
from splatfix.plan.compose import make_option
from splatfix.plan.option import NotApplicable, Option, OptionKind
from splatfix.plan.tools import tools_from_wheels


def provide_toolkit(assessment: Assessment) -> Option:
    """Download a toolkit and compile with it."""
    torch, unsure = torch_to_build_for(assessment)
    tools_without_toolkit(assessment, torch, unsure)
    try:
        tools = tools_from_wheels(assessment.context, torch)
    except SplatfixError as error:
        raise NotApplicable(error.what) from error
    steps = rebuild_steps(assessment, tools, "--provide-toolkit")
    return make_option(assessment, OptionKind.PROVIDE_TOOLKIT, steps, tools.reasons, unsure)
