"""``certify --sign``, ``report sign`` and ``report verify`` as a person types them."""

import csv
import hashlib
import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch.optim.adam  # noqa: F401 - its file is compared

import splatfix.certify
from splatfix.app.attest import VARIABLE
from splatfix.attest.report import require_room
from splatfix.certify import report_lock
from splatfix.report.appendix import BLANK
from tests.certify.conftest import RecordedTrainer
from tests.cli.test_documents import check
from tests.conftest import Splatfix


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    """An encrypted private key, and its public half."""
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    locked = forms.BestAvailableEncryption(b"correct horse")
    private, public = tmp_path / "key.pem", tmp_path / "key.pub"
    private.write_bytes(key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, locked))
    private.chmod(0o600)
    openssh = (forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)
    public.write_bytes(key.public_key().public_bytes(*openssh))
    return private, public


UNLOCKED = {VARIABLE: "correct horse"}


class Trainer(RecordedTrainer):
    """Notes the variables that children get."""

    def run(self, argv: Any, **options: Any) -> Any:
        assert VARIABLE not in (options.get("env") or os.environ)
        return super().run(argv, **options)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    trainer = Trainer()
    certify = partial(splatfix.certify.certify, runner=trainer)
    monkeypatch.setattr("splatfix.app.certify.train_and_judge", certify)
    return trainer


def test_a_signed_certification(
    recorded: Trainer, keys: tuple[Path, Path], splatfix: Splatfix, tmp_path: Path
) -> None:
    """Signed with everything that was written, verified, spoiled, and refused."""
    private, public = keys
    out = tmp_path / "report"
    named = ("--python", sys.executable, "--device", "cpu", "--out", out)
    done = splatfix("certify", *named, "--sign", private, "--appendix", env=os.environ | UNLOCKED)
    assert done.returncode == 0, done.stderr
    assert f"Signed: {out / 'certificate.intoto.jsonl'}, with the key " in done.stdout
    assert "Warning" not in done.stderr
    for name in ("appendix.md", "appendix.tex"):
        assert BLANK in (out / name).read_text(encoding="utf-8")

    good = splatfix("report", "verify", out, "--key", public)
    assert (good.returncode, good.stderr) == (0, "")
    assert "Not vouched for" in good.stdout and "that the key belongs to whom you think" in good.stdout
    made = check(json.loads(splatfix("report", "verify", out, "--key", public, "--json").stdout))
    certificate = json.loads((out / "certificate.json").read_text(encoding="utf-8"))
    assert "host label" not in certificate["environment"]
    assert made["statement"]["sources"] == certificate["sources"] and len(made["statement"]["sources"]) > 30
    assert {item["part"] for item in made["statement"]["ran"]} == {"renderer", "ssim", "knn", "optimizer"}
    assert {"certificate.json", "appendix.md", "figurine/result.json"} < set(made["files"])
    assert len(made["vouched_for"]) == 3 and f"{len(made['files'])} files: byte for byte" in good.stdout

    beside = splatfix("report", "verify", out, "--key", public, "--python", sys.executable, "--json")
    (adam,) = check(json.loads(beside.stdout))["installed"]
    same = Path(sys.modules["torch.optim.adam"].__file__ or "").read_bytes()
    recorded_with = next(item["sha256"] for item in made["statement"]["ran"] if item["part"] == "optimizer")
    differs = (
        hashlib.sha256(same).hexdigest() != recorded_with
    )  # another build of torch than the recorded one
    assert (adam["file"], bool(adam["problem"])) == ("torch/optim/adam.py", differs)
    assert beside.returncode == int(differs)

    log = out / "study" / "trainer.log"
    log.write_text(log.read_text() + " ")
    bad = splatfix("report", "verify", out / "certificate.json", "--key", public)
    assert bad.returncode == 1 and "study/trainer.log: changed since it was signed" in bad.stdout
    assert "Vouched" not in bad.stdout
    spoiled = check(json.loads(splatfix("report", "verify", out, "--key", public, "--json").stdout))
    assert (spoiled["holds"], spoiled["vouched_for"], spoiled["exit_code"]) == (False, [], 1)

    again = splatfix("report", "sign", out, "--key", private, "--json", env=os.environ | UNLOCKED)
    assert check(json.loads(again.stdout))["key"] == made["key"]
    assert splatfix("report", "verify", out, "--key", public).returncode == 0


@pytest.mark.parametrize("command", ["certify", "certify --container cpu", "certify --container cpu,cu126"])
def test_a_second_certification_into_a_folder_is_refused(
    command: str, recorded: Trainer, splatfix: Splatfix, tmp_path: Path
) -> None:
    out = tmp_path / "report"
    target = ("--python", sys.executable, "--device", "cpu", "--level", "2")
    with report_lock(out):
        (out / "certificate.json").write_text("{}")
        second = splatfix(*command.split(), *(target if command == "certify" else ()), "--out", out, "--json")
        left = sorted(path.name for path in out.iterdir())
    error = check(json.loads(second.stdout))["error"]
    assert (second.returncode, error["code"]) == (1, "report-folder-busy")
    assert f"(process {os.getpid()})" in error["what"] and "--out" in error["todo"][-1]["text"]
    assert left == [".splatfix.lock", "certificate.json"] and len(list(out.iterdir())) == 1


def test_a_lock_that_a_kill_left_hinders_no_signed_certification(tmp_path: Path) -> None:
    (tmp_path / ".splatfix.lock").touch()
    require_room(tmp_path, ())
    with report_lock(tmp_path / "new"):
        pass
    with report_lock(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_a_run_level_without_training_vouches_for_none(
    keys: tuple[Path, Path], splatfix: Splatfix, tmp_path: Path
) -> None:
    words = ("certify", "--level", "1", "--python", sys.executable, "--out", tmp_path / "report")
    splatfix(*words, "--sign", keys[0], env=os.environ | UNLOCKED)
    done = splatfix("report", "verify", tmp_path / "report", "--key", keys[1])
    assert done.returncode == 0 and " at run level 1, issued " in done.stdout
    assert "recorded the digests" not in done.stdout


def test_an_interrupted_run_is_not_signed(
    recorded: Trainer,
    keys: tuple[Path, Path],
    splatfix: Splatfix,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(argv: Any, **options: Any) -> Any:
        if "study" in map(str, argv):
            raise KeyboardInterrupt
        return Trainer.run(recorded, argv, **options)

    monkeypatch.setattr(recorded, "run", stop)
    words = ("certify", "--python", sys.executable, "--device", "cpu", "--out", tmp_path / "report")
    done = splatfix(*words, "--sign", keys[0], env=os.environ | UNLOCKED)
    assert done.returncode == 130
    later = splatfix("report", "sign", tmp_path / "report", "--key", keys[0], env=os.environ | UNLOCKED)
    assert later.returncode == 2 and "(cannot-sign)" in later.stderr and "come to its end" in later.stderr
    left = {path.name for path in (tmp_path / "report").iterdir()}
    assert "certificate.json" in left and "certificate.intoto.jsonl" not in left


def test_nothing_is_trained_with_a_key_that_cannot_sign(
    recorded: Trainer, keys: tuple[Path, Path], splatfix: Splatfix, tmp_path: Path
) -> None:
    private, public = keys
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.tex").touch()
    shutil.copy(private, full / "key.pem")
    named = ("certify", "--python", sys.executable, "--out")
    unlocked, wrong = os.environ | UNLOCKED, os.environ | {VARIABLE: "wrong"}
    for words, variables, code in (
        ((*named, tmp_path / "new", "--sign", tmp_path / "absent"), unlocked, "unusable-key"),
        ((*named, tmp_path / "new", "--sign", public), unlocked, "unusable-key"),
        ((*named, tmp_path / "new", "--sign", private), wrong, "wrong-passphrase"),
        ((*named, tmp_path / "new", "--sign", private), None, "passphrase-needed"),
        ((*named, full, "--sign", private), unlocked, "not-our-folder"),
        ((*named, full, "--sign", full / "key.pem"), unlocked, "key-in-report"),
        (("certify", "--container", "cpu", "--sign", public), unlocked, "unusable-key"),
    ):
        done = splatfix(*words, "--json", env=variables)
        assert (json.loads(done.stdout)["error"]["code"], done.returncode) == (code, 2)
    assert recorded.calls == [] and not (tmp_path / "new").exists()
    assert sorted(path.name for path in full.iterdir()) == ["key.pem", "thesis.tex"]


def test_what_cannot_be_signed_or_verified(
    keys: tuple[Path, Path], splatfix: Splatfix, tmp_path: Path
) -> None:
    private, public = keys
    (tmp_path / "empty").mkdir()
    for words, code, exit_code in (
        (("verify", tmp_path / "nothing", "--key", public), "cannot-read", 2),
        (("verify", public, "--key", public), "not-a-report", 2),
        (("verify", tmp_path / "empty", "--key", private), "unusable-key", 2),
        (("sign", tmp_path / "empty", "--key", private), "cannot-read", 2),
    ):
        done = splatfix("report", *words, "--json", env=os.environ | UNLOCKED)
        assert (json.loads(done.stdout)["error"]["code"], done.returncode) == (code, exit_code)
    unsigned = splatfix("report", "verify", tmp_path / "empty", "--key", public)
    assert unsigned.returncode == 1 and "missing: the report is not signed" in unsigned.stdout


@pytest.mark.skipif(os.name == "nt", reason="its files have no modes")
def test_a_key_that_others_may_read_is_said(
    keys: tuple[Path, Path], splatfix: Splatfix, tmp_path: Path
) -> None:
    keys[0].chmod(0o644)
    done = splatfix("report", "sign", tmp_path, "--key", keys[0], env=os.environ | UNLOCKED)
    assert "others than its owner may read or change" in done.stderr and "chmod 600" in done.stderr


def test_every_reader_says_who_signed(
    recorded: Trainer, keys: tuple[Path, Path], splatfix: Splatfix, tmp_path: Path
) -> None:
    """Unsigned, signed and not checked, signed by a key, and changed: in show, diff, merge and its files."""
    private, public = keys
    out, merged = tmp_path / "report", tmp_path / "merged"
    on_cpu = ("--python", sys.executable, "--device", "cpu", "--out", out)
    splatfix("certify", *on_cpu, "--host-label", "bench 7")
    file = out / "certificate.json"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()

    def readers(*options: Any) -> list[dict[str, Any]]:
        shown = json.loads(splatfix("report", "show", out, "--json", *options).stdout)
        compared = json.loads(splatfix("report", "diff", out, out, "--json", *options).stdout)
        matrix = json.loads(splatfix("report", "merge", out, "--out", merged, "--json", *options).stdout)
        identities = [check(shown)["identity"], check(compared)["a"]["identity"]]
        identities += [item["identity"] for cell in check(matrix)["cells"] for item in cell["certificates"]]
        return identities

    def rows() -> list[dict[str, str]]:
        with (merged / "certificates.csv").open(newline="", encoding="utf-8") as opened:
            return list(csv.DictReader(opened))

    unsigned = {"id": digest, "signature": "unsigned", "key": "", "problem": ""}
    assert readers() == [unsigned] * 3
    assert [(row["id"], row["signature"]) for row in rows()] == [(digest, "unsigned")]
    signed = splatfix("report", "sign", out, "--key", private, "--json", env=os.environ | UNLOCKED)
    key = json.loads(signed.stdout)["key"]
    assert readers() == [{**unsigned, "signature": "not-checked", "key": key}] * 3
    assert readers("--key", public) == [{**unsigned, "signature": "signed", "key": key}] * 3
    assert [(row["signature"], row["key"]) for row in rows()] == [("signed", key)]
    for command in (("show", out), ("diff", out, out), ("merge", out, "--out", merged)):
        assert "unsigned" not in splatfix("report", *command).stdout
    for name in ("certificates.html", "certificates.md"):
        assert "signature not checked" in (merged / name).read_text(encoding="utf-8")
    page = splatfix("report", "show", out, "--format", "html", "--key", public).stdout
    assert f"signed by {key}" in page and digest in page and "bench 7" in page

    document = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**document, "issued": "2030-01-01T00:00:00+00:00"}), encoding="utf-8")
    for options in ((), ("--key", public)):
        shown, compared = readers(*options)
        assert shown["signature"] == compared["signature"] == "bad"
        assert "changed since it was signed" in shown["problem"]
    heads = {
        "text": "BAD SIGNATURE: ",
        "html": '<header class="bad">',
        "markdown": "# splatfix certificate: BAD SIGNATURE",
    }
    for form, head in heads.items():
        shown = splatfix("report", "show", out, "--format", form)
        assert shown.returncode == 1 and head in shown.stdout and "CERTIFIED" not in shown.stdout
    compared = splatfix("report", "diff", out, out)
    assert compared.returncode == 3 and "A is not what was signed" in compared.stdout
    refused = json.loads(splatfix("report", "merge", out, "--out", tmp_path / "none", "--json").stdout)
    assert refused["exit_code"] == 3 and "bad signature" in refused["unreadable"][0]["reason"]
    (out / "certificate.intoto.jsonl").write_text("{}", encoding="utf-8")
    assert readers()[0]["signature"] == "bad"
