"""A signed report folder: any change shows, and what it says comes from nobody but the signer."""

import base64
import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from splatfix.attest.dsse import ENVELOPE, PAYLOAD_TYPE, Envelope, decode, encode, pae
from splatfix.attest.keys import PrivateKey
from splatfix.attest.report import (
    compare_installed,
    require_key_elsewhere,
    require_room,
    sign_folder,
    verify_folder,
)
from splatfix.attest.statement import PREDICATE, look, predicate_of
from tests.attest.conftest import CERTIFICATE, DIGEST
from tests.attest.test_keys import tool
from tests.plan.machines import refused

FILES = (
    *("certificate.json", "certificate.md"),
    *("figurine/empty", "figurine/renders/view 1.png", "figurine/trainer.log"),
)


def problems(folder: Path, key: PrivateKey) -> dict[str, str]:
    found = verify_folder(folder, key.public)
    assert found.holds == (not found.mismatches)
    return {item.file: item.problem for item in found.mismatches}


def sign_again(folder: Path, key: PrivateKey, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the statement, and sign it with the same key."""
    envelope = decode((folder / ENVELOPE).read_bytes())
    statement = json.loads(envelope.payload)
    payload = json.dumps(change(statement) or statement).encode()
    signature = key.sign(pae(PAYLOAD_TYPE, payload))
    (folder / ENVELOPE).write_bytes(encode(Envelope(payload, signature, envelope.keyid)))


def test_a_signed_report_holds(signed: Path, key: PrivateKey) -> None:
    found = verify_folder(signed, key.public)
    assert found.holds and found.files == FILES
    assert found.statement == predicate_of(CERTIFICATE)


def test_the_statement_is_what_in_toto_describes(signed: Path) -> None:
    """Read with nothing but JSON and base64, as another tool would."""
    (line,) = (signed / ENVELOPE).read_text(encoding="ascii").splitlines()
    envelope = json.loads(line)
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    statement = json.loads(base64.b64decode(envelope["payload"]))
    assert set(statement) == {"_type", "subject", "predicateType", "predicate"}
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == PREDICATE
    assert [item["name"] for item in statement["subject"]] == list(FILES)
    empty = statement["subject"][FILES.index("figurine/empty")]
    assert empty["digest"] == {"sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}


def test_the_predicate_names_what_ran() -> None:
    """These are the contents of version 1: a change here needs another version in its address."""
    found = predicate_of(CERTIFICATE)
    assert PREDICATE.endswith("/certificate/v1")
    assert list(found) == [
        *("verdict", "summary", "issued", "suite", "renderer", "device", "interrupted"),
        *("unfinished", "level", "levels", "splatfix", "environment", "ran", "sources"),
    ]
    assert found["splatfix"] == {"version": "0.1.0", "commit": "1a2b3c4"}
    unsaid = dict.fromkeys(("version", "engine", "module"))
    called = CERTIFICATE["scenes"][0]["result"]["implementations"]["ssim"]
    assert found["ran"] == [{"scene": "figurine", "part": "ssim", **unsaid, **called}]
    assert found["sources"] == {"smoke_trainer/train.py": DIGEST}
    assert predicate_of({"scenes": [None, {"result": {"implementations": {"ssim": 3}}}]})["ran"] == []
    assert predicate_of({"scenes": 5})["ran"] == []


@pytest.mark.parametrize(
    ("flip", "step"),
    [(0x01, 7), *(pytest.param(bit, 1, marks=pytest.mark.slow) for bit in (0x01, 0x02, 0x20, 0x40, 0x80))],
)
def test_every_byte_of_every_file_counts(flip: int, step: int, signed: Path, key: PrivateKey) -> None:
    """One at a time, in the envelope and in what it is about."""
    tried = 0
    for name in (ENVELOPE, *FILES):
        path = signed / name
        content = path.read_bytes()
        for at in range(0, len(content), step):
            path.write_bytes(content[:at] + bytes([content[at] ^ flip]) + content[at + 1 :])
            assert set(problems(signed, key)) == {name}, (name, at)
            tried += 1
        for other in (content + b"\n", content[:-1]):
            path.write_bytes(other)
            assert other == content or set(problems(signed, key)) == {name}, name
        path.write_bytes(content)
    assert tried > 3000 // step and problems(signed, key) == {}


def test_missing_added_and_replaced_files_are_named(signed: Path, key: PrivateKey, tmp_path: Path) -> None:
    (signed / "certificate.md").unlink()
    (signed / "figurine" / "note.txt").write_text("new")
    (signed / "figurine" / "trainer.log").unlink()
    (signed / "figurine" / "trainer.log").mkdir()
    (signed / "figurine" / "trainer.log" / "inside").write_text("one line\n")
    assert problems(signed, key) == {
        "certificate.md": "missing",
        "figurine/note.txt": "not signed: it was added",
        "figurine/trainer.log": "missing",
        "figurine/trainer.log/inside": "not signed: it was added",
    }


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_links_and_pipes_are_never_part_of_a_report(signed: Path, key: PrivateKey, tmp_path: Path) -> None:
    """The same bytes at the end of a link can be others a moment later."""
    elsewhere = tmp_path / "elsewhere"
    (signed / "figurine" / "renders").rename(elsewhere)
    (signed / "figurine" / "renders").symlink_to(elsewhere)
    (signed / "certificate.md").rename(tmp_path / "moved.md")
    (signed / "certificate.md").symlink_to(tmp_path / "moved.md")
    os.mkfifo(signed / "pipe")
    found = problems(signed, key)
    assert found == {
        "certificate.md": "a link, which is never signed",
        "figurine/renders": "a link, which is never signed",
        "figurine/renders/view 1.png": "missing",
        "pipe": "not a regular file, which is never signed",
    }
    error = refused(sign_folder, signed, CERTIFICATE, key)
    assert "certificate.md: a link" in error.what and int(error.exit_code) == 2
    (signed / ENVELOPE).rename(tmp_path / "envelope")
    (signed / ENVELOPE).symlink_to(tmp_path / "envelope")
    assert problems(signed, key) == {ENVELOPE: "a link"}


def test_another_key(signed: Path, key: PrivateKey) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    other = PrivateKey(Ed25519PrivateKey.generate())
    found = verify_folder(signed, other.public)
    assert (found.holds, found.files, found.statement) == (False, (), None)
    assert found.mismatches[0].problem.endswith(f"{other.public.id}; the file names {key.public.id}")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b'{"payload": 1' + b"0" * 5000 + b"}",
        b'{"payload":"","payloadType":"x","signatures":[]}\n',
        b'{"payload":"","payloadType":"x","signatures":[{"keyid":"","sig":""},{"keyid":"","sig":""}]}\n',
        b'{"payload":"!","payloadType":"x","signatures":[{"keyid":"","sig":""}]}\n',
        b'{"payload":"","payloadType":"x","signatures":[{"keyid":"","sig":""}],"more":1}\n',
        "{\u00e9}".encode(),
        b"\xff\xfe",
    ],
)
def test_what_is_no_envelope(content: bytes, signed: Path, key: PrivateKey) -> None:
    (signed / ENVELOPE).write_bytes(content)
    assert set(problems(signed, key)) == {ENVELOPE}


def test_an_envelope_of_any_size_is_not_read(signed: Path, key: PrivateKey) -> None:
    with (signed / ENVELOPE).open("r+b") as file:
        file.truncate(1 << 40)
    assert "larger than" in problems(signed, key)[ENVELOPE]


def test_two_spellings_of_one_envelope(signed: Path, key: PrivateKey) -> None:
    """The signature would hold for the first; then bytes of the file could change unseen."""
    line = (signed / ENVELOPE).read_bytes()
    (signed / ENVELOPE).write_bytes(line.replace(b'":"', b'": "'))
    assert problems(signed, key) == {ENVELOPE: "it is not spelled as splatfix writes it"}


def _twice(statement: dict[str, Any]) -> None:
    statement["subject"].append(statement["subject"][0])


def _named(name: str) -> Callable[[dict[str, Any]], None]:
    def change(statement: dict[str, Any]) -> None:
        statement["subject"].append({"name": name, "digest": {"sha256": DIGEST}})

    return change


@pytest.mark.parametrize(
    "change",
    [
        _twice,
        *map(_named, ("../secret", "/etc/passwd", "a/../../b", "a//b", "C:\\x", "c:x", "a\nb", "", ".")),
        lambda statement: statement.update(predicateType=PREDICATE[:-1] + "2"),
        lambda statement: statement.update(_type="https://in-toto.io/Statement/v0.1"),
        lambda statement: statement.update(extra=1),
        lambda statement: statement["subject"][0]["digest"].update(sha256="AB" * 32),
        lambda statement: [statement],
    ],
)
def test_signed_by_the_right_key_and_yet_nothing_to_rely_on(
    change: Callable[[dict[str, Any]], Any], signed: Path, key: PrivateKey
) -> None:
    sign_again(signed, key, change)
    error = refused(verify_folder, signed, key.public)
    assert (error.code, int(error.exit_code)) == ("unknown-statement", 3)


@pytest.mark.parametrize("depth", [30, 900, 100_000])
def test_a_deep_statement_of_the_right_key(depth: int, signed: Path, key: PrivateKey) -> None:
    statement = json.loads(decode((signed / ENVELOPE).read_bytes()).payload)
    text = json.dumps({**statement, "predicate": {"x": 0}})
    payload = text.replace("0}}", "[" * depth + "]" * depth + "}}").encode()
    envelope = Envelope(payload, key.sign(pae(PAYLOAD_TYPE, payload)), key.public.id)
    (signed / ENVELOPE).write_bytes(encode(envelope))
    assert "nested too deeply" in refused(verify_folder, signed, key.public).what


def test_a_statement_that_claims_more_than_the_certificate(report: Path, key: PrivateKey) -> None:
    sign_folder(report, {**CERTIFICATE, "verdict": "certified for every GPU"}, key)
    assert problems(report, key) == {
        "certificate.json": "says something else than the statement that was signed"
    }


def test_a_certificate_must_be_among_what_is_signed(signed: Path, key: PrivateKey) -> None:
    sign_again(signed, key, lambda statement: statement["subject"].pop(0) and None)
    assert problems(signed, key) == {"certificate.json": "not signed: it was added"}
    (signed / "certificate.json").unlink()
    assert problems(signed, key) == {"certificate.json": "not signed"}


def test_earlier_reports_are_left_out_and_said(signed: Path, key: PrivateKey) -> None:
    """Signing again sets the first signature aside."""
    first = (signed / ENVELOPE).read_bytes()
    sign_folder(signed, CERTIFICATE, key)
    assert (signed / "previous" / ENVELOPE).read_bytes() == first
    (signed / "previous-2").mkdir()
    found = verify_folder(signed, key.public)
    assert found.holds and found.not_looked_at == ("previous", "previous-2")
    (signed / "previous-old").mkdir()
    (signed / "previous-old" / "x").write_text("no earlier report")
    assert set(problems(signed, key)) == {"previous-old/x"}


def test_too_many_files(signed: Path, key: PrivateKey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatfix.attest.statement.MOST_FILES", 3)
    assert "more than 3 files" in refused(verify_folder, signed, key.public).what


@pytest.mark.skipif(os.name == "nt", reason="no such names there")
def test_names_that_another_system_reads_otherwise(report: Path, key: PrivateKey) -> None:
    for name in ("a\\b", "c:d", "bell\a", os.fsdecode(b"\xff")):
        path = report / name
        path.write_text("x")
        assert list(look(report).others) == [name]
        assert refused(sign_folder, report, CERTIFICATE, key).code == "cannot-sign"
        path.unlink()
    assert not (report / ENVELOPE).exists()


def test_what_ran_beside_what_is_installed(tmp_path: Path) -> None:
    """Only names below site-packages are looked for there, whatever a statement holds."""
    (tmp_path / "secret.so").write_bytes(b"x")
    site = tmp_path / "site-packages"
    (site / "gsplat").mkdir(parents=True)
    (site / "gsplat" / "csrc.so").write_bytes(b"x")
    (site / "fused.so").write_bytes(b"another")
    (site / "folder.so").mkdir()
    x = hashlib.sha256(b"x").hexdigest()
    files = ["gsplat/csrc.so", "fused.so", "gone.so", "folder.so", "../secret.so"]
    files += [str(tmp_path / "secret.so"), "x" * 5000]
    ran = [{"file": file, "sha256": x} for file in (*files, "smoke_trainer/train.py", None)]
    statement = {"ran": ran, "sources": {"smoke_trainer/train.py": x}}
    found = compare_installed(statement, (tmp_path / "none", site))
    outside = "not compared: it was not in site-packages"
    problems = ("", "another file than the one that ran", "not there", "not there", outside, outside)
    *rest, long = [(item.file, item.problem) for item in found]
    assert rest == list(zip(files[:-1], problems, strict=True))
    assert long[1] != ""  # what the system says of it


def test_before_anything_is_trained(report: Path, tmp_path: Path) -> None:
    require_room(tmp_path / "new", ("figurine",))
    (report / "previous-3").mkdir()
    for name in (ENVELOPE, "container.json"):
        (report / name).touch()
    require_room(report, ("figurine",))
    (report / "garden").mkdir()
    assert "garden" in refused(require_room, report, ("figurine",)).what
    (report / "garden" / "trainer.log").touch()
    require_room(report, ("figurine",))
    (report / "thesis.tex").touch()
    for folder, scenes, code in (
        (report, ("figurine",), "not-our-folder"),
        (tmp_path / "new", ("a:b",), "unsignable-scene"),
    ):
        error = refused(require_room, folder, scenes)
        assert (error.code, int(error.exit_code)) == (code, 2)
    require_key_elsewhere(report, tmp_path / "key.pem")
    inside = report / "figurine" / ".." / "key.pem"
    assert refused(require_key_elsewhere, report, inside).code == "key-in-report"


def test_openssl_finds_the_same(signed: Path, key: PrivateKey, tmp_path: Path) -> None:
    """A peer: what is signed is put together here from the specification's sentence, and OpenSSL checks it."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    openssl = tool("openssl")
    envelope = json.loads((signed / ENVELOPE).read_bytes())
    kind, payload = envelope["payloadType"].encode(), base64.b64decode(envelope["payload"])
    words = [b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload]
    (tmp_path / "signed.bin").write_bytes(b" ".join(words))
    (tmp_path / "signature.bin").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
    public = key.public.key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "key.pub.pem").write_bytes(public)
    check = [openssl, "pkeyutl", "-verify", "-pubin", "-inkey", "key.pub.pem", "-rawin", "-in", "signed.bin"]
    check += ["-sigfile", "signature.bin"]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 0
    with (tmp_path / "signed.bin").open("ab") as file:
        file.write(b" ")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode != 0
    as_der = [openssl, "pkey", "-pubin", "-in", tmp_path / "key.pub.pem", "-outform", "DER"]
    der = subprocess.run(as_der, capture_output=True).stdout
    digest = subprocess.run([openssl, "dgst", "-sha256", "-r"], input=der, capture_output=True).stdout
    assert digest.split()[0].decode() == envelope["signatures"][0]["keyid"]


def test_other_readers_of_attestations_accept_it(signed: Path, key: PrivateKey) -> None:
    """Peers: securesystemslib's DSSE, which in-toto and TUF use, and in-toto's own schema of statements."""
    dsse = pytest.importorskip("securesystemslib.dsse")
    signer = pytest.importorskip("securesystemslib.signer")
    schema = pytest.importorskip("in_toto_attestation.v1.statement_pb2")
    from google.protobuf import json_format
    from in_toto_attestation.v1.statement import Statement

    document = json.loads((signed / ENVELOPE).read_bytes())
    public = signer.SSlibKey.from_crypto(key.public.key, keyid=key.public.id)
    assert list(dsse.Envelope.from_dict(document).verify([public], 1)) == [key.public.id]
    parsed = schema.Statement()
    json_format.Parse(base64.b64decode(document["payload"]), parsed)
    statement = Statement.copy_from_pb(parsed)
    statement.validate()
    assert [item.name for item in statement.pb.subject] == list(FILES)
