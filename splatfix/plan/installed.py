"""Known breakages of an installed package, mended where it lies: ``splatfix install nerfstudio --in-place``."""

from __future__ import annotations

from splatfix.context import Context
from splatfix.context.commands import pip
from splatfix.context.installed import python_versions
from splatfix.core.errors import SplatfixError, usage_error
from splatfix.knowledge.breakages import Breakage, breakages
from splatfix.plan.edits import PlannedEdit
from splatfix.plan.option import InstallPlan, OptionKind, Request
from splatfix.plan.requirements import usable_python
from splatfix.plan.steps import EditSource, Reason


def mended_by_name(request: Request) -> bool:
    """``--in-place``, and every source is the name of a package that there are edits for."""
    names = {record.installed.distribution for record in breakages() if record.installed}
    return request.in_place and bool(request.sources) and names.issuperset(request.sources)


def mend_plan(request: Request, context: Context) -> InstallPlan:
    """The edits of installed packages, each with its files backed up first.

    Raises:
        SplatfixError: ``not-installed`` (exit code 2), ``nothing-to-mend``.
    """
    python = usable_python(context.facts)
    steps = []
    for name in request.sources:
        distribution = context.distribution(name)
        if distribution is None or distribution.editable:
            problem = f"There is no package {name} in this environment's site-packages."
            raise usage_error("not-installed", problem, pip(context.facts, "install", name))
        records = [record for record in _breaking(name, context) if record.edits]
        edits = []
        for record in records:
            assert record.installed is not None
            edits.append(
                PlannedEdit(record.key, record.installed.files, record.symptom, "; ".join(record.sources))
            )
        if not edits:
            raise SplatfixError.of("plan.nothing-to-mend", name=name, version=distribution.version)
        reasons = tuple(Reason(f"{record.title}: {record.cure}") for record in records)
        source = distribution.location
        steps.append(EditSource(subject=name, source=source, edits=tuple(edits), reasons=reasons))
    return InstallPlan(
        OptionKind.KEEP,
        f"edit the installed {', '.join(request.sources)}",
        steps=tuple(steps),
        python=python.executable,
        prefix=python.prefix,
        request=request,
    )


def _breaking(name: str, context: Context) -> list[Breakage]:
    """The records of a package's breakages that hold here."""
    versions = python_versions(context.facts)
    found = []
    for record in breakages():
        if record.breaks_installed(name, context.version_of(name)) and record.when.holds(versions):
            found.append(record)
    return found
