"""Gathers all facts, or loads those that were saved or recorded."""

import datetime
from pathlib import Path

from msgspec.structs import replace

from splatfix import __version__
from splatfix.core.codec import from_json
from splatfix.core.errors import SplatfixError
from splatfix.core.files import read_json
from splatfix.core.redact import redacted
from splatfix.facts.environment import probe as environment
from splatfix.facts.environment.interpreter import refuse_other_program
from splatfix.facts.machine import probe as machine
from splatfix.facts.machine import toolkits
from splatfix.facts.system.live import CachingSystem, System, folder_of
from splatfix.facts.system.parallel import Job
from splatfix.facts.system.playback import PlaybackSystem, RawMachine
from splatfix.facts.system.recording import RecordingSystem
from splatfix.model import SCHEMA_VERSION, EnvironmentFacts, Facts, absent


def gather(
    python: str | None = None,
    *,
    chosen: str = "",
    system: System | None = None,
    try_imports: bool = False,
    record: Path | None = None,
    redact: bool = True,
) -> Facts:
    """Return all facts about this machine and the environment of ``python``.

    Args:
        python: the target environment's interpreter (see :func:`choose_python`); None is splatfix's own, "" is none.
        chosen: why it is the target.
        try_imports: also import torch and every extension in a child process (seconds instead of milliseconds).
        record: a new folder for the raw answers, to be played back elsewhere (``diagnose --record``).
        redact: keep what is personal out of that folder.

    Raises:
        SplatfixError: ``no-interpreter`` (exit code 2) when ``python`` is some other program on this machine.
    """
    asked_of = system or System()
    # a recording refuses a folder in use before anything is asked
    live = CachingSystem(asked_of) if record is None else RecordingSystem(asked_of, record)
    interpreter = live.python if python is None else python

    def brought() -> tuple[str, ...]:
        # the same question as that of environment.probe, so that it is asked once
        described = environment.describe(live, interpreter) if interpreter else ""
        return () if isinstance(described, str) else toolkits.packaged(live, described.site_packages)

    # the machine's slow questions are under way while the environment answers, also one that hangs
    machine_job = Job(lambda: machine.probe(live, folder_of(folder_of(interpreter)), brought))
    found = environment.probe(live, interpreter) if interpreter else _no_environment(chosen)
    modules = [item.module for item in found.extensions.value or () if try_imports and item.importable]
    if found.torch_installed.value and (try_imports or not environment.torch_as_installed(live, found)):
        modules.insert(0, "torch")
    probes = tuple(environment.try_import(live, interpreter, module) for module in modules)
    facts = Facts(
        machine=machine_job.value(),
        environment=replace(found, imports=probes, chosen=chosen),
        splatfix=__version__,
        gathered=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        unreadable=live.unreadable(),
    )
    if isinstance(live, RecordingSystem):
        live.write(python or live.python, redact=redact, imports=try_imports)
    elif system is None and python and not found.interpreter.known:
        refuse_other_program(python, found.interpreter.error)
    return redacted(facts)


def _no_environment(reason: str) -> EnvironmentFacts:
    """No environment was meant: there is nothing to ask."""
    none = absent(reason, "the command line, the shell and the current folder")
    names = set(EnvironmentFacts.__struct_fields__) - {"installer", "imports", "chosen"}
    return EnvironmentFacts(**dict.fromkeys(names, none))  # type: ignore[arg-type]


def playback(raw: RawMachine) -> Facts:
    """The facts about a machine whose raw answers were recorded or simulated."""
    return gather(raw.machine.python, system=PlaybackSystem(raw), try_imports=raw.machine.imports)


def load(path: Path) -> Facts:
    """Facts that ``diagnose --save`` wrote, on this machine or another; or those of a machine that ``--record`` wrote.

    Raises:
        SplatfixError: exit code 2, when the file is no such document or comes from a newer splatfix.
    """
    if path.is_dir():
        return playback(RawMachine.read(path))
    document = read_json(path, "a facts file of splatfix")
    version = document.get("schema_version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise SplatfixError.of(
            "facts.facts-too-new", path=path, version=version, schema_version=SCHEMA_VERSION
        )
    if isinstance(version, int) and version < SCHEMA_VERSION:
        # what an earlier splatfix read of a checkout had another form
        document = {key: document[key] for key in document.keys() - {"checkout", "schema_version"}}
    try:
        return redacted(from_json(Facts, document))
    except ValueError as error:
        raise SplatfixError.of("facts.not-facts", path=path, error=error) from error
