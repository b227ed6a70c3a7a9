"""Signing a report folder, and checking a signed one: ``certify --sign``, ``report sign`` and ``report verify``."""

import getpass
import os
import sys
from dataclasses import replace
from pathlib import Path

from splatfix.app.result import Result, show_message, target_python
from splatfix.app.stored import read_document
from splatfix.attest.dsse import ENVELOPE
from splatfix.attest.keys import PrivateKey, load_private, load_public
from splatfix.attest.report import compare_installed, require_key_elsewhere, sign_folder, verify_folder
from splatfix.attest.statement import CERTIFICATE
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.visible import visible
from splatfix.facts import gather
from splatfix.report import verification

VARIABLE = "SPLATFIX_KEY_PASSPHRASE"
"""The variable with the passphrase of an encrypted key. It is taken out of the environment, which children inherit."""


def open_key(path: Path) -> PrivateKey:
    """The private key to sign with, before anything else is done; warns where others may read its file.

    Raises:
        SplatfixError: ``signing-not-installed`` (exit code 3); ``unusable-key``, ``wrong-passphrase``,
            ``passphrase-needed`` (2).
    """
    passphrase = os.environ.pop(VARIABLE, None)

    def unlock() -> str:
        return _typed(path) if passphrase is None else passphrase

    key = load_private(path, unlock)
    if key.shared:
        show_message(f"Warning: others than its owner may read or change {path}. Close it: chmod 600")
    return key


def _typed(path: Path) -> str:
    needed = SplatfixError.of("app.passphrase-needed", path=path, variable=VARIABLE)
    if not sys.stdin.isatty():
        raise needed
    try:
        return getpass.getpass(f"Passphrase of {visible(str(path))}: ")
    except EOFError as error:
        raise needed from error


def sign_report(folder: Path, key: PrivateKey) -> Path:
    """Sign a report folder with a key that was opened; returns the path of the signature.

    Raises:
        SplatfixError: what lies there is no report, or one of a run that did not come to its end (exit code 2), or cannot
            be written.
    """
    _, document = read_document(folder)
    if document.get("interrupted") or document.get("unfinished"):
        raise SplatfixError.of("app.cannot-sign", folder=folder)
    return sign_folder(folder, document, key)


def sign(path: Path, key: Path) -> Result:
    """``report sign``: sign a report that is there.

    Raises:
        SplatfixError: see :func:`open_key` and :func:`sign_report`; ``key-in-report`` (exit code 2).
    """
    folder = _folder(path)
    opened = open_key(key)
    require_key_elsewhere(folder, key)
    signature = sign_report(folder, opened)
    return Result(
        "report sign",
        lambda: {"signature": str(signature), "key": opened.public.id},
        lambda console: verification.show_signed(console, signature, opened.public.id),
    )


def verify(path: Path, key: Path, python: str | None = None) -> Result:
    """``report verify``: what of a signed report is still as it was signed. Needs no network.

    Args:
        python: an environment whose files are compared with those that ran.

    Raises:
        SplatfixError: ``signing-not-installed``, ``unknown-statement`` (exit code 3); ``unusable-key``, ``cannot-read`` (2).
    """
    folder = _folder(path)
    verified = verify_folder(folder, load_public(key))
    if python is not None and verified.holds and verified.statement is not None:
        installed = compare_installed(verified.statement, _site_packages(python))
        verified = replace(verified, installed=installed)
    exit_code = Exit.OK
    if not verified.holds or any(item.problem for item in verified.installed):
        exit_code = Exit.FAILURE
    return Result(
        "report verify",
        lambda: verification.document(verified, folder),
        lambda console: verification.show(console, verified, folder),
        exit_code,
    )


def _site_packages(python: str) -> tuple[Path, ...]:
    """Of an environment, which is asked for it.

    Raises:
        SplatfixError: ``environment-not-ready`` (exit code 3).
    """
    interpreter = gather(target_python(python)).environment.interpreter
    if interpreter.value is None:
        raise SplatfixError.of("app.environment-not-ready", python=python, error=interpreter.error)
    return tuple(map(Path, interpreter.value.site_packages))


def _folder(path: Path) -> Path:
    """The report folder that a person named, or a file in it.

    Raises:
        SplatfixError: ``cannot-read`` (exit code 2).
    """
    if not path.exists():
        raise SplatfixError.of("app.no-report", path=path)
    if path.is_dir():
        return path
    if path.name not in (ENVELOPE, CERTIFICATE):
        raise SplatfixError.of("app.not-a-report", path=path, certificate=CERTIFICATE, envelope=ENVELOPE)
    return path.parent
