"""What is refused: by one code, in one document that its schema describes, before anything is done."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_documents import check

LANE = "certify --docker-host unix:///nowhere --container"
WHY = "install --dry-run --why"
REFUSED = {
    "another-baseline": (
        *("certify --baseline other.json", "certify --baseline level.json", "certify --baseline ended.json"),
    ),
    "bad-knowledge": ("--knowledge own.toml diagnose",),
    "baseline-needs-data": ("certify --baseline inria-2023",),
    "cannot-read": (
        *("diagnose --facts nothing", "explain --jsonl --facts nothing", "report diff nothing /"),
        *("report show nothing/certificate.json", "report show ."),
    ),
    "cannot-save": (*("diagnose --save nothing/x.json", "diagnose --save file/x.json", "diagnose --save ."),),
    "cannot-start": ("explain --json -- /no/such/program",),
    "facts-and-options": (
        *(f"{WHY} --facts x --force-cuda-mismatch", f"{WHY} --facts x --backend pure"),
        f"{WHY} --facts x --python env",
    ),
    "facts-and-python": ("diagnose --facts facts.json --repo .",),
    "json-and-format": (
        *("certify --format junit", "report show a --format html", "report diff a b --format=markdown"),
    ),
    "lane-builds-nothing": (f"{LANE} cpu --target sm_120", f"{LANE} cpu --extension ."),
    "lane-needs-checkout": (f"{LANE} inria-v1",),
    "level-needs-gpu": ("certify --level 4 --data . --device cpu",),
    "list-alone": ("revert --list --all",),
    "no-interpreter": (
        *("diagnose --python /no/python", "verify --python /no/python", "certify --python /no/python"),
    ),
    "no-interval": ("monitor --interval nan --json true",),
    "no-such-file": ("inspect nothing",),
    "no-such-log": ("explain nothing", "explain .", "explain --jsonl nothing"),
    "not-a-binary": ("inspect facts.json",),
    "not-a-certificate": ("certify --baseline diagnosis.json",),
    "not-a-folder": (
        *("diagnose --repo nothing", "dockerfile --repo nothing --target sm_86", f"{WHY} nothing"),
        f"{LANE} cuda-from-pypi --extension nothing",
    ),
    "not-facts": ("diagnose --facts facts.json",),
    "not-in-a-container": (*(f"{LANE} cpu --level 2", f"{LANE} cpu --baseline other.json --seed 3"),),
    "not-in-cache": ("cache clear nothing --yes",),
    "not-with-level": (
        *("certify --level 3 --suite quick", "certify --level 3 --data ."),
        "certify --level 2 --baseline other.json",
    ),
    "only-in-a-container": (
        "certify --base-image debian:12",
        "certify --docker-host tcp://127.0.0.1:1 --ca-certificates file",
    ),
    "only-with-why": ("install --facts facts.json",),
    "options-conflict": ("explain --list --jsonl",),
    "renderer-needs-gpu": ("certify --renderer gsplat",),
    "resume-takes-no-source": ("install --resume --ptx --jobs 2", "install --resume gsplat==0.0.0"),
    "suite-and-data": ("certify --suite quick --data .",),
    "unknown-arch": ("diagnose --target sm_12000", f"{LANE} cuda-from-pypi --target sm_12x"),
    "unknown-baseline": ("certify --baseline nothing.json",),
    "unknown-check": ("diagnose --only nonsuch", "checks show nonsuch"),
    "unknown-class": ("explain --class nonsense",),
    "unknown-lane": (f"{LANE} cpu,nonsuch", "lanes show nonsuch"),
    "unknown-scene": ("scenes export nonsuch",),
    "unknown-suite": ("certify --suite nonsuch",),
    "wrong-usage": (
        *("nonsuch", "lanes nonsuch", "--nonsuch"),
        *("certify --renderer nope", "certify --level 5", f"certify --seed {1 << 64}", "checks show"),
        *("diagnose --no-such-option", "inspect", "verify --device tpu"),
    ),
}


@pytest.mark.parametrize(("line", "code"), [(line, code) for code in REFUSED for line in REFUSED[code]])
def test_it_is_refused(
    line: str,
    code: str,
    document: Callable[..., dict[str, Any]],
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
    made = check(document(*shlex.split(line)))
    assert (made["error"]["code"], made["exit_code"]) == (code, 2)
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
    line: str, document: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3, as in the smoke trainer: a full disk says nothing of a stack, and the call was not wrong."""
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    made = check(document(*shlex.split(line), tmp_path / "file" / "below"))
    assert (made["error"]["code"], made["exit_code"]) == ("cannot-write", 3)
