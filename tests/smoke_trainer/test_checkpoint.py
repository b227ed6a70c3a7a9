"""Checkpoints that are cut short or of another run: one clear error each."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from smoke_trainer.train import train
from tests.smoke_trainer.conftest import ShortRun


@pytest.fixture(scope="module")
def trained(short_run_in: Callable[[Path], ShortRun], tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = short_run_in(tmp_path_factory.mktemp("trained"))(9, checkpoint_every=9)
    assert train(config).status == "ok"
    return config.out


@pytest.fixture
def written(trained: Path, tmp_path: Path) -> Path:
    """The checkpoint of a finished run, in a folder of its own."""
    return Path(shutil.copytree(trained, tmp_path / "written")) / "checkpoint.pt"


@pytest.mark.parametrize(
    ("edit", "changes", "message"),
    [
        ({}, {"iterations": 5}, "9 iterations, more than"),
        ({}, {"sh_degree": 1}, "another --sh-degree"),
        ({"train_views": ["view_001.png", "view_002.png", *"abcdef"]}, {}, "other training views"),
    ],
    ids=["longer", "degree", "views"],
)
def test_one_of_another_run_is_refused(short_run, written, edit, changes, message):
    payload = torch.load(written, weights_only=True)
    payload["rest"] = json.dumps({**json.loads(payload["rest"]), **edit})
    torch.save(payload, written)
    options = {"iterations": 11, **changes}
    assert message in train(short_run(out="other", resume=written, **options)).error.message


@pytest.mark.parametrize("length", [0, 100, -200])
def test_one_that_is_cut_short_is_refused(short_run, written, length):
    path = written.with_name("cut.pt")
    path.write_bytes(written.read_bytes()[:length])
    record = train(short_run(11, out="resumed", resume=path))
    assert record.status == "unreadable-scene", record.error
    assert str(path) in record.error.message and "\n" not in record.error.message
    assert record.error.traceback is None


def test_earlier_output_is_moved_aside_unless_resumed(short_run, written):
    """A checkpoint may be hours of work: the same command again must not write over it."""
    bytes_before = written.read_bytes()
    again = train(short_run(3, out="written"))
    assert again.status == "ok" and not written.exists()
    assert (written.parent / "previous" / "checkpoint.pt").read_bytes() == bytes_before
    assert len((written.parent / "metrics.jsonl").read_text().splitlines()) == 3
    kept = written.parent / "previous" / "checkpoint.pt"
    assert train(short_run(11, out="written", resume=kept)).status == "ok"
    assert not (written.parent / "previous-2").exists()
