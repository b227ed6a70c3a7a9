"""Wheels of what the code imports: pip works out what is needed beside what is installed, and fetches that alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from splatfix.core.codec import parse_json
from splatfix.core.errors import SplatfixError
from splatfix.core.runner import Completed, Runner
from splatfix.core.step import run, say
from splatfix.facts import Distribution
from splatfix.install.downloads import pip_with_index
from splatfix.install.environment import Environment
from splatfix.plan.steps import InstallDependencies


def fetch_dependencies(
    action: InstallDependencies,
    installed: Iterable[Distribution],
    environment: Environment,
    runner: Runner,
    folder: Path,
    log: Path,
    doing: Callable[[str], None],
) -> list[Path]:
    """The wheels to install, in ``folder``; none where everything is there.

    What is installed keeps its version, torch above all: pip is held to it by constraints, and refuses what does not fit.
    Source distributions are built, as pip does it. The environment is not changed.

    Args:
        folder: a new one.

    Raises:
        SplatfixError: ``dependencies-not-found`` with what pip said.
    """
    pip = environment.installer.pip(environment.python)
    folder.mkdir(parents=True)
    report, held = folder / "report.json", folder / "constraints.txt"
    wanted = {_name_of(text) for text in action.requirements}
    held.write_text("".join(f"{pin}\n" for pin in _pins(installed, wanted)))
    index = ["--extra-index-url", action.index] if action.index else []
    doing("working out what they need")
    words = ["install", "--dry-run", "--quiet", "--report", str(report), "--constraint", str(held), *index]
    done = pip_with_index([*words, *action.requirements], pip, runner, log)
    if not done.ok or not report.is_file():
        raise _not_found(action, environment, done, log)
    pins = [_pin(row) for row in parse_json(report.read_text("utf-8")).get("install", ())]
    if not pins:
        return []
    doing(f"fetching {len(pins)} of them")
    done = pip_with_index(["wheel", "--no-deps", "--wheel-dir", str(folder), *index, *pins], pip, runner, log)
    if not done.ok:
        raise _not_found(action, environment, done, log)
    return sorted(folder.glob("*.whl"))


def _pins(installed: Iterable[Distribution], wanted: set[str]) -> Iterable[str]:
    for item in installed:
        try:
            version = Version(item.version)
        except InvalidVersion:
            continue
        if canonicalize_name(item.name) not in wanted:
            yield f"{item.name}=={version}"


def _pin(row: dict[str, Any]) -> str:
    """One entry of pip's report, as a requirement that only it meets."""
    name, version = row["metadata"]["name"], row["metadata"]["version"]
    return f"{name} @ {row['download_info']['url']}" if row.get("is_direct") else f"{name}=={version}"


def _name_of(requirement: str) -> str:
    return canonicalize_name(re.split(r"[<>=!~\[;@ ]", requirement)[0])


def _not_found(
    action: InstallDependencies, environment: Environment, done: Completed, log: Path
) -> SplatfixError:
    text = done.stdout + done.stderr
    said = [line.strip() for line in text.splitlines() if line.startswith("ERROR")]
    if "no such option" in text:
        how = run(
            *environment.command("install", "--upgrade", "pip"),
            text="This pip is older than 22.2; upgrade it",
        )
    else:
        how = say("Leave --with-dependencies away, and install what fits with pip.")
    return SplatfixError(
        "dependencies-not-found",
        f"pip could not bring {action.subject}: {said[0].removeprefix('ERROR: ') if said else done.why()}",
        meaning="No version of what is installed may change for them. Nothing was built, and nothing is left of it.",
        todo=(how, say(f"Full log: {log}")),
    )
