"""A drop-in for the compiled module of a package that stays, and what is installed of that package."""

from __future__ import annotations

from splatfix.context.commands import pip
from splatfix.context.context import Context
from splatfix.core.step import Step
from splatfix.core.versions import release
from splatfix.knowledge.dropins import Dropin


def release_served(dropin: Dropin, version: str) -> bool:
    """Tell whether the drop-in was made for this version of its host, whatever its local part (``1.4.0+pt24cu124``) says."""
    return version.partition("+")[0] in dropin.host_releases


def imported_by_host(dropin: Dropin, version: str) -> tuple[str, ...]:
    """Return the distributions that this version of the host imports when something is first drawn, and does not ask pip for."""
    return dropin.host_imports.get(version.partition("+")[0], ())


def compiled_module(context: Context, dropin: Dropin) -> str:
    """Return the path of the host's own compiled module, which a drop-in would hide; "" where there is none."""
    package = f"{dropin.module.partition('.')[0]}."
    own = (item for item in context.extensions if item.module.startswith(package) and item.importable)
    return next((item.path for item in own), "")


def other_releases(context: Context, dropin: Dropin) -> tuple[Step, ...]:
    """Build the commands that install releases of the host which the drop-in was made for, the newest first."""
    steps, text = [], "Install a release that it was made for"
    for version in sorted(dropin.host_releases, key=release, reverse=True):
        steps.append(pip(context.facts, "install", f"{dropin.host}=={version}", text=text))
        text = "Or"
    return tuple(steps)
