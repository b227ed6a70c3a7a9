"""The folder of a report: room for a new one, with what an earlier certification left moved aside."""

from __future__ import annotations

from pathlib import Path

from splatfix.core.errors import usage_error
from splatfix.core.files import make_folder, set_aside
from splatfix.core.step import say

MAX_IMAGES = 4
"""Per scene, in the report."""
TRAINING_LOG = "trainer.log"
"""In the folder of every scene that was begun."""
REPORT_FILES = (
    *(f"certificate.{kind}" for kind in ("json", "md", "html", "intoto.jsonl")),
    "appendix.md",
    "appendix.tex",
    "container.json",
    "container.log",
    "image-build.log",
)
"""Those of a report that do not belong to a scene."""


def make_room(out: Path, scenes: tuple[str, ...]) -> None:
    """An empty report folder; an earlier report moves to ``previous``, with the folders of all its scenes.

    Raises:
        SplatfixError: ``cannot-write``; ``not-our-folder`` (exit code 2) where a scene's folder exists and holds
            something else than an earlier report: it may be the user's data.
    """
    make_folder(out)
    for scene in scenes:
        folder = out / scene
        ours = folder.is_dir() and ((folder / TRAINING_LOG).is_file() or not any(folder.iterdir()))
        if folder.exists() and not ours:
            raise usage_error(
                "not-our-folder",
                f"{folder} exists, and is not the report of an earlier certification.",
                say("Choose another folder with --out."),
            )
    earlier: list[str] = []
    if (out / "certificate.json").is_file():  # of whichever suite it was
        earlier = sorted(log.parent.name for log in out.glob(f"*/{TRAINING_LOG}"))
    set_aside(out, (*REPORT_FILES, *dict.fromkeys((*scenes, *earlier))))
