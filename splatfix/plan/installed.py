"""Known breakages of an installed package, mended where it lies: ``splatfix install nerfstudio --in-place``."""

from __future__ import annotations

from splatfix.context import Context
from splatfix.context.commands import pip
from splatfix.context.installed import python_versions
from splatfix.core.errors import Rejected
from splatfix.knowledge.breakages import breakages
from splatfix.model.option import OptionKind, Plan, Request
from splatfix.model.steps import EditSource, PlannedEdit, Reason
from splatfix.plan.requirements import usable_python


def mended_by_name(request: Request) -> bool:
    """Tell whether it is ``--in-place``, and every source is the name of a package that there are edits for."""
    names = {record.installed.distribution for record in breakages() if record.installed}
    return request.in_place and bool(request.sources) and names.issuperset(request.sources)


def mend_plan(request: Request, context: Context) -> Plan | Rejected:
    """Plan the edits of installed packages, each with its files backed up first."""
    python, versions = usable_python(context.facts), python_versions(context.facts)
    if isinstance(python, Rejected):
        return python
    steps = []
    for name in request.sources:
        distribution = context.distribution(name)
        if distribution is None or distribution.editable:
            return Rejected.of("plan.not-installed", todo=(pip(context.facts, "install", name),), name=name)
        edits, reasons = [], []
        for record in breakages():
            breaks = record.breaks_installed(name, distribution.version) and record.when.holds(versions)
            if breaks and record.edits and record.installed:
                sources = "; ".join(record.sources)
                edits.append(PlannedEdit(record.key, record.installed.files, record.symptom, sources))
                reasons.append(Reason(f"{record.title}: {record.cure}"))
        if not edits:
            return Rejected.of("plan.nothing-to-mend", name=name, version=distribution.version)
        where = distribution.location
        steps.append(EditSource(subject=name, source=where, edits=tuple(edits), reasons=tuple(reasons)))
    return Plan(OptionKind.KEEP, f"edit the installed {', '.join(request.sources)}", tuple(steps))
