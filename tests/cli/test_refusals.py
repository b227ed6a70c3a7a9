"""What is refused, before anything is done; advice for the environment that was named; and examples and completion of words."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from splatfix.cli import app
from splatfix.cli.process import naming_python
from splatfix.core.codec import to_json
from splatfix.core.step import Step, run, say
from splatfix.report.certificate import CertificateDocument
from splatfix.report.forms import envelope
from tests.cli.conftest import Document
from tests.cli.test_documents import check
from tests.machines import facts_of
from tests.report.test_certificate import certificate
from tests.tables import data

LANE = "certify --container"
WHY = "install --dry-run --why"
REFUSED: dict[str, tuple[str, ...]] = data(__file__)["refused"]


@pytest.mark.parametrize(
    ("line", "code"), [(line.format(LANE=LANE, WHY=WHY), code) for code in REFUSED for line in REFUSED[code]]
)
def test_it_is_refused(
    line: str, code: str, document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = {
        "own.toml": "[archs.archs.130]\n",
        "facts.json": '{"schema_version": 1, "machine": 3}',
        "file": "",
        "diagnosis.json": '{"command": "diagnose"}',
    }
    earlier = {"other": {"renderer": "gsplat"}, "level": {"scenes": (), "level": 1}, "ended": {"scenes": ()}}
    for name, changes in earlier.items():
        made = CertificateDocument(
            certificate=certificate(issued="2026-11-28", **changes), facts=facts_of("h200")
        )
        recorded[f"{name}.json"] = json.dumps(envelope("certify", 0, to_json(made)))
    for name, text in recorded.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    made = check(document(*shlex.split(line)))
    assert (made["error"]["code"], made["exit_code"]) == (code, 2)
    assert made["command"] in f"splatfix {line}"
    assert {path.name for path in tmp_path.iterdir()} == recorded.keys(), "nothing is done"


@pytest.mark.parametrize(
    "line", ["certify --level 1 --out", "monitor --out", "report merge . --out", "scenes export fruit --out"]
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


@pytest.mark.parametrize(
    ("advice", "added"),
    [
        (run("splatfix", "revert", "--list"), True),
        (run("splatfix", "diagnose"), True),
        (run("splatfix", "install", "fused_ssim", "--backend", "pure", text="For the drop-in"), True),
        (run("splatfix", "install", ".", "--python", "other"), False),
        (run("splatfix", "cache", "list"), False),
        (say("splatfix diagnose"), False),
        (run("pip", "install", "ninja"), False),
    ],
)
def test_advice_names_the_environment(advice: Step, added: bool) -> None:
    named = naming_python(advice, "my env")
    assert named.text == advice.text
    if not added:
        assert named == advice
        return
    assert named.command and advice.command
    assert named.command.argv == (*advice.command.argv, "--python", "my env")
    assert naming_python(advice, "") == advice


def commands_of(group: Any, *above: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, *above, name)
        else:
            yield (*above, name), command


@pytest.mark.parametrize(("words", "command"), list(commands_of(typer.main.get_command(app))))
def test_every_help_has_an_example_that_parses(words: tuple[str, ...], command: Any) -> None:
    examples = [line.removeprefix("Example: ") for line in (command.epilog or "").splitlines() if line]
    assert examples
    for example in examples:
        typed = shlex.split(example.rpartition("| ")[2])  # what is piped into it belongs to others
        assert tuple(typed[: len(words) + 1]) == ("splatfix", *words)
        assert command.make_context(words[-1], typed[len(words) + 1 :]).params


@pytest.mark.parametrize(("typed", "offered"), data(__file__)["offered"])
def test_a_shell_completes_names(
    typed: str, offered: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])  # has a README.md, which the shell itself completes
    words = {"COMP_WORDS": f"splatfix {typed}", "COMP_CWORD": str(len(typed.split()))}
    environment = {"_SPLATFIX_COMPLETE": "complete_bash", **words}
    done = CliRunner().invoke(app, [], env=environment, prog_name="splatfix")
    assert (done.exit_code, tuple(done.stdout.split())) == (0, offered)
