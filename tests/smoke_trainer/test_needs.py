"""An environment that lacks what the trainer stands on gets one sentence, not a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from smoke_trainer.errors import PackageMissing
from smoke_trainer.process import require

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
def test_a_package_that_is_there_and_does_not_load_is_told_apart(line, words, tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text(f"{line}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(PackageMissing, match=r"torch is installed for .* but cannot be loaded") as caught:
        require(("torch",))
    assert words in caught.value.message
