"""Any file of any layout damaged: a scene loads, or one clear error says why not. ``tests/hostile`` does it by the hundred."""

import pytest

from tests.hostile.scenes import load_damaged
from tests.smoke_trainer.tiny import LAYOUTS


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_damaged_file_is_read_or_refused(layout, seed, scene_folder):
    load_damaged(scene_folder(layout), seed)
