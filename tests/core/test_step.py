"""Steps as data, and the shell lines made of them."""

import pytest

from splatfix.core.step import Command, PlainStep, Step, prepend_variable, run, say, set_variable

STEPS = [
    (run("rm", "-r", "/a b"), "rm -r '/a b'", 'rm -r "/a b"'),
    (set_variable("A", "x;y"), "export A='x;y'", 'set "A=x;y"'),
    (set_variable("A", None), "unset A", 'set "A="'),
    (prepend_variable("P", "/x y"), 'export P="/x y${P:+:$P}"', 'set "P=/x y;%P%"'),
    (PlainStep(command=Command(("pip",), (("A", "1"),))), "A=1 pip", 'set "A=1" && pip'),
    (PlainStep(command=Command(("pip",), (("A", None),))), "env -u A pip", 'set "A=" && pip'),
    (run("pip", "install", "numpy<2"), "pip install 'numpy<2'", 'pip install "numpy<2"'),
    (say("Reboot."), "Reboot.", "Reboot."),
    (run("nvidia-smi", text="Look:"), "Look: nvidia-smi", "Look: nvidia-smi"),
]


@pytest.mark.parametrize(("step", "posix", "cmd"), STEPS)
def test_shell_lines(step: Step, posix: str, cmd: str) -> None:
    assert step.line(windows=False) == posix
    assert step.line(windows=True) == cmd


def test_a_command_says_what_is_to_be_filled_in() -> None:
    step = run("FOLDER/bin/python", "build.py", "SOURCE", "--target=ARCHITECTURE")
    assert step.command and step.command.blanks == ("FOLDER", "SOURCE")
    assert step.to_json()["fill_in"].keys() == {"FOLDER", "SOURCE"}
