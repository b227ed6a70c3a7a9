"""Keys as OpenSSL and OpenSSH make them, and what is refused."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from splatfix.attest.keys import PrivateKey, load_private, load_public
from tests.plan.machines import refused

WORD = "correct horse"


def nobody() -> str:
    raise AssertionError("the key is not encrypted")


def tool(name: str) -> str:
    """The peer's path. LibreSSL, which macOS calls openssl, makes no ed25519 keys."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name}")
    if name == "openssl" and not subprocess.check_output([found, "version"]).startswith(b"OpenSSL 3"):
        pytest.skip("no OpenSSL 3")
    return found


def ours(folder: Path) -> tuple[Path, Path]:
    """A private key and its public half, in PEM."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return written(folder, Ed25519PrivateKey.generate())


def written(folder: Path, key: Any) -> tuple[Path, Path]:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    private, public = folder / "key", folder / "key.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


def made_by(program: str, folder: Path, passphrase: str = "") -> tuple[Path, Path]:
    """A private key and its public half, as the documentation says to make them."""
    private, public = folder / "key", folder / "key.pub"
    if program == "ssh-keygen":
        words = [tool(program), "-q", "-t", "ed25519", "-N", passphrase, "-f", str(private)]
        subprocess.run(words, check=True)
        return private, public
    words = ["-aes256", "-pass", f"pass:{passphrase}"] if passphrase else []
    subprocess.run(
        [tool("openssl"), "genpkey", "-algorithm", "ed25519", *words, "-out", str(private)], check=True
    )
    words = ["-passin", f"pass:{passphrase}"] if passphrase else []
    subprocess.run(
        ["openssl", "pkey", "-in", str(private), "-pubout", "-out", str(public), *words], check=True
    )
    return private, public


@pytest.mark.parametrize("program", ["openssl", "ssh-keygen"])
@pytest.mark.parametrize("passphrase", ["", WORD])
def test_keys_of_other_programs(program: str, passphrase: str, tmp_path: Path) -> None:
    private, public = made_by(program, tmp_path, passphrase)
    key = load_private(private, (lambda: passphrase) if passphrase else nobody)
    other = load_public(public)
    assert other.id == key.public.id and len(key.public.id) == 64
    assert other.verifies(key.sign(b"x"), b"x") and not other.verifies(key.sign(b"x"), b"y")
    assert not key.shared
    if passphrase:
        error = refused(load_private, private, lambda: "wrong")
        assert (error.code, int(error.exit_code)) == ("wrong-passphrase", 2)


@pytest.mark.skipif(os.name == "nt", reason="its files have no modes")
@pytest.mark.parametrize(("mode", "shared"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True)])
def test_a_key_that_others_may_read(mode: int, shared: bool, tmp_path: Path) -> None:
    private, _ = ours(tmp_path)
    private.chmod(mode)
    assert load_private(private, nobody).shared is shared


def _no_key(folder: Path) -> tuple[Path, Path]:
    return folder / "absent", folder / "absent.pub"


def _damaged(folder: Path) -> tuple[Path, Path]:
    private, public = ours(folder)
    private.write_text(private.read_text().replace("M", "N", 1))
    public.write_text(public.read_text().replace("M", "N", 1))
    return private, public


def _another_kind(folder: Path) -> tuple[Path, Path]:
    from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey

    return written(folder, Ed448PrivateKey.generate())


def _swapped(folder: Path) -> tuple[Path, Path]:
    return ours(folder)[::-1]


def _text(folder: Path) -> tuple[Path, Path]:
    (folder / "key").write_text("my key\n")
    return folder / "key", folder / "key"


def _huge(folder: Path) -> tuple[Path, Path]:
    with (folder / "key").open("wb") as file:
        file.truncate(1 << 40)
    return folder / "key", folder / "key"


@pytest.mark.parametrize(
    ("make", "private_is", "public_is"),
    [
        (_no_key, "no such file", "no such file"),
        (_damaged, "damaged", "damaged"),
        (_another_kind, "no ed25519", "no ed25519"),
        (_swapped, "it is a public key, which cannot sign", "it is a private key"),
        (_text, "holds no private key", "no public key"),
        (_huge, "larger than", "larger than"),
    ],
)
def test_what_cannot_be_used(make, private_is: str, public_is: str, tmp_path: Path) -> None:
    private, public = make(tmp_path)
    for load, path, said in (
        (lambda it: load_private(it, nobody), private, private_is),
        (load_public, public, public_is),
    ):
        error = refused(load, path)
        assert (error.code, int(error.exit_code)) == ("unusable-key", 2) and said in error.what
        if "which cannot sign" in said:
            (step,) = error.todo
            assert not step.command, "a new pair is not what is wanted"


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for load in (lambda path: load_private(path, nobody), load_public):
        error = refused(load, tmp_path)
        assert (error.code, int(error.exit_code)) == ("signing-not-installed", 3)
        command = error.todo[0].command
        assert command and command.argv[-2:] == ("install", "cryptography[ssh]")


def test_the_key_itself_is_in_no_repr(key: PrivateKey) -> None:
    assert bytes(range(32)).hex() not in repr(key) and "0102" not in repr(key)
