"""Files that ``torch.load`` refuses because they hold more than tensors: each is told, and the trainer's own are loaded.

torch 2.6 made ``weights_only=True`` the default. A file that this very run wrote is as safe as the trainer that wrote it: loading
it after all lets the run come to what stops it next. Any other stays refused, as torch wants it.
"""

from __future__ import annotations

import functools
import os
import pickle  # nosec B403 - for the name of its exception
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from splatfix.certify.inside.importing import place_in

if TYPE_CHECKING:
    from splatfix.certify.inside.observer import Record

_SAID = "Weights only load failed"


def collect_refused(torch: Any, record: Record, written: Sequence[str]) -> None:
    """Wrap ``torch.load``.

    Args:
        written: folders that were empty when the run began.
    """
    load = torch.load
    roots = [os.path.join(os.path.realpath(folder), "") for folder in written]

    @functools.wraps(load)
    def collecting(f: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return load(f, *args, **kwargs)
        except pickle.UnpicklingError as error:
            explicit = len(args) > 1 or {"weights_only", "pickle_module"} & set(kwargs)
            if _SAID not in str(error) or explicit or not isinstance(f, (str, os.PathLike)):
                raise
            path = os.path.realpath(f)
            own = any(path.startswith(root) for root in roots)
            record.refused_load(place_in(record.root), os.path.basename(path), gone_on=own)
            if not own:
                raise
            return load(f, *args, weights_only=False, **kwargs)

    torch.load = collecting
