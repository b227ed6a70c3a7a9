"""What torch does not load for a trainer, and the run comes further without: files that it refuses, weights from a server.

torch 2.6 made ``weights_only=True`` the default. A file that this very run wrote is as safe as the trainer that wrote it: loading
it after all lets the run come to what stops it next. Any other stays refused, as torch wants it.
"""

from __future__ import annotations

import os
import pickle  # nosec B403 - for the name of its exception
import sys
import traceback
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch

from splatfix.certify.inside.cuda_on_cpu import replace_call
from splatfix.certify.inside.importing import place_in

if TYPE_CHECKING:
    from splatfix.certify.inside.observer import Record


def collect_refused(record: Record) -> None:
    """Wrap ``torch.load``; the folders of ``written`` held nothing but files of the checkout, by the same names, when the run
    began."""
    roots = [os.path.join(os.path.realpath(folder), "") for folder in record.configuration["written"]]

    def collecting(load: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return load(f, *args, **kwargs)
        except pickle.UnpicklingError as error:
            asked = "weights_only" in kwargs or not isinstance(f, (str, os.PathLike))
            if asked or "Weights only load failed" not in str(error):
                raise
            path = os.path.realpath(f)
            inside = [path[len(root) :] for root in roots if path.startswith(root)]
            if not inside or os.path.exists(os.path.join(record.root, inside[0])):
                raise
            place, _ = place_in(record.root, traceback.extract_stack())
            record.mend(
                "torch-load-pickles",
                f"{place or sys.argv[0]} loads {os.path.basename(path)}, which torch refuses without weights_only=False.",
                "Give weights_only=False to that torch.load, if nobody else's files are loaded there.",
            )
            return load(f, *args, weights_only=False, **kwargs)

    replace_call(torch, "load", collecting)


def go_without(missing: list[str]) -> None:
    """Where a download fails, load nothing instead, and add the address to ``missing``.

    Trainers load VGG or AlexNet for LPIPS when they start; without a network these keep their random weights.
    """

    def download_or_not(download: Any, url: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return download(url, *args, **kwargs)
        except OSError as error:  # URLError is one
            missing.append(f"{url}: {error}")
            return OrderedDict()

    def load_or_not(load: Any, model: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        if missing and len(state_dict) == 0:
            return torch.nn.modules.module._IncompatibleKeys([], [])
        return load(model, state_dict, *args, **kwargs)

    replace_call(torch.hub, "load_state_dict_from_url", download_or_not)
    replace_call(torch.nn.Module, "load_state_dict", load_or_not)
