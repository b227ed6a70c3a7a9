"""Ed25519 keys from files: PEM (PKCS #8, SubjectPublicKeyInfo) and OpenSSH, read by ``cryptography``, which is an extra."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from splatfix.core.data import dataclass
from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.limits import MOST_KEY
from splatfix.core.reading import read_bytes
from splatfix.core.step import Step, run, say

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_private_key,
        load_pem_public_key,
        load_ssh_private_key,
        load_ssh_public_key,
    )
except ImportError:  # it is an extra: whoever loads a key without it is told
    pass


MAKE_ONE = (
    run("openssl", "genpkey", "-algorithm", "ed25519", "-out", "key.pem", text="Make a key"),
    run("openssl", "pkey", "-in", "key.pem", "-pubout", "-out", "key.pub.pem", text="and its public half"),
    run("ssh-keygen", "-t", "ed25519", "-f", "key", text="or make both with OpenSSH"),
)


@dataclass(frozen=True)
class PublicKey:
    """A key to check signatures with."""

    key: Ed25519PublicKey

    @property
    def id(self) -> str:
        """SHA-256 of its SubjectPublicKeyInfo (RFC 8410), the same whatever form its file has."""
        encoded = self.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(encoded).hexdigest()

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Whether the holder of the private half signed exactly these bytes (RFC 8032)."""
        try:
            self.key.verify(signature, data)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class PrivateKey:
    """A key to sign with, in memory only."""

    key: Ed25519PrivateKey
    shared: bool = False
    """Others than its owner may read or write the file."""

    @property
    def public(self) -> PublicKey:
        return PublicKey(self.key.public_key())

    def sign(self, data: bytes) -> bytes:
        """The signature: 64 bytes (RFC 8032)."""
        signature: bytes = self.key.sign(data)
        return signature


def load_private(path: Path, passphrase: Callable[[], str]) -> PrivateKey:
    """The private key in a file.

    Args:
        passphrase: called where the key is encrypted.

    Raises:
        SplatfixError: ``signing-not-installed`` (exit code 3); ``unusable-key`` or ``wrong-passphrase`` (2).
    """
    _require_cryptography()
    content = _content(path, todo_if_missing=MAKE_ONE)
    if b" PRIVATE KEY-----" not in content:
        if content.startswith(b"ssh-") or b"PUBLIC KEY-----" in content:
            half = say("Name the private half of that pair: the file that the public key was made from.")
            raise _unusable(path, "it is a public key, which cannot sign", half)
        raise _unusable(path, "it holds no private key", *MAKE_ONE)
    load: Any = load_pem_private_key
    if b"BEGIN OPENSSH PRIVATE KEY" in content:
        load = load_ssh_private_key
    try:
        key = load(content, None)
    except TypeError:
        # Both loaders say so where a key is encrypted and no passphrase was given.
        key = _load_encrypted(load, path, content, passphrase)
    except Exception as error:
        # What a damaged file makes the loaders raise is not documented, and differs between versions of cryptography.
        raise _unusable(path, "it is damaged, or of a kind that cannot sign here") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _unusable(path, "it is no ed25519 key", *MAKE_ONE)
    # Windows has no such modes: what stat says there is made up.
    shared = os.name == "posix" and bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
    return PrivateKey(key, shared)


def _load_encrypted(load: Any, path: Path, content: bytes, passphrase: Callable[[], str]) -> Any:
    """A private key that is opened with a passphrase.

    Raises:
        SplatfixError: ``wrong-passphrase`` or ``unusable-key`` (exit code 2).
    """
    secret = passphrase().encode()
    try:
        return load(content, secret)
    except ValueError as error:
        raise SplatfixError.of("attest.wrong-passphrase", path=path) from error
    except Exception as error:
        # Such as the lack of bcrypt, which OpenSSH's own format needs; the message names it.
        raise _unusable(path, str(error)) from error


def load_public(path: Path) -> PublicKey:
    """The public key in a file.

    Raises:
        SplatfixError: ``signing-not-installed`` (exit code 3); ``unusable-key`` (2).
    """
    _require_cryptography()
    content = _content(path)
    if b" PRIVATE KEY-----" in content:
        raise _unusable(
            path, "it is a private key", say("Name its public half, which is all that is needed.")
        )
    load: Any = load_pem_public_key
    if content.startswith(b"ssh-"):
        load = load_ssh_public_key
    try:
        key = load(content)
    except Exception as error:
        raise _unusable(path, "it is no public key, or damaged") from error
    if not isinstance(key, Ed25519PublicKey):
        raise _unusable(path, "it is no ed25519 key")
    return PublicKey(key)


def _content(path: Path, *, todo_if_missing: Sequence[Step] = ()) -> bytes:
    content = read_bytes(path, MOST_KEY)
    if content is None:
        raise _unusable(path, "there is no such file", *todo_if_missing)
    if not isinstance(content, bytes):
        raise _unusable(path, content.reason)
    return content.lstrip()


def _unusable(path: Path, reason: str, *todo: Step) -> SplatfixError:
    return usage_error("unusable-key", f"{path} cannot be used as a key: {reason}.", *todo)


def _require_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise SplatfixError.of("attest.signing-not-installed", python=sys.executable) from error
