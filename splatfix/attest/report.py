"""Signs a report folder, and says what of a signed one still is as it was."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from splatfix.attest.dsse import ENVELOPE, PAYLOAD_TYPE, Envelope, decode, encode, pae
from splatfix.attest.keys import PrivateKey, PublicKey
from splatfix.attest.model import Identity, Installed, Mismatch, Signed, Verification
from splatfix.attest.statement import (
    CERTIFICATE,
    EARLIER,
    LOCKS,
    Statement,
    look,
    parse_statement,
    predicate_of,
    statement_of,
    unfit_name,
)
from splatfix.core.errors import SplatfixError
from splatfix.core.files import read_json, set_aside, sha256_of, write_bytes
from splatfix.core.limits import MOST_ENVELOPE
from splatfix.core.reading import read_bytes
from splatfix.core.words import few

_PARTS = (
    *(ENVELOPE, "certificate.json", "certificate.md", "certificate.html"),
    *("appendix.md", "appendix.tex", "container.json", "container.log", "image-build.log"),
    *LOCKS,  # of one that was killed
)
"""What certify writes into a report folder, beside a folder for each scene."""


def sign_folder(folder: Path, certificate: Mapping[str, Any], key: PrivateKey) -> Path:
    """Write the signed statement about all of a report folder into it; an earlier one is set aside. Returns its path.

    Args:
        certificate: the content of the folder's ``certificate.json``.

    Raises:
        SplatfixError: ``cannot-sign`` (exit code 2 where the folder holds what can be no report), ``cannot-write``.
    """
    try:
        payload = statement_of(folder, certificate)
    except OSError as error:
        unreadable = error.filename or folder
        raise SplatfixError.of(
            "attest.unreadable-report", folder=folder, unreadable=unreadable, reason=error.strerror or error
        ) from error
    except ValueError as error:
        raise SplatfixError.of("attest.unfit-report", folder=folder, error=error) from error
    # only now: a folder that cannot be signed keeps the signature that it has
    set_aside(folder, (ENVELOPE,))
    signature = key.sign(pae(PAYLOAD_TYPE, payload))
    write_bytes(folder / ENVELOPE, encode(Envelope(payload, signature, key.public.id)))
    return folder / ENVELOPE


def require_key_elsewhere(folder: Path, key_file: Path) -> None:
    """The key does not lie in the report folder, where it would be given away.

    Raises:
        SplatfixError: ``key-in-report`` (exit code 2).
    """
    if key_file.resolve().is_relative_to(folder.resolve()):
        raise SplatfixError.of("attest.key-in-report", key_file=key_file, folder=folder)


def require_room(folder: Path, scenes: tuple[str, ...]) -> None:
    """Nothing in the folder that a certification will write into would become a part of the report by accident; an earlier
    report will not, as that is set aside.

    Raises:
        SplatfixError: ``not-our-folder``, ``unsignable-scene`` or ``cannot-read`` (exit code 2).
    """
    for scene in scenes:
        reason = unfit_name(scene)
        if reason:
            raise SplatfixError.of("attest.unsignable-scene", scene=scene, reason=reason)
    parts = {*_PARTS, *scenes}
    if (folder / CERTIFICATE).is_file():
        # Scenes of the report that is there now, which is set aside before this one is written.
        parts.update(log.parent.name for log in folder.glob("*/trainer.log"))
    names: list[str] = []
    if folder.is_dir():
        try:
            names = sorted(path.name for path in folder.iterdir())
        except OSError as error:
            raise SplatfixError.of(
                "attest.unreadable-signature", folder=folder, reason=error.strerror or error
            ) from error
    for name in names:
        if name not in parts and not EARLIER.fullmatch(name):
            raise SplatfixError.of("attest.not-our-folder", folder=folder, name=name)


def verify_folder(folder: Path, key: PublicKey) -> Verification:
    """Check the signature with a key, then every file of the folder against it.

    Files are found by looking into the folder, never by the statement's names, and links are not followed.

    Raises:
        SplatfixError: ``cannot-read`` (exit code 2) where the folder cannot be listed; ``unknown-statement`` (3).
    """
    try:
        envelope = _read(folder / ENVELOPE)
    except ValueError as error:
        return Verification(key.id, (Mismatch(ENVELOPE, str(error)),))
    if not key.verifies(envelope.signature, pae(envelope.payload_type, envelope.payload)):
        problem = f"the signature does not hold for the key {key.id}"
        if envelope.keyid == key.id:
            problem += ": it or the statement was changed"
        else:
            problem += f"; the file names {envelope.keyid[:80]}"
        return Verification(key.id, (Mismatch(ENVELOPE, problem),))
    try:
        if envelope.payload_type != PAYLOAD_TYPE:
            raise ValueError(f"its payload is {envelope.payload_type[:80]!a}")
        statement = parse_statement(envelope.payload)
    except ValueError as error:
        raise SplatfixError.of("attest.unknown-statement", path=folder / ENVELOPE, error=error) from error
    mismatches = []
    if envelope.keyid != key.id:
        # Nobody signs the id: the signature holds all the same, and the file is yet not the one that was written.
        mismatches.append(Mismatch(ENVELOPE, "the id of the key was changed"))
    try:
        contents = look(folder)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SplatfixError.of("attest.cannot-read", folder=folder, reason=reason) from error
    mismatches += _compare(folder, statement, contents.files, contents.others)
    if not mismatches:
        certificate = read_json(folder / CERTIFICATE, "a certificate.json of splatfix certify")
        if not isinstance(certificate, dict) or predicate_of(certificate) != statement.predicate:
            mismatches = [Mismatch(CERTIFICATE, "says something else than the statement that was signed")]
    names = tuple(subject.name for subject in statement.subject)
    return Verification(key.id, tuple(mismatches), names, statement.predicate, contents.earlier)


def identity_of(file: Path, keys: Sequence[PublicKey] = ()) -> Identity:
    """Which certificate a file is, and whether it is signed. With a key that the signature holds for, all of the report folder
    is checked; without one a file that is another than the signature names is still found out.

    Raises:
        OSError: the certificate cannot be read.
    """
    digest, folder = sha256_of(file), file.parent
    if file.name != CERTIFICATE or not os.path.lexists(folder / ENVELOPE):
        return Identity(digest)
    try:
        envelope = _read(folder / ENVELOPE)
        statement = parse_statement(envelope.payload)
    except ValueError as error:
        return Identity(digest, Signed.BAD, problem=str(error))
    named = envelope.keyid[:80]
    for key in keys:
        if key.id == envelope.keyid or key.verifies(
            envelope.signature, pae(envelope.payload_type, envelope.payload)
        ):
            return _checked(digest, folder, key)
    if digest not in [item.digest.sha256 for item in statement.subject if item.name == CERTIFICATE]:
        return Identity(digest, Signed.BAD, named, f"{CERTIFICATE} was changed since it was signed")
    return Identity(digest, Signed.NOT_CHECKED, named)


def _checked(digest: str, folder: Path, key: PublicKey) -> Identity:
    try:
        mismatches = verify_folder(folder, key).mismatches
    except SplatfixError as error:
        return Identity(digest, Signed.BAD, key.id, error.what)
    if mismatches:
        problems = few([f"{item.file}: {item.problem}" for item in mismatches], 3)
        return Identity(digest, Signed.BAD, key.id, problems)
    return Identity(digest, Signed.SIGNED, key.id)


def _read(path: Path) -> Envelope:
    """The envelope.

    Raises:
        ValueError: there is none.
    """
    if path.is_symlink():
        raise ValueError("a link")
    content = read_bytes(path, MOST_ENVELOPE)
    if content is None:
        raise ValueError("missing: the report is not signed")
    if not isinstance(content, bytes):
        raise ValueError(content.reason)
    return decode(content)


def _compare(
    folder: Path, statement: Statement, files: tuple[str, ...], others: Mapping[str, str]
) -> list[Mismatch]:
    signed = {subject.name: subject.digest.sha256 for subject in statement.subject}
    problems = {name: f"{reason}, which is never signed" for name, reason in others.items()}
    problems |= {name: "not signed: it was added" for name in files if name not in signed}
    for name, digest in signed.items():
        if name in problems:
            continue
        if name not in files:
            problems[name] = "missing"
            continue
        try:
            if sha256_of(folder / name) != digest:
                problems[name] = "changed since it was signed"
        except OSError as error:
            problems[name] = f"cannot be read: {error.strerror or error}"
    if CERTIFICATE not in signed:
        problems.setdefault(CERTIFICATE, "not signed")
    return [Mismatch(name, problem) for name, problem in sorted(problems.items())]


def compare_installed(statement: Mapping[str, Any], site_packages: Sequence[Path]) -> tuple[Installed, ...]:
    """Every file that ran, by the predicate of a statement that holds, beside the one of that name in an environment.

    splatfix's own sources are left out: they were handed to the environment, and are not installed there.
    """
    sources = statement["sources"]
    ran = {str(item["file"]): item["sha256"] for item in statement["ran"] if item["file"]}
    compared = []
    for file, digest in ran.items():
        if file not in sources:
            compared.append(Installed(file, _difference(file, digest, site_packages)))
    return tuple(compared)


def _difference(file: str, digest: Any, site_packages: Sequence[Path]) -> str:
    if unfit_name(file):
        return "not compared: it was not in site-packages"
    try:
        for folder in site_packages:
            path = folder / file
            if path.is_file():
                if sha256_of(path) == digest:
                    return ""
                return "another file than the one that ran"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return "not there"
