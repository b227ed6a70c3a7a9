"""A machine is written down while it is asked, and played back it gives the same facts and the same findings."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.checks import run_checks
from splatfix.context import make_context
from splatfix.core.codec import to_json
from splatfix.core.errors import SplatfixError
from splatfix.core.redact import HIDDEN
from splatfix.facts import System, gather, load
from splatfix.facts.system.playback import PlaybackSystem, RawMachine
from splatfix.facts.system.recording import RecordingSystem, Redactor
from splatfix.model import Facts
from tests.archs import goal
from tests.tables import data

UUID = "GPU-e24bed87-5853-1036-cbfc-b54eac6acda1"


def timeless(facts: Facts) -> object:
    return to_json(replace(facts, gathered=""))


def test_played_back_machine_gives_equal_facts_and_findings(tmp_path: Path) -> None:
    recording = RecordingSystem(System(), tmp_path / "machine")
    facts = gather(sys.executable, system=recording)
    assert facts.environment.interpreter.known, "the comparison must be about something"
    recording.write(sys.executable, redact=False)
    again = load(tmp_path / "machine")
    assert timeless(again) == timeless(facts)
    before, after = (to_json(run_checks(make_context(item, goal("sm_120")))) for item in (facts, again))
    assert before == after


def test_redaction_changes_the_facts_only_by_redaction(tmp_path: Path, empty_venv: Path) -> None:
    folder = str(tmp_path)
    recording = RecordingSystem(
        System(env={**os.environ, "HOME": folder, "USER": "grace"}), tmp_path / "machine"
    )
    facts = gather(str(empty_venv), system=recording)
    redactor = recording.write(str(empty_venv))
    again = load(tmp_path / "machine")
    assert again.environment.interpreter.value.prefix == "/home/user/venv", "the temporary HOME is redacted"
    assert timeless(again) == redactor.data(timeless(facts))


TABLE = data(__file__)
PERSON: dict[str, str] = TABLE["person"]


@pytest.fixture
def redactor() -> Redactor:
    return Redactor(PERSON, "hopper-desk.lan")


def test_what_is_personal_is_replaced_and_stays_consistent(redactor: Redactor) -> None:
    env = redactor.data(PERSON)
    assert isinstance(env, dict)
    assert env["HF_TOKEN"] == HIDDEN
    assert env["TORCH_CUDA_ARCH_LIST"] == "12.0"
    assert env["PIP_INDEX_URL"] == f"https://{HIDDEN}@packages.example/simple"
    assert env["LD_PRELOAD"].startswith(env["HOME"] + "/")
    assert redactor.text("grace@hopper-desk:~$ ls /home/grace/venv /home/ada/x") == (
        "user@host:~$ ls /home/user/venv /home/user2/x"
    )
    assert redactor.text(f"{UUID} and {UUID}, not {UUID[:-1]}0").count("000000000001") == 2
    assert "grace" not in json.dumps(
        redactor.data({"/home/grace": ["token hf_" + "a" * 30, "C:\\Users\\grace"]})
    )


@pytest.mark.parametrize(("home", "user", "host", "text", "redacted"), TABLE["redacted"])
def test_names_of_persons_and_machines(home: str, user: str, host: str, text: str, redacted: str) -> None:
    """A user may be named like a common word, and live outside the usual places."""
    assert Redactor({"HOME": home, "USER": user}, host).text(text) == redacted


def test_only_variables_that_were_looked_at_are_written(tmp_path: Path) -> None:
    recording = RecordingSystem(System(env={"PATH": "/usr/bin", "DIARY": "dear diary"}), tmp_path / "m")
    assert recording.env.get("PATH") == "/usr/bin"
    recording.write("/usr/bin/python3")
    assert json.loads((tmp_path / "m" / "env.json").read_text()) == {"PATH": "/usr/bin"}


def test_errors_and_timeouts_are_played_back_too(tmp_path: Path, script: Callable[[Path, str], Path]) -> None:
    slow = script(tmp_path / "slow", "#!/bin/sh\nsleep 5\n")
    (tmp_path / "text.so").write_text("no binary")
    recording = RecordingSystem(System(env={}), tmp_path / "m")
    recording.run([str(slow)], 0.2)
    with pytest.raises(Exception, match=r"text\.so"):
        recording.read_binary(str(tmp_path / "text.so"))
    recording.write("python", redact=False)
    played = PlaybackSystem(RawMachine.read(tmp_path / "m"))
    assert played.run([str(slow)], 0.2).error == "no answer within 0.2 s"
    assert "could not start" in played.run(["something-else"], 1).why()
    with pytest.raises(Exception, match=r"text\.so"):
        played.read_binary(str(tmp_path / "text.so"))


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(SplatfixError) as caught:
        RecordingSystem(System(env={}), tmp_path)
    assert caught.value.code == "folder-not-empty"


def test_the_command_line_records(splatfix: Callable[..., object], tmp_path: Path, empty_venv: Path) -> None:
    done = splatfix("diagnose", "--python", str(empty_venv), "--record", str(tmp_path / "m"), "--json")
    assert json.loads(done.stdout)["facts"]  # type: ignore[attr-defined]
    assert load(tmp_path / "m").environment.interpreter.known
