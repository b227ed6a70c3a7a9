"""What the trainer stands on: torch, numpy and Pillow, and one clear sentence where one of them is missing."""

from __future__ import annotations

import importlib
import sys
from typing import Dict, List, Tuple

from smoke_trainer.errors import PackageMissing

# The module to import, and the name under which it is installed and spoken of.
NAMES: Dict[str, str] = {"torch": "torch", "numpy": "numpy", "PIL": "Pillow"}


def require(modules: Tuple[str, ...] = tuple(NAMES)) -> None:
    """Import these modules; a PackageMissing names all that are not installed, or the one that does not load."""
    missing: List[str] = []
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise _broken(module, error) from None
            missing.append(NAMES[module])
        except (ImportError, OSError) as error:  # a shared library that is missing or does not fit
            raise _broken(module, error) from None
    if missing:
        raise PackageMissing(
            f"{sys.executable} lacks {', '.join(missing)}",
            "nothing ran: the smoke trainer needs torch, numpy and Pillow",
            f"run it with your splatting environment's Python, or: {sys.executable} -m pip install {' '.join(missing)}",
        )


def _broken(module: str, error: Exception) -> PackageMissing:
    words = str(error).strip().splitlines() or [type(error).__name__]
    return PackageMissing(
        f"{NAMES[module]} is installed for {sys.executable} but cannot be loaded: {words[0][:300]}",
        "nothing ran: the smoke trainer needs torch, numpy and Pillow",
        "`splatfix diagnose` names the cause",
    )
