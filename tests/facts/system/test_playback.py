"""What a recording holds is held against its shape before anything plays it back."""

import json
from pathlib import Path

import pytest

from splatfix.core.errors import SplatfixError
from splatfix.facts import load
from tests.machines import raw_machines
from tests.tables import data

TABLE = data(__file__)


@pytest.mark.parametrize(("part", "document"), TABLE["a-damaged-recording-is-refused"])
def test_a_damaged_recording_is_refused(part: str, document: object, tmp_path: Path) -> None:
    raw_machines()["rtx-5080"].write(tmp_path / "m")
    (tmp_path / "m" / f"{part}.json").write_text(json.dumps(document))
    with pytest.raises(SplatfixError) as caught:
        load(tmp_path / "m")
    assert caught.value.code == "not-a-machine" and caught.value.exit_code == 2
