"""Pretrained weights that cannot be downloaded: in a rehearsal a network keeps its random ones, and the report says so.

Trainers load VGG or AlexNet for LPIPS when they start, from a server that a CI runner without a network cannot reach.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from typing import Any


def go_without(torch: Any, missing: list[str]) -> None:
    """Where a download fails, load nothing instead, and add the address to ``missing``."""
    download, load = torch.hub.load_state_dict_from_url, torch.nn.Module.load_state_dict

    @functools.wraps(download)
    def download_or_not(url: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return download(url, *args, **kwargs)
        except OSError as error:  # URLError is one
            missing.append(f"{url}: {error}")
            return OrderedDict()

    @functools.wraps(load)
    def load_or_not(self: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        if missing and len(state_dict) == 0:
            return torch.nn.modules.module._IncompatibleKeys([], [])
        return load(self, state_dict, *args, **kwargs)

    torch.hub.load_state_dict_from_url = download_or_not
    torch.nn.Module.load_state_dict = load_or_not
