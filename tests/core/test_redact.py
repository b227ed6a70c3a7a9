"""No credential survives, and what is none stays readable."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, field

import pytest

from splatfix.core.redact import own_secrets, redacted, without_credentials

SECRET = "Tr0ub4dor3Xq9Zw7Lk2Vb8"
TOKENS = {
    "hugging-face": "hf_" + "aB3" * 12,
    "github": "ghp_" + "aB3" * 12,
    "github-app": "ghs_" + "aB3" * 12,
    "github-fine": "github_pat_11AB_" + "aB3_" * 15,
    "gitlab": "glpat-" + "a-B3_" * 4,
    "openai": "sk-proj-" + "aB3" * 12,
    "openai-old": "sk-" + "aB3" * 16,
    "anthropic": "sk-ant-api03-" + "aB3-_" * 12,
    "hex": "sk-" + "0123456789abcdef" * 2,
    "stripe": "sk_live_" + "aB3" * 8,
    "slack": "xoxb-123456789012-" + "aB3" * 8,
    "slack-user": "xoxp-123456789012-abc",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "aws-session": "ASIAIOSFODNN7EXAMPLE",
    "pypi": "pypi-AgEIcHlwaS5vcmcC" + "aB3" * 20,
    "nvidia": "nvapi-" + "aB3_" * 16,
    "docker": "dckr_pat_" + "aB3" * 9,
    "google": "AIza" + "aB3_-" * 7,
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
}


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
@pytest.mark.parametrize(
    "form",
    [
        "{}",
        "-DX={}",
        "a {}, b",
        "'{}'",
        "https://x.example/{}/y",
        '{{"a": "b\\n{}"}}',
        "(%s)".replace("%s", "{}"),
    ],
)
def test_a_token_of_known_shape_is_hidden_anywhere(token: str, form: str) -> None:
    assert without_credentials(form.format(token)) == form.format("***")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:{}@host/x.git", "https://user:***@host/x.git"),
        ('url = "https://user:{}@host/x"', 'url = "https://user:***@host/x"'),
        ("https://{}@host/x", "https://***@host/x"),
        ("HTTPS://{}@host/x", "HTTPS://***@host/x"),
        ("https://{}:x-oauth-basic@host/x", "https://***@host/x"),
        ("https://{}:@host/x", "https://***@host/x"),
        ("https://oauth2:{}@host/x", "https://oauth2:***@host/x"),
        ("git+https://u:{}@host/x@v1#egg=y", "git+https://u:***@host/x@v1#egg=y"),
        ("ssh://git:{}@host:22/x", "ssh://git:***@host:22/x"),
        ("https://u:a@{}@host/x", "https://u:***@host/x"),
        ("https://u:a/{}/b@host/x", "https://u:***@host/x"),
        ("https:\\/\\/u:{}@host\\/x", "https:\\/\\/u:***@host\\/x"),
        ("https://u:{}@[::1]:80/x", "https://u:***@[::1]:80/x"),
        ("tcp://u:{}@host:2376", "tcp://u:***@host:2376"),
        ("https://host/t/{}/channel", "https://host/t/***/channel"),
        ("https://h/x?a=1&access_token={}&b=2", "https://h/x?a=1&access_token=***&b=2"),
        ("https://h/x?sig={}", "https://h/x?sig=***"),
        ("https://h/x?X-Amz-Signature={}#f", "https://h/x?X-Amz-Signature=***#f"),
        ("https://h/x?key={}", "https://h/x?key=***"),
        ("-DAPI_TOKEN={} -O2", "-DAPI_TOKEN=*** -O2"),
        ("WANDB_API_KEY={}", "WANDB_API_KEY=***"),
        ("AWS_SECRET_ACCESS_KEY={}/+=", "AWS_SECRET_ACCESS_KEY=***"),
        ("MY_KEY={}", "MY_KEY=***"),
        ("--password={} x", "--password=*** x"),
        ("run --hf-token {} x", "run --hf-token *** x"),
        ('{{"token": "{}", "a": 1}}', '{{"token": "***", "a": 1}}'),
        ('"{{\\"token\\": \\"{}\\"}}"', '"{{\\"token\\": \\"***\\"}}"'),
        ("password='a b {}'", "password='***'"),
        ("password: {}", "password: ***"),
        ("Authorization: Bearer {}", "Authorization: Bearer ***"),
        ("Authorization: Basic {}==", "Authorization: Basic ***"),
        ("-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END", "-----BEGIN RSA PRIVATE KEY-----***-----END"),
    ],
)
def test_a_credential_is_hidden_and_the_rest_stays(text: str, shown: str) -> None:
    made = without_credentials(text.format(SECRET))
    assert made == shown.format() and without_credentials(made) == made


@pytest.mark.parametrize(
    "text",
    [
        "git@github.com:x/y.git",
        "ssh://git@github.com/x/y.git",
        "https://git@github.com/x/y.git",
        "https://github.com/x/y.git@v1.2#subdirectory=z",
        "https://host:8080/x@1",
        "http://[::1]:80/a@b",
        "https://[x/",
        "https://discuss.pytorch.org/t/undefined-symbol/123",
        "tokenizers==0.15.0",
        "author=grace key=value",
        "max_tokens=128 and token == other",
        "-DHASH_KEY=64 -DTOKEN=$TOKEN",
        "error: expected ';' before 'token'",
        "sk-learn-environment-of-mine/lib/python3.11",
        "ghost ghp_ hf_hub glm-0.9.9.8 gcc-ar skimage-0.2 task-0123",
        "/home/user/.cache/torch_extensions/py311_cu130",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "0123456789abcdef0123456789abcdef01234567",
        "GPU-5b0f00a0-8a1c-4d1e-9f86-d081884c7d65",
        "cp311-cp311-manylinux_2_28_x86_64",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_credentials(text) == text


def test_secrets_of_the_own_environment_are_hidden_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {"MY_TOKEN": "hunter2hunter2", "DB_PASSWORD": "Correct-Horse", "WANDB_API_KEY": "a" * 40}
    others = {
        "SSH_AUTH_SOCK": "/tmp/agent1/socket",
        "AUTHENTICATION": "required",
        "PIN_TOKEN": "12345678",
        "GIT_AUTHOR_NAME": "Grace Hopper1",
        "X_KEY": "abc1",
        "CC": "gcc-12-is-mine",
    }
    for name, value in (secrets | others).items():
        monkeypatch.setenv(name, value)
    own_secrets.cache_clear()
    try:
        assert without_credentials(" ".join(secrets.values())) == "*** *** ***"
        assert without_credentials(" ".join(others.values())) == " ".join(others.values())
    finally:
        own_secrets.cache_clear()


@dataclass(frozen=True)
class _Thing:
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


PIECES = (
    *TOKENS.values(),
    *(
        *("\\", '"', "'", "\n", "=", ": ", "token", "password", "https://", "u:p@", "/t/", "?sig="),
        *("key=", "x", "é"),
    ),
    *(
        *("9", "-----BEGIN PRIVATE KEY-----", "-----END", "bearer ", "authorization: ", "--", "\x1b"),
        *(" ", "@", "/"),
    ),
    *('\\"', "&"),
)


@pytest.mark.parametrize("seed", range(200))
def test_json_stays_json(seed: int) -> None:
    dice = random.Random(seed)
    said = {str(n): "".join(dice.choices(PIECES, k=dice.randrange(12))) for n in range(20)}
    once = json.dumps(said)
    for text in (once, json.dumps(once), json.dumps(said, indent=1, ensure_ascii=False)):
        assert type(json.loads(without_credentials(text))) is type(json.loads(text))


def test_secrets_in_json_are_hidden() -> None:
    said = {
        "u": f"https://a:{SECRET}@h",
        "password": f'a"{SECRET}\\',
        "n": f"x\n{TOKENS['github']}",
        "p": "C:\\",
    }
    made = without_credentials(json.dumps(said))
    assert json.loads(made) == {"u": "https://a:***@h", "password": "***", "n": "x\n***", "p": "C:\\"}


@pytest.mark.parametrize(
    "piece",
    [
        *("a", "://", "://a:b", "sk-", "eyJ-", "-eyJ.", 'token="', "token='\\'", "key=", "&a.", "://a/t/b"),
        *("password: ", "@://", "bearer ", "-----BEGIN PRIVATE KEY-----", "--token ", "hf_", 'token\\" : '),
    ],
)
def test_the_time_is_linear(piece: str) -> None:
    text = f"token @ :// sk- eyJ {piece * (300_000 // len(piece))} @"
    started = time.process_time()
    without_credentials(text)
    assert time.process_time() - started < 2
