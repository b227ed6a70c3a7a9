"""Prebuilt wheels that were found and proven: fetched, verified again and installed in the place of a build."""

from __future__ import annotations

from msgspec.structs import replace

from splatfix.core.step import target_options
from splatfix.model.option import NotApplicable, Option, OptionKind
from splatfix.model.steps import FetchWheel, Reason
from splatfix.plan.assessment import Assessment, torch_obstacles
from splatfix.plan.compose import confirm, make_option, splatfix


def wheels(assessment: Assessment) -> Option:
    """Install the wheels that were found for the sources; they were looked for before, here nothing is.

    Raises:
        NotApplicable: an extension has none, or the installed torch cannot serve any.
    """
    against, unsure = torch_obstacles(assessment)
    prebuilt = assessment.sources.prebuilt or {}
    lacking = [name for name in assessment.sources.variants if name not in prebuilt]
    if lacking or not prebuilt:
        against.append(f"no wheel is proven for {', '.join(lacking) or 'anything here'}")
    if against:
        raise NotApplicable("; ".join(against))
    sources = assessment.sources.named
    options = ["--backend", "wheels", *target_options(assessment.context.archs)]
    for index in dict.fromkeys(step.origin for step in prebuilt.values()):
        options += ["--index", index]
    command = splatfix(assessment, "install", *sources, *options)
    first, *others = prebuilt.values()
    steps = (replace(first, command=command), *others, confirm(assessment))
    reasons = [Reason(why_prebuilt(step)) for step in prebuilt.values()]
    return make_option(assessment, OptionKind.WHEEL, steps, reasons, unsure)


def why_prebuilt(step: FetchWheel) -> str:
    """What is known of a prebuilt wheel, and what is not."""
    return (
        f"{step.subject} {step.version} of {step.origin} is prebuilt: its GPU code, torch's symbols and how it is called fit; "
        "whether its CUDA code is that of the source cannot be read (--no-find compiles it)"
    )
