"""Hostile project files: each reader's kinds damaged, replaced and made huge, judged and written by ``splatfix project``."""

import json
import random
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from splatfix.core.codec import to_json
from splatfix.core.toml import parse_toml
from tests.files import put
from tests.machines import facts_of
from tests.projects.test_cases import CASES, write
from tests.tables import data

from .bad_files import SPARSE, Put, bad_files, replace
from .commands import command, enter, everything_in
from .harness import Case, seeded
from .mutate import damaged_document, damaged_text
from .spelled import spelled_table
from .words import CONTROL, MARKUP, UNICODE

FORMS = (("--json",), ("--verbose",), ("--format", "github"))
NAMES = (
    *("pyproject.toml", "pixi.toml", "requirements.txt", "environment.yml", ".python-version"),
    *("uv.lock", "poetry.lock", "pylock.toml", "pixi.lock"),
)
_PROJECT = (
    "[project]\nname = 'a'\nversion = '1'\nrequires-python = '>=3.11'\ndependencies = ['torch==2.1.2'{}]\n"
)
# Who reads which lock file.
_TOOLS = {"poetry": "[tool.poetry]\nname = 'a'\n", "pixi": "[tool.pixi.dependencies]\npytorch = '*'\n"}


@cache
def facts() -> str:
    """Of a machine with a GPU, as it saves them."""
    return json.dumps(to_json(facts_of("h200")))


def cases(count: int, seed: int) -> Iterator[Case]:
    """A sample of files that are none, every evil project, and as many projects of the tests, damaged."""
    facts()
    rng = random.Random(seed)
    bad = [(name, kind, put_bad) for name in NAMES for kind, put_bad in bad_files()]
    for number, (name, kind, put_bad) in enumerate(rng.sample(bad, min(len(bad), count // 2))):

        def replaced(folder: Path, name: str = name, number: int = number, put_bad: Put = put_bad) -> None:
            owner = _PROJECT.format("") + _TOOLS.get(name.partition(".")[0], "")
            put(folder / "stack", {"pyproject.toml": owner, "requirements.txt": "torch==2.1.2\n"})
            replace(folder / "stack" / name, put_bad)
            _judge(folder, number)

        yield Case(f"{name}-{kind}", replaced)
    plain: dict[str, dict[str, str]] = {k: v for k, v in data(__file__).items() if k != "huge"}
    for number, name in enumerate((*plain, *HUGE)):

        def evil(folder: Path, name: str = name, number: int = number) -> None:
            for file, text in (plain[name] if name in plain else HUGE[name]()).items():
                content = text.encode().replace(b"latin-1", b"J\xfcrgen")
                (folder / "stack").mkdir(exist_ok=True)
                (folder / "stack" / file).write_bytes(content)
            _judge(folder, number)

        yield Case(name, evil)
    yield Case("links", _links)
    yield from seeded(_damaged, count // 2, seed)


def _damaged(folder: Path, number: int) -> None:
    """Some files of a project: values replaced by others of any type, or bytes damaged."""
    rng = random.Random(number)
    case = CASES[number % len(CASES)]
    write(folder / "stack", case)
    for name in rng.sample(sorted(case["files"]), rng.randint(1, len(case["files"]))):
        path = folder / "stack" / name
        data = path.read_bytes()
        if (
            rng.random() < 0.6
            and name in ("pyproject.toml", "pixi.toml", "uv.lock")
            and "file-unreadable" not in case.get("unknown", ())
        ):
            data = _as_toml(damaged_document(rng, parse_toml(data.decode())))
        else:
            data = damaged_text(rng, data)
        if rng.random() < 0.2:
            data = b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")
        path.write_bytes(data)
    _judge(folder, number)


def _as_toml(document: Any) -> bytes:
    """Its tables inline; what has no such type in TOML as Python writes it."""
    rows = document.items() if isinstance(document, dict) else [("document", document)]
    text = "\n".join(f"{json.dumps(key)} = {_inline(value)}" for key, value in rows)
    return text.encode("utf-8", "surrogatepass")


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, (str, bool)):
        return json.dumps(value)
    # of more digits Python makes no text
    return str(value) if not isinstance(value, int) or value < 1 << 80 else "1" * 400


def _links(folder: Path) -> None:
    """Links in a circle, and to a folder above, in the place of what the files name."""
    names = "./loop\n./up\n./itself\n-r loop/requirements.txt\n-r up/stack/requirements.txt\n"
    put(folder / "stack", {"requirements.txt": f"torch==2.1.2\n{names}"})
    for name, target in (("loop", "loop"), ("up", ".."), ("itself", ".")):
        (folder / "stack" / name).symlink_to(target)
    _judge(folder, 0)


def _judge(folder: Path, number: int) -> None:
    """Check and write; what was written is undone to the byte."""
    (folder / "facts.json").write_text(facts())
    enter(folder)
    options = ("stack", "--target", "sm_120", "--facts", "facts.json")
    command(folder, "project", "check", *options, *FORMS[number % len(FORMS)])
    before = _contents(folder / "stack")
    command(folder, "project", "write", *options, "--yes", *("--json",) * (number % 2), writes=("stack",))
    if _contents(folder / "stack") != before:
        command(folder, "revert", "--project", "stack", "--yes", writes=("stack",))
        assert _contents(folder / "stack") == before, "revert does not put back what write changed"


def _contents(stack: Path) -> dict[str, bytes]:
    """Every regular file that is not splatfix's."""
    paths = [stack / name for name in everything_in(stack) if not name.startswith(".splatfix")]
    regular = [path for path in paths if path.is_file() and not path.is_symlink()]
    return {path.name: path.read_bytes() for path in regular if path.stat().st_size < SPARSE}


def _uv(rows: str, dependencies: str = "") -> dict[str, str]:
    return {"pyproject.toml": f"{_PROJECT.format(dependencies)}[tool.uv]\n{rows}\n"}


def _huge(name: str) -> dict[str, str]:
    """Files of a project, or what a pyproject.toml has for uv, spelled out."""
    files = spelled_table(data(__file__)["huge"][name])
    uv = _uv(files.pop("uv"), files.pop("dependencies", "")) if "uv" in files else {}
    return {**files, **uv}


HUGE: dict[str, Callable[[], dict[str, str]]] = {
    **{name: partial(_huge, name) for name in data(__file__)["huge"]},
    "files": lambda: {f"requirements-{number}.txt": f"torch==2.{number % 9}.0\n" for number in range(300)},
    "chain": lambda: {
        f"requirements-{number}.txt": f"-r requirements-{number + 1}.txt\ntorch\n" for number in range(90)
    },
    "speaking": lambda: {
        "requirements.txt": f"torch=={CONTROL + MARKUP}\n{UNICODE}\n--index-url https://{CONTROL + UNICODE}/x\n",
        "environment.yml": f"dependencies:\n- pytorch={CONTROL + UNICODE}\n- pip:\n  - {MARKUP}\n",
        **_uv(
            f"[tool.uv.sources]\ntorch = {{ index = {json.dumps(UNICODE + MARKUP)} }}",
            "," + json.dumps(f"b @ https://x/{UNICODE}{MARKUP}"),
        ),
    },
}
"""Too much of what is well formed, and names that a terminal would obey."""
