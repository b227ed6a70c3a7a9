"""No credential survives, and what is none stays readable."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from msgspec import Struct, field

from splatfix.core.errors import SplatfixError
from splatfix.core.redact import own_secrets, redacted, without_credentials, without_credentials_in
from splatfix.core.step import run
from splatfix.core.toml import parse_toml

TEXTS = parse_toml(Path(__file__).with_name("credentials.toml").read_text(encoding="utf-8"))
SECRET = "Tr0ub4dor3Xq9Zw7Lk2Vb8"
TOKENS: dict[str, str] = TEXTS["tokens"]


FORMS = ("{}", "-DX={}", "a {}, b", "'{}'", "https://x.example/{}/y", '{{"a": "b\\n{}"}}', "({})")


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
def test_a_token_of_known_shape_is_hidden_anywhere(token: str) -> None:
    for form in FORMS:
        assert without_credentials(form.format(token)) == form.format("***")


@pytest.mark.parametrize(("text", "shown"), TEXTS["hidden"])
def test_a_credential_is_hidden_and_the_rest_stays(text: str, shown: str) -> None:
    made = without_credentials(text.format(SECRET))
    assert made == shown.format() and without_credentials(made) == made


@pytest.mark.parametrize("text", TEXTS["stays"])
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_credentials(text) == text


def test_secrets_of_the_own_environment_are_hidden_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {"MY_TOKEN": "hunter2hunter2", "DB_PASSWORD": "Correct-Horse", "WANDB_API_KEY": "a" * 40}
    others = {"SSH_AUTH_SOCK": "/tmp/agent1/socket", "AUTHENTICATION": "required", "PIN_TOKEN": "12345678"}
    others |= {"GIT_AUTHOR_NAME": "Grace Hopper1", "X_KEY": "abc1", "CC": "gcc-12-is-mine"}
    for name, value in (secrets | others).items():
        monkeypatch.setenv(name, value)
    own_secrets.cache_clear()
    try:
        assert without_credentials(" ".join(secrets.values())) == "*** *** ***"
        assert without_credentials(" ".join(others.values())) == " ".join(others.values())
    finally:
        own_secrets.cache_clear()


@pytest.mark.parametrize("header", ["", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0A1B\n\n"])
def test_a_private_key_is_hidden_over_its_lines(header: str) -> None:
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{header}{SECRET}\n{SECRET}\n-----END RSA PRIVATE KEY-----\n"
    lines = list(without_credentials_in(["a\n", *key.splitlines(keepends=True), "b\n"]))
    assert lines == ["a\n", "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\n", "b\n"]


class _Thing(Struct, frozen=True):
    url: str
    items: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    inner: _Thing | None = None


def test_data_is_redacted_all_through() -> None:
    thing = _Thing(
        f"https://{SECRET}@h/", (f"TOKEN={SECRET}",), {"HF_TOKEN": "short", "CC": "gcc"}, _Thing("a")
    )
    made = redacted({"things": [thing]})["things"][0]
    assert made == _Thing("https://***@h/", ("TOKEN=***",), {"HF_TOKEN": "***", "CC": "gcc"}, _Thing("a"))
    assert made.inner is thing.inner and redacted(thing.inner) is thing.inner
    error = SplatfixError("x", "What.", todo=(run("pip", "download", f"https://{SECRET}@h/"),))
    assert error.todo == (run("pip", "download", "https://***@h/"),)


BEGINNINGS = TEXTS["beginnings"]
PIECES = (*TOKENS.values(), *BEGINNINGS, *TEXTS["pieces"])


def test_json_stays_json() -> None:
    dice = random.Random(0)
    for _ in range(60):
        said = {str(n): "".join(dice.choices(PIECES, k=dice.randrange(12))) for n in range(20)}
        once = json.dumps(said)
        for text in (once, json.dumps(once), json.dumps(said, indent=1, ensure_ascii=False)):
            assert type(json.loads(without_credentials(text))) is type(json.loads(text)), text


def test_secrets_in_json_are_hidden() -> None:
    said = {"u": f"https://a:{SECRET}@h", "password": f'a"{SECRET}\\', "p": "C:\\"}
    said["n"] = f"x\n{TOKENS['github']}"
    made = without_credentials(json.dumps(said))
    assert json.loads(made) == {"u": "https://a:***@h", "password": "***", "n": "x\n***", "p": "C:\\"}


@pytest.mark.parametrize("piece", BEGINNINGS)
def test_the_time_is_linear(piece: str) -> None:
    text = f"token @ :// sk- eyJ {piece * (100_000 // len(piece))} @"
    started = time.process_time()
    without_credentials(text)
    assert time.process_time() - started < 0.7
