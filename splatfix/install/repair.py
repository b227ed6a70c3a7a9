"""``splatfix install --repair``: which steps put an installed package back to what its wheel installed, from where it came."""

from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.utils import canonicalize_name

from splatfix.context import Goal, make_context
from splatfix.context.commands import python_option
from splatfix.core.errors import SplatfixError, require
from splatfix.core.files import object_in
from splatfix.core.reading import read_text
from splatfix.core.step import Step, run, say
from splatfix.install.wheels import MANIFEST
from splatfix.knowledge.archs import parse_target
from splatfix.knowledge.torch_releases import COMPANIONS, index_url
from splatfix.model import Distribution, Facts
from splatfix.model.option import OptionKind, Plan, Request
from splatfix.model.steps import CheckImport, FetchWheel, InstallWheel, Reason
from splatfix.plan import Case, best


def plan_repair(name: str, facts: Facts) -> Plan:
    """Return the plan that installs the same version again: a drop-in put together anew, what splatfix built from its source
    or the wheel cache, anything else as the wheel that pip was given or has from its index.

    For what cannot be had again ``cannot-repair`` is raised, with what to do instead.
    """
    there = facts.environment.distributions.value or ()
    distribution = next(
        (one for one in there if canonicalize_name(one.name) == canonicalize_name(name)), None
    )
    if distribution is None:
        look = run("splatfix", "diagnose", *python_option(facts), text="See what is installed, and altered")
        raise SplatfixError.of("install.not-installed", name=name, todo=(look,))
    name, version = distribution.name, distribution.version
    info = Path(distribution.location) / f"{name}-{version}.dist-info"
    installer = read_text(info / "INSTALLER")
    if distribution.editable:
        undo = say("Undo the edits in that folder.")
        raise _refused(distribution, f"it is an editable install of {distribution.origin}", undo)
    if not (info / "RECORD").is_file():
        raise _refused(distribution, "it has no RECORD, and pip cannot replace it")
    if isinstance(installer, str) and installer.strip() == "conda":
        again = run("conda", "install", "--force-reinstall", f"{name}={version}")
        raise _refused(distribution, "conda installed it", again)
    if distribution.dropin:
        backend = str(object_in(info / MANIFEST).get("backend"))
        request = Request(sources=(distribution.dropin,), backend=backend)
    elif distribution.made_by_splatfix:
        if not distribution.source or distribution.built is None:
            raise _refused(distribution, "splatfix built it from a folder that is gone")
        targets = tuple(map(parse_target, distribution.built.targets))
        request = Request(sources=(distribution.source,), targets=targets)
    else:
        return _fetched_again(distribution, info, facts)
    return require(best(Case(context=make_context(facts, Goal(request.targets)), request=request)))


def _fetched_again(distribution: Distribution, info: Path, facts: Facts) -> Plan:
    """Return the plan that fetches the version from its index, or the wheel that pip was given (PEP 610)."""
    name, version, address = distribution.name, distribution.version, distribution.origin
    requirement = f"{name}=={version}"
    if "archive_info" in object_in(info / "direct_url.json") and address.partition("#")[0].endswith(".whl"):
        requirement = f"{name} @ {address}"
        # where splatfix fetched the wheel pip wrote down the path in a journal entry whose wheels are not kept
        for entry in Path(url2pathname(urlsplit(address).path)).parents:
            if entry.parts[-3:-1] == (".splatfix", "journal"):
                # without a step of its own it came with another, or the entry was removed
                requirement = f"{name}=={version}"
                for step in object_in(entry / "plan.json").get("steps", ()):
                    if step["subject"] == name:
                        requirement = step.get("requirement") or requirement
    elif address:
        again: list[Step] = []
        if distribution.source:
            again.append(run("splatfix", "install", distribution.source, "--reinstall"))
        raise _refused(distribution, f"it was built from {distribution.source or address}", *again)
    local, index = version.partition("+")[2], ""
    # whose builds for one CUDA, or none, only torch's own index may have
    if local and canonicalize_name(name) in ("torch", *COMPANIONS):
        index = index_url(local)
    python = facts.environment.interpreter.value
    assert python is not None
    return Plan(
        kind=OptionKind.KEEP,
        title=f"put {name} {version} back as its wheel has it",
        steps=(
            FetchWheel(subject=name, version=version, requirement=requirement, index=index),
            InstallWheel(subject=name, replaces=version),
            CheckImport(subject=name),
        ),
        reasons=(Reason("what it needs stays as it is: no other package is installed or changed"),),
        python=python.executable,
        prefix=python.prefix,
        request=Request(sources=()),
    )


def _refused(distribution: Distribution, reason: str, *todo: Step) -> SplatfixError:
    subject = f"{distribution.name} {distribution.version}"
    return SplatfixError.of("install.cannot-repair", subject=subject, reason=reason, todo=todo or None)
