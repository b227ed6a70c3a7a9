"""Damaged signatures, statements, certificates and keys: nothing holds that was changed, and nothing ends in a traceback."""

import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from splatfix.attest.dsse import ENVELOPE, PAYLOAD_TYPE, Envelope, decode, encode, pae
from splatfix.attest.keys import PrivateKey, load_private, load_public
from splatfix.attest.model import Verification
from splatfix.attest.report import compare_installed, sign_folder, verify_folder
from splatfix.core.errors import SplatfixError
from splatfix.core.files import dumps
from splatfix.report import verification
from splatfix.report.console import page

from .harness import Case, seeded
from .mutate import damaged_document, damaged_text

_BATCH = 25
CERTIFICATE: dict[str, Any] = {
    "command": "certify",
    "splatfix_version": "0.1.0",
    "verdict": "certified",
    "issued": "2026-01-01",
    "proof": [{"name": "trains", "reached": True, "shown_by": "every criterion"}],
    "environment": {"splatfix": "0.1.0 (commit 1a2b)"},
    "scenes": [{"scene": "a", "result": {"implementations": {"ssim": {"file": "x.so", "sha256": "0" * 64}}}}],
    "sources": {"smoke_trainer/train.py": "0" * 64},
}


def cases(count: int, seed: int) -> Iterator[Case]:
    """Signed folders with one thing damaged, and files of keys."""

    def run(folder: Path, number: int) -> None:
        rng = random.Random(number)
        with mock.patch("os.fsync"):  # a busy disk would use up the time
            for index in range(_BATCH):
                try:
                    _one(rng, folder / str(index))
                except Exception as error:
                    raise AssertionError(f"#{index} of seed {number}: {error!r}") from error

    return seeded(run, count, seed, _BATCH)


def _one(rng: random.Random, folder: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = PrivateKey(Ed25519PrivateKey.from_private_bytes(bytes(32)))
    folder.mkdir()
    rng.choice((_envelope, _statement, _certificate, _key))(rng, folder, key)


def _signed(folder: Path, key: PrivateKey) -> bytes:
    (folder / "certificate.json").write_text(json.dumps(CERTIFICATE))
    return sign_folder(folder, CERTIFICATE, key).read_bytes()


def _envelope(rng: random.Random, folder: Path, key: PrivateKey) -> None:
    """As a file of a stranger: nothing but the very bytes holds."""
    content = _signed(folder, key)
    damaged = damaged_text(rng, content)
    if rng.random() < 0.5:
        damaged = (
            json.dumps(damaged_document(rng, json.loads(content)), separators=(",", ":")).encode() + b"\n"
        )
    (folder / ENVELOPE).write_bytes(damaged)
    assert verify(folder, key).holds == (damaged == content)


def _statement(rng: random.Random, folder: Path, key: PrivateKey) -> None:
    """By the key's own holder: refused, or about other files, or the same."""
    payload = decode(_signed(folder, key)).payload
    damaged = damaged_text(rng, payload)
    if rng.random() < 0.7:
        damaged = json.dumps(damaged_document(rng, json.loads(payload))).encode()
    signature = key.sign(pae(PAYLOAD_TYPE, damaged))
    (folder / ENVELOPE).write_bytes(encode(Envelope(damaged, signature, key.public.id)))
    try:
        found = verify(folder, key)
    except SplatfixError as error:
        assert error.code == "unknown-statement", error.code
    else:
        assert not found.holds or json.loads(damaged) == json.loads(payload)


def _certificate(rng: random.Random, folder: Path, key: PrivateKey) -> None:
    """What is signed holds, whatever it is; or it is not signed."""
    document = damaged_document(rng, CERTIFICATE)
    document = document if isinstance(document, dict) else {}
    try:
        (folder / "certificate.json").write_text(json.dumps(document))
        json.loads(dumps(document))
        sign_folder(folder, document, key)
        assert verify(folder, key).holds
    except SplatfixError as error:
        assert error.code in ("cannot-sign", "not-json", "cannot-read"), error.code
    except ValueError as error:  # what the generator makes and JSON cannot hold
        assert "JSON compliant" in str(error), error


def _key(rng: random.Random, folder: Path, key: PrivateKey) -> None:
    """A file that is a key, or is refused as none."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    kind = rng.choice((PrivateFormat.PKCS8, PrivateFormat.OpenSSH))
    # a locked key whose count of rounds is damaged takes hours to open, and is the owner's own
    private = key.key.private_bytes(Encoding.PEM, kind, NoEncryption())
    forms = ((Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), (Encoding.OpenSSH, PublicFormat.OpenSSH))
    public = key.public.key.public_bytes(*rng.choice(forms))
    (folder / "key").write_bytes(damaged_text(rng, private))
    (folder / "key.pub").write_bytes(damaged_text(rng, public))
    for load in (
        lambda: load_private(folder / "key", lambda: "word"),
        lambda: load_public(folder / "key.pub"),
    ):
        try:
            load()
        except SplatfixError as error:
            assert error.code in ("unusable-key", "wrong-passphrase"), error.code


def verify(folder: Path, key: PrivateKey) -> Verification:
    """As ``report verify`` does, both forms of its output included."""
    found = verify_folder(folder, key.public)
    if found.holds and found.statement is not None:
        compare_installed(found.statement, (folder,))
    json.loads(dumps(verification.document(found, folder)))
    verification.show(page(io.StringIO(), width=80), found, folder)
    return found
