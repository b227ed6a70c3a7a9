"""What is refused: by one code, in one document that its schema describes, before anything is done."""

import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Document
from tests.cli.test_documents import check
from tests.tables import data

LANE = "certify --container"
WHY = "install --dry-run --why"
REFUSED: dict[str, tuple[str, ...]] = data(__file__)


@pytest.mark.parametrize(
    ("line", "code"), [(line.format(LANE=LANE, WHY=WHY), code) for code in REFUSED for line in REFUSED[code]]
)
def test_it_is_refused(
    line: str,
    code: str,
    document: Document,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded = {
        "own.toml": "[archs.archs.130]\n",
        "facts.json": '{"schema_version": 1, "machine": 3}',
        "file": "",
        "diagnosis.json": '{"command": "diagnose"}',
        "other.json": '{"command": "certify", "scenes": [{}], "renderer": "gsplat", "device": "cuda"}',
        "level.json": '{"command": "certify", "scenes": [], "level": 1}',
        "ended.json": '{"command": "certify", "scenes": [], "interrupted": true}',
    }
    for name, text in recorded.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    made = check(document(*shlex.split(line)))
    assert (made["error"]["code"], made["exit_code"]) == (code, 2)
    assert made["command"] in f"splatfix {line}"
    assert {path.name for path in tmp_path.iterdir()} == recorded.keys(), "nothing is done"


@pytest.mark.parametrize(
    "line",
    [
        "certify --level 1 --out",
        "monitor --out",
        "report merge . --out",
        "scenes export fruit --out",
    ],
)
def test_what_cannot_be_written_ends_with_the_same_code_everywhere(
    line: str, document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3, as in the smoke trainer: a full disk says nothing of a stack, and the call was not wrong."""
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    made = check(document(*shlex.split(line), tmp_path / "file" / "below"))
    assert (made["error"]["code"], made["exit_code"]) == ("cannot-write", 3)
