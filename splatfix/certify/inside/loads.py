"""What torch does not load for a trainer, and the run comes further without: files that it refuses, weights from a server.

torch 2.6 made ``weights_only=True`` the default. A file that this very run wrote is as safe as the trainer that wrote it: loading
it after all lets the run come to what stops it next. Any other stays refused, as torch wants it.
"""

from __future__ import annotations

import os
import pickle  # nosec B403 - for the name of its exception
import traceback
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from splatfix.certify.inside.cuda_on_cpu import replace_call
from splatfix.certify.inside.importing import place_in

if TYPE_CHECKING:
    from splatfix.certify.inside.observer import Record

_SAID = "Weights only load failed"


def collect_refused(record: Record, written: Sequence[str]) -> None:
    """Wrap ``torch.load``; ``written`` held nothing but files of the checkout, by the same names, when the run began."""
    roots = [os.path.join(os.path.realpath(folder), "") for folder in written]

    def collecting(load: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return load(f, *args, **kwargs)
        except pickle.UnpicklingError as error:
            explicit = len(args) > 1 or {"weights_only", "pickle_module"} & set(kwargs)
            if _SAID not in str(error) or explicit or not isinstance(f, (str, os.PathLike)):
                raise
            path = os.path.realpath(f)
            inside = [path[len(root) :] for root in roots if path.startswith(root)]
            if not inside or os.path.exists(os.path.join(record.root, inside[0])):
                raise
            place, _ = place_in(record.root, traceback.extract_stack())
            row = {"place": place, "file": os.path.basename(path)}
            if row not in record.passed_over["refused_loads"]:
                record.passed_over["refused_loads"].append(row)
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
