"""What every plan of an installation has: its steps in order, whose rasterizer it replaces, and what it does not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from packaging.utils import canonicalize_name

from splatfix.core.proof import RungName
from splatfix.facts import Facts
from splatfix.plan.option import Limit
from splatfix.plan.parts import conflict_with
from splatfix.plan.requirements import replaced_version
from splatfix.plan.steps import (
    BuildWheel,
    CheckImport,
    EditSource,
    InstallStep,
    InstallWheel,
    MakeDropin,
    VerifyWheel,
)

NOT_RUN: tuple[Limit, ...] = (
    Limit(RungName.COMPUTES, "nothing is run; splatfix verify does that"),
    Limit(RungName.TRAINS, "nothing is trained; splatfix certify does that"),
)
"""What an installation alone does not show."""


def in_order(
    facts: Facts, makers: Sequence[BuildWheel | MakeDropin], *, in_place: bool = False
) -> tuple[InstallStep, ...]:
    """Everything is made and verified before the first thing is installed."""
    verifications: list[InstallStep] = []
    installs: list[InstallStep] = []
    for step in makers:
        built = isinstance(step, BuildWheel)
        # a drop-in's own kernels are compiled, and so shown, while it is made
        verifications.append(VerifyWheel(subject=step.subject, targets=step.targets if built else ()))
        if in_place and isinstance(step, BuildWheel) and step.edits:
            installs.append(EditSource(subject=step.subject, source=step.source, edits=step.edits))
        installs.append(InstallWheel(subject=step.subject, replaces=replaced_version(facts, step.subject)))
        installs.append(CheckImport(subject=step.subject))
    return (*makers, *verifications, *installs)


def conflicts_of(facts: Facts, coming: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Whose rasterizer a plan replaces by another stack's, each as a sentence.

    Args:
        coming: by the name of a distribution, keys of the variants that it can be.
    """
    variants = {canonicalize_name(name): keys for name, keys in coming.items()}
    sentences = []
    for package in facts.environment.packages.value or ():
        names = (canonicalize_name(text) for text in (package.module, *package.distributions))
        for name in dict.fromkeys(names):
            if sentence := conflict_with(package, variants.get(name, ())):
                sentences.append(sentence)
    return tuple(sentences)
