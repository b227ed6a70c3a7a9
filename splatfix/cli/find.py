"""Prebuilt wheels: ``splatfix find``."""

from __future__ import annotations

from typing import Annotated, Optional

from splatfix import app
from splatfix.cli import options
from splatfix.cli.options import finish, option


def find(
    subjects: Annotated[list[str], option("find.subjects")],
    target: Annotated[Optional[list[str]], option("install.target")] = None,
    python: options.Python = None,
    index: options.Indexes = None,
    offline: options.Offline = False,
    verbose: Annotated[bool, option("find.verbose")] = False,
    as_json: options.Json = False,
) -> None:
    """Find prebuilt wheels, and judge each for this environment and GPU before it is fetched."""
    request = app.find.FindRequest(
        subjects=tuple(subjects),
        targets=options.archs_or_auto(target),
        python=python,
        indexes=tuple(index or ()),
        offline=offline,
    )
    finish(app.find.find(request, verbose=verbose), as_json)
