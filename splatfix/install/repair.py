"""``splatfix install --repair``: which steps put an installed package back to what its wheel installed, from where it came."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.utils import canonicalize_name

from splatfix.context import Goal, make_context
from splatfix.context.commands import python_option
from splatfix.core.errors import SplatfixError, require, usage_error
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
    """The plan that installs the same version again: a drop-in put together anew, what splatfix built from its source or the
    wheel cache, anything else as the wheel that pip was given or has from its index.

    Raises:
        SplatfixError: ``not-installed`` (exit code 2); ``cannot-repair`` for what cannot be had again, with what to do
            instead; as :func:`best`.
    """
    distribution = None
    for item in facts.environment.distributions.value or ():
        if canonicalize_name(item.name) == canonicalize_name(name):
            distribution = item
    if distribution is None:
        raise usage_error(
            "not-installed",
            f"There is no package {name} in this environment.",
            run("splatfix", "diagnose", *python_option(facts), text="See what is installed, and altered"),
        )
    if distribution.editable:
        folder = distribution.origin
        raise _refused(
            distribution, f"it is an editable install of {folder}", say("Undo the edits in that folder.")
        )
    info = Path(distribution.location) / f"{distribution.name}-{distribution.version}.dist-info"
    if not (info / "RECORD").is_file():
        raise _refused(distribution, "it has no RECORD, and pip cannot replace it")
    installer = read_text(info / "INSTALLER")
    if isinstance(installer, str) and installer.strip() == "conda":
        again = run("conda", "install", "--force-reinstall", f"{distribution.name}={distribution.version}")
        raise _refused(distribution, "conda installed it", again)
    if distribution.dropin:
        request = Request(
            sources=(distribution.dropin,), backend=str(object_in(info / MANIFEST).get("backend"))
        )
    elif distribution.made_by_splatfix:
        if not distribution.source or distribution.built is None:
            raise _refused(distribution, "splatfix built it from a folder that is gone")
        targets = tuple(map(parse_target, distribution.built.targets))
        request = Request(sources=(distribution.source,), targets=targets)
    else:
        requirement = _requirement(distribution, info)
        python = facts.environment.interpreter.value
        assert python is not None
        name, version, index = distribution.name, distribution.version, ""
        local = version.partition("+")[2]
        # whose builds for one CUDA, or none, only torch's own index may have
        if local and canonicalize_name(name) in ("torch", *COMPANIONS):
            index = index_url(local)
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
    return require(best(Case(context=make_context(facts, Goal(request.targets)), request=request)))


def _requirement(distribution: Distribution, info: Path) -> str:
    """What pip is asked for: this version from its index, or the wheel that it was given (PEP 610)."""
    address = distribution.origin
    if not address:
        return f"{distribution.name}=={distribution.version}"
    direct: dict[str, Any] = object_in(info / "direct_url.json")
    if "archive_info" in direct and address.partition("#")[0].endswith(".whl"):
        return _as_fetched(distribution, address) or f"{distribution.name} @ {address}"
    if distribution.source:
        again = run("splatfix", "install", distribution.source, "--reinstall")
        raise _refused(distribution, f"it was built from {distribution.source}", again)
    raise _refused(distribution, f"it was built from {address}")


def _as_fetched(distribution: Distribution, address: str) -> str:
    """What splatfix asked pip for, where it fetched the wheel itself: pip wrote down the path that splatfix gave it, in a
    journal entry whose wheels are not kept. Empty where that is no such path."""
    for entry in Path(url2pathname(urlsplit(address).path)).parents:
        if entry.parts[-3:-1] == (".splatfix", "journal"):
            break
    else:
        return ""
    for step in object_in(entry / "plan.json").get("steps", ()):
        if step.get("kind") == FetchWheel.kind and step.get("subject") == distribution.name:
            return str(step["requirement"])
    return f"{distribution.name}=={distribution.version}"  # it came with another, or the entry was removed


def _refused(distribution: Distribution, reason: str, *todo: Step) -> SplatfixError:
    subject = f"{distribution.name} {distribution.version}"
    return SplatfixError.of("install.cannot-repair", subject=subject, reason=reason, todo=todo or None)
