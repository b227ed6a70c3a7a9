"""Known breakages of an installed package, mended where it lies: ``splatfix install nerfstudio --in-place``."""

from __future__ import annotations

from splatfix.context import Context
from splatfix.context.commands import pip
from splatfix.context.installed import python_versions
from splatfix.core.errors import SplatfixError, usage_error
from splatfix.knowledge.breakages import breakages
from splatfix.model.option import InstallPlan, OptionKind, Request
from splatfix.model.steps import EditSource, PlannedEdit, Reason
from splatfix.plan.requirements import usable_python


def mended_by_name(request: Request) -> bool:
    """``--in-place``, and every source is the name of a package that there are edits for."""
    names = {record.installed.distribution for record in breakages() if record.installed}
    return request.in_place and bool(request.sources) and names.issuperset(request.sources)


def mend_plan(request: Request, context: Context) -> InstallPlan:
    """The edits of installed packages, each with its files backed up first.

    Raises:
        SplatfixError: ``not-installed`` (exit code 2), ``nothing-to-mend``.
    """
    python, versions = usable_python(context.facts), python_versions(context.facts)
    steps = []
    for name in request.sources:
        distribution = context.distribution(name)
        if distribution is None or distribution.editable:
            problem = f"There is no package {name} in this environment's site-packages."
            raise usage_error("not-installed", problem, pip(context.facts, "install", name))
        edits, reasons = [], []
        for record in breakages():
            breaks = record.breaks_installed(name, distribution.version) and record.when.holds(versions)
            if breaks and record.edits and record.installed:
                sources = "; ".join(record.sources)
                edits.append(PlannedEdit(record.key, record.installed.files, record.symptom, sources))
                reasons.append(Reason(f"{record.title}: {record.cure}"))
        if not edits:
            raise SplatfixError.of("plan.nothing-to-mend", name=name, version=distribution.version)
        source = distribution.location
        steps.append(EditSource(subject=name, source=source, edits=tuple(edits), reasons=tuple(reasons)))
    return InstallPlan(
        OptionKind.KEEP,
        f"edit the installed {', '.join(request.sources)}",
        steps=tuple(steps),
        python=python.executable,
        prefix=python.prefix,
        request=request,
    )
