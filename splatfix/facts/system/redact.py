"""Takes what is personal out of a recorded machine: user and host names, home folders, GPU UUIDs, tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "(redacted)"
_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASS(WORD|WD|PHRASE)?$|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|_KEY$|AUTH", re.I
)
_USER_VARIABLES = ("USER", "LOGNAME", "USERNAME", "SUDO_USER")
_HOST_VARIABLES = ("HOSTNAME", "COMPUTERNAME", "HOST", "NAME")
# Names that tell nothing about a person, or that are words of this field, which must stay what they are.
_ORDINARY = frozenset(
    [
        "root",
        "user",
        "ubuntu",
        "debian",
        "admin",
        "runner",
        "docker",
        "vagrant",
        "nobody",
        "localhost",
        "linux",
        "windows",
        "python",
        "torch",
        "cuda",
        "nvidia",
        "gcc",
        "clang",
        "home",
        "build",
        "local",
        "host",
        "site",
        "lib",
        "bin",
        "usr",
        "opt",
        "tmp",
        "conda",
        "nvcc",
        "gsplat",
        "splatfix",
        "test",
        "share",
        "system",
    ]
)
_HOMES = re.compile(r"(?P<root>/home/|/Users/|[A-Za-z]:[\\/]{1,2}Users[\\/]{1,2})(?P<user>[^\\/\s:;,'\"]+)")
_GPU = re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.I)
_IN_URL = re.compile(r"(?<=://)[^/@\s'\"]+(?=@)")
# Shapes of access tokens that are recognised wherever they stand: Hugging Face, GitHub, GitLab, OpenAI, AWS, PyPI, W&B.
_TOKEN = re.compile(
    r"\b(hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|sk-[\w-]{20,}|"
    r"A(?:KIA|SIA)[A-Z0-9]{16}|pypi-[\w-]{20,})\b"
)


class Redactor:
    """Replaces the same thing by the same thing everywhere, so that paths in answers still fit each other."""

    def __init__(self, env: Mapping[str, str], node: str) -> None:
        """``node`` is the host's name as the system itself gives it."""
        homes = [env[name] for name in ("HOME", "USERPROFILE") if len(env.get(name, "")) > 3]
        # a home outside the usual places (/data/people/ann) becomes one inside; /root tells nothing
        self._moved = sorted({home for home in homes if home != "/root" and not _HOMES.match(home)}, key=len)[
            ::-1
        ]
        users = {env[name] for name in _USER_VARIABLES if name in env}
        users |= {match.group("user") for home in homes if (match := _HOMES.match(home))}
        users |= {home.replace("\\", "/").rstrip("/").rpartition("/")[2] for home in self._moved}
        hosts = {node, node.partition(".")[0], *(env[name] for name in _HOST_VARIABLES if name in env)}
        self._people = dict.fromkeys(users, "user") | dict.fromkeys(hosts - users, "host")
        words = sorted((name for name in self._people if _telling(name)), key=len)[::-1]
        self._words = (
            re.compile("|".join(rf"(?<![\w-]){re.escape(word)}(?![\w-])" for word in words))
            if words
            else None
        )
        self._gpus: dict[str, str] = {}
        self._homes: dict[str, str] = {}

    def variables(self, env: Mapping[str, str]) -> dict[str, str]:
        """Environment variables; those whose name promises a secret keep only the name."""
        return {
            name: HIDDEN if _SECRET_NAME.search(name) else self.text(value) for name, value in env.items()
        }

    def text(self, text: str) -> str:
        """Any text: a path, a file's content, a program's output."""
        for home in self._moved:
            text = re.sub(rf"{re.escape(home)}(?![\w.-])", "/home/user", text)
        text = _HOMES.sub(self._home, text)
        text = _GPU.sub(self._gpu, text)
        text = _IN_URL.sub(HIDDEN, text)
        text = _TOKEN.sub(HIDDEN, text)
        return self._words.sub(lambda match: self._people[match.group(0)], text) if self._words else text

    def data(self, value: object) -> object:
        """Every text inside plain JSON data, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self.data(item) for key, item in value.items()}
        return [self.data(item) for item in value] if isinstance(value, (list, tuple)) else value

    def _home(self, match: re.Match[str]) -> str:
        name = match.group("user")
        if name in ("Public", "Shared", "Default"):
            return match.group(0)
        number = len(self._homes) + 1
        return match.group("root") + self._homes.setdefault(name, "user" if number == 1 else f"user{number}")

    def _gpu(self, match: re.Match[str]) -> str:
        known = self._gpus.setdefault(match.group(0).lower(), f"{len(self._gpus) + 1:012d}")
        return f"{match.group(1)}-00000000-0000-0000-0000-{known}"


def _telling(name: str) -> bool:
    return len(name) > 2 and name.lower() not in _ORDINARY and not name.isdigit()
