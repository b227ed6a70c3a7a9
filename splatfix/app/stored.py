"""A certificate that was written earlier, here or elsewhere, read back as it was."""

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from splatfix import __version__
from splatfix.certify.model import Certificate, Verdict
from splatfix.core.codec import from_json, parse_json
from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.files import read_json
from splatfix.core.limits import MOST_CERTIFICATE
from splatfix.core.reading import read_bytes
from splatfix.core.step import run, say
from splatfix.facts.model import Facts
from splatfix.plan.option import Options
from splatfix.report.documents import SCHEMA_VERSION

NAME = "certificate.json"
_MAKE_ONE = ("splatfix", "certify", "--out", "splatfix-report")
_VERDICTS = [item.value for item in Verdict]


class Stored(Struct, frozen=True):
    """A certificate.json."""

    path: Path
    document: Mapping[str, Any]
    """All of it, as it was written."""
    certificate: Certificate
    facts: Facts
    options: Options | None

    @property
    def folder(self) -> Path:
        """The report folder: pictures and logs are below it."""
        return self.path.parent

    @property
    def python(self) -> str | None:
        """The environment that was certified."""
        argv = self.certificate.repeat.argv
        if "--python" not in argv[:-1]:
            return None
        return argv[argv.index("--python") + 1]

    @property
    def missing(self) -> tuple[str, ...]:
        """Pictures and logs that the certificate names and that are not in the report folder any more."""
        missing = []
        for scene in self.certificate.scenes:
            for name in (*scene.images, scene.log):
                if name and not (self.folder / PurePosixPath(name)).is_file():
                    missing.append(name)
        return tuple(missing)


def read_stored(path: Path) -> Stored:
    """Read a certificate.json, or the one in a report folder.

    Raises:
        SplatfixError: exit code 2 for each: as of :func:`read_document`; ``not-a-certificate`` for one that was changed.
    """
    file, document = read_document(path)
    content = {item.name: document[item.name] for item in fields(Certificate) if item.name in document}
    try:
        certificate = from_json(Certificate, content)
        facts = from_json(Facts, document.get("facts"))
        options = from_json(Options | None, document.get("options"))  # type: ignore[arg-type]
        _check(certificate, file.parent)
        if options and options.advice and options.advice.option not in (None, *options.available):
            raise ValueError("options.advice is none of the options")
    except ValueError as error:
        raise SplatfixError.of(
            "app.changed-certificate", file=file, version=document["splatfix_version"], error=error
        ) from error
    return Stored(file, document, certificate, facts, options)


def read_document(path: Path) -> tuple[Path, dict[str, Any]]:
    """The file, and its document: of a certificate by its name, schema version and verdict; the rest is not looked at.

    Raises:
        SplatfixError: exit code 2 for each: ``cannot-read``, ``not-json``, ``not-a-certificate``, ``other-schema``.
    """
    file = path / NAME if path.is_dir() else path
    if file != path and not os.path.lexists(file):
        todo = run(*_MAKE_ONE, text="Name the folder of a report, or make one with")
        raise usage_error("cannot-read", f"There is no {NAME} in {path}.", todo)
    return file, _certificate(file, read_json(file, "a certificate", MOST_CERTIFICATE))


def read_without_facts(file: str) -> dict[str, Any]:
    """A certificate's document as :func:`read_document` gives it, without its last and largest part, in a fraction of the time.

    Raises:
        SplatfixError: as of :func:`read_document`.
    """
    content = read_bytes(file, MOST_CERTIFICATE)
    if not isinstance(content, bytes):
        raise usage_error("cannot-read", content.reason if content else "there is no such file")
    try:
        members = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        document = {name: msgspec.json.decode(text) for name, text in members.items() if name != "facts"}
    except (ValueError, RecursionError):  # as some editors write it, or damaged: then this says where
        document = _parsed(content)
    return _certificate(Path(file), document)


def _parsed(content: bytes) -> Any:
    try:
        return parse_json(content.decode("utf-8-sig"))
    except ValueError as error:
        raise SplatfixError.of("app.not-json", error=error) from error


def _certificate(file: Path, document: Any) -> dict[str, Any]:
    """The document, if it is one of a certificate.

    Raises:
        SplatfixError: exit code 2: ``not-a-certificate``, ``other-schema``.
    """
    if (
        not isinstance(document, dict)
        or document.get("command") != "certify"
        or document.get("verdict") not in _VERDICTS
    ):
        problem = f"{file} is not a certificate.json of splatfix certify."
        raise usage_error("not-a-certificate", problem, run(*_MAKE_ONE, text="Make one with"))
    version, by = document.get("schema_version"), document.get("splatfix_version")
    if version != SCHEMA_VERSION or not isinstance(by, str):
        raise SplatfixError.of(
            "app.other-schema",
            file=file,
            by=f"splatfix {by} with schema_version {version}",
            here=f"splatfix {__version__} reads {SCHEMA_VERSION}",
            todo=(say(_other_schema(by)),),
        )
    return document


def _other_schema(by: object) -> str:
    if by != __version__:
        return f"Use splatfix {by} to show it, or certify again."
    return (
        f"This splatfix {by} does not write that schema_version: a newer state of it did, or the file was changed. "
        "Use a newer splatfix to show it, or certify again."
    )


def _check(certificate: Certificate, folder: Path) -> None:
    """Look at what the types of a certificate do not say.

    Raises:
        ValueError: a sentence without its full stop.
    """
    datetime.fromisoformat(certificate.issued)
    for scene in certificate.scenes:
        for name in (*scene.images, scene.log):
            # a stranger's certificate could otherwise put any file of this machine into the page
            if name and not (folder / PurePosixPath(name)).resolve().is_relative_to(folder.resolve()):
                raise ValueError(f"{name!a} leads out of the report folder")
