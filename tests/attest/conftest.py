"""A small report folder, and keys to sign it with."""

import json
from pathlib import Path
from typing import Any

import pytest

from splatfix.attest.keys import PrivateKey
from splatfix.attest.report import sign_folder

DIGEST = "ab" * 32
CERTIFICATE: dict[str, Any] = json.loads(
    Path(__file__).with_name("certificate.json").read_text(encoding="utf-8")
)


@pytest.fixture(scope="session")
def key() -> PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return PrivateKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """Not signed yet."""
    folder = tmp_path / "report"
    (folder / "figurine" / "renders").mkdir(parents=True)
    (folder / "certificate.json").write_text(json.dumps(CERTIFICATE), encoding="utf-8")
    (folder / "certificate.md").write_text("# It trained\n", encoding="utf-8")
    (folder / "figurine" / "trainer.log").write_text("one line\n", encoding="utf-8")
    (folder / "figurine" / "renders" / "view 1.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00")
    (folder / "figurine" / "empty").write_bytes(b"")
    return folder


@pytest.fixture
def signed(report: Path, key: PrivateKey) -> Path:
    """The same, signed."""
    sign_folder(report, CERTIFICATE, key)
    return report
