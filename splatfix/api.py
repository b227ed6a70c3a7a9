"""splatfix from Python: each function is a command, and gives what that found as objects.

::

    import splatfix

    diagnosis = splatfix.diagnose()
    for problem in diagnosis.problems:
        print(problem.code, problem.summary)

Nothing here changes a machine. In a notebook a result shows itself, ``print`` writes what the command prints, ``document()``
is the JSON of ``--json``, and ``exit_code`` that of the command; what its document has (``content``) it has too. What cannot be
done raises :class:`SplatfixError`, which says what to do.

These functions and their results' fields keep their meaning within a major version; all else in this package may change.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from splatfix.core.errors import SplatfixError as SplatfixError
from splatfix.core.errors import usage_error
from splatfix.core.step import say

if TYPE_CHECKING:
    from splatfix.app.result import Result
    from splatfix.report.certificate import StoredDocument
    from splatfix.report.diagnosis import DiagnosisDocument
    from splatfix.report.explanation import ExplanationDocument
    from splatfix.report.installation import InstallDocument

__all__ = ["SplatfixError", "diagnose", "explain", "plan", "report"]


def diagnose(
    *,
    python: str | None = None,
    targets: Sequence[str] = (),
    repo: str | PathLike[str] | None = None,
    facts: str | PathLike[str] | None = None,
) -> Result[DiagnosisDocument]:
    """What is wrong with this machine and one Python environment, and how to fix it.

    Args:
        python: an interpreter or environment; by default the one that runs this.
        targets: GPU architectures such as ``sm_120``; by default the GPUs of this machine.
        repo: a checkout of a splatting stack to look at as well.
        facts: facts that ``splatfix diagnose --save`` wrote elsewhere, in place of this machine.

    Raises:
        SplatfixError: an architecture, folder, interpreter or file that is none.
    """
    from splatfix.app.diagnose import DiagnoseRequest
    from splatfix.app.diagnose import diagnose as run
    from splatfix.app.result import archs

    request = DiagnoseRequest(
        python=_interpreter(python, facts),
        targets=archs(targets),
        repo=_optional(repo),
        facts_file=_optional(facts),
    )
    return run(request)


def plan(
    *sources: str | PathLike[str],
    targets: Sequence[str] = (),
    backend: str = "native",
    python: str | None = None,
    facts: str | PathLike[str] | None = None,
) -> Result[InstallDocument]:
    """What ``splatfix install`` would do for these sources, step by step, and every option of the machine.

    Args:
        sources: checkouts, extensions' folders, or packages that have a drop-in; without any, the options alone are of use.
        targets: GPU architectures such as ``sm_120``; by default the GPUs of this machine.
        backend: ``native``, ``nvrtc``, ``pure`` or ``auto``.
        python: an interpreter or environment; by default the one that runs this.
        facts: facts that ``splatfix diagnose --save`` wrote elsewhere: the options of that machine.

    Raises:
        SplatfixError: sources or architectures that are none. Why sources cannot be built is ``error`` of the result.
    """
    from splatfix.app import install
    from splatfix.app.result import archs_or_auto

    named = install.Request(
        sources=tuple(map(str, sources)), targets=archs_or_auto(targets), backend=backend, find=False
    )
    request = install.InstallRequest(install=named, python=_interpreter(python, facts))
    if facts is not None:
        return install.explain_elsewhere(request, Path(facts))
    return install.explain(request)


def explain(
    log: str | PathLike[str], *, python: str | None = None, facts: str | PathLike[str] | None = None
) -> Result[ExplanationDocument]:
    """The cause of a failed build or training, by its log.

    Args:
        log: the text of the log, or as a :class:`~pathlib.Path` its file.
        python: it failed here, in this environment.
        facts: facts of the machine where it failed.

    Raises:
        SplatfixError: an empty log, a file that cannot be read, or the name of one as text.
    """
    from splatfix.app.explain import ExplainRequest
    from splatfix.app.explain import explain as run

    if isinstance(log, str):
        _require_text(log)
        return run(ExplainRequest(words=log, facts_file=_optional(facts), python=python))
    file = _path(log, "Give the text of the log, or its file as a pathlib.Path.")
    return run(ExplainRequest(log=file, facts_file=_optional(facts), python=python))


def report(path: str | PathLike[str]) -> Result[StoredDocument]:
    """A certificate that ``splatfix certify`` wrote.

    Args:
        path: certificate.json, or the report folder.

    Raises:
        SplatfixError: it is none, or was changed.
    """
    from splatfix.app.report import show

    return show(_path(path))


def _interpreter(python: str | None, facts: object) -> str | None:
    """The one that was named; by default, where this machine is meant, the one that runs this."""
    if python is None:
        return sys.executable if facts is None else None
    return str(_path(python))


def _require_text(log: str) -> None:
    if not log.strip():
        raise usage_error("no-log", "The log is empty.", say("Give the output from the command on."))
    if len(log) < 256 and "\n" not in log and Path(log).is_file():
        todo = say(f"For the file: explain(pathlib.Path({log!r})), or its text.")
        raise usage_error("log-is-a-name", f"{log!r} is the name of a file here, not a log.", todo)


def _path(given: str | PathLike[str], todo: str = "Give it as text or as a pathlib.Path.") -> Path:
    try:
        return Path(given)
    except TypeError as error:
        raise usage_error("not-a-path", f"{given!r} is no path.", say(todo)) from error


def _optional(given: str | PathLike[str] | None) -> Path | None:
    return None if given is None else _path(given)


class _CallableRoom(ModuleType):
    """A package that has the name of a function: whoever calls ``splatfix.plan`` means the function."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return globals()[self.__name__.rpartition(".")[2]](*arguments, **named)


for _name in ("explain", "plan", "report"):
    import_module(f"splatfix.{_name}").__class__ = _CallableRoom
