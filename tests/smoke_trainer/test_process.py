"""Required packages, and a closed pipe on standard output."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from smoke_trainer.data.load import SAMPLES
from smoke_trainer.errors import PackageMissing
from smoke_trainer.process import BROKEN_PIPE, require

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("words", [["nope"], ["figurine", "--preset", "quick"]])
def test_without_torch_numpy_and_pillow_the_trainer_says_so(words, tmp_path):
    # -S: without site-packages, as in a fresh venv
    done = subprocess.run(
        [sys.executable, "-S", "-m", "smoke_trainer", *words, "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3 and "Traceback" not in done.stderr
    assert f"error[package-missing]: {sys.executable} lacks torch, numpy, Pillow\n" in done.stderr
    assert f"{sys.executable} -m pip install torch numpy Pillow" in done.stderr


def test_only_what_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(PackageMissing) as caught:
        require()
    assert caught.value.message.endswith("lacks Pillow")
    require(("torch", "numpy"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("raise ImportError('libcudnn.so.9: cannot open shared object file')", "libcudnn.so.9"),
        ("raise OSError('libgomp.so.1: wrong ELF class')", "wrong ELF class"),
        ("import no_such_part_of_torch", "no_such_part_of_torch"),
    ],
)
def test_a_package_that_does_not_load_is_told_apart(line, words, tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text(f"{line}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(PackageMissing, match=r"torch is installed for .* but cannot be loaded") as caught:
        require(("torch",))
    assert words in caught.value.message


def test_a_closed_pipe_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    argv = [sys.executable, "-m", "smoke_trainer.data", str(SAMPLES)]
    done = subprocess.run(argv, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (BROKEN_PIPE, "")
