"""Prebuilt wheels that were found and proven: fetched, verified again and installed in the place of a build."""

from __future__ import annotations

from msgspec.structs import replace

from splatfix.core.errors import Rejected
from splatfix.core.step import target_options
from splatfix.model.option import OptionKind, Plan
from splatfix.model.steps import FetchWheel, Reason
from splatfix.plan.case import Case, not_applicable


def wheels(case: Case) -> Plan | Rejected:
    """Install the wheels that were found for the sources; they were looked for before, here nothing is."""
    against, unsure = case.torch_obstacles()
    prebuilt = case.prebuilt or {}
    lacking = [name for name in case.sources.variants if name not in prebuilt]
    if lacking or not prebuilt:
        against.append(f"no wheel is proven for {', '.join(lacking) or 'anything here'}")
    if against:
        return not_applicable(*against)
    options = ["--backend", "wheels", *target_options(case.context.archs)]
    for index in dict.fromkeys(step.origin for step in prebuilt.values()):
        options += ["--index", index]
    first, *others = prebuilt.values()
    first = replace(first, command=case.splatfix("install", *case.sources.named, *options))
    reasons = [Reason(why_prebuilt(step)) for step in prebuilt.values()]
    return case.make_option(OptionKind.WHEEL, (first, *others, case.confirm()), reasons, unsure)


def why_prebuilt(step: FetchWheel) -> str:
    """Say what is known of a prebuilt wheel, and what is not."""
    return (
        f"{step.subject} {step.version} of {step.origin} is prebuilt: its GPU code, torch's symbols and how it is called fit; "
        "whether its CUDA code is that of the source cannot be read (--no-find compiles it)"
    )
