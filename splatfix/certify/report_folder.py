"""The folder of a report: room for a new one, with what an earlier certification left moved aside."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from splatfix.core.errors import SplatfixError, cannot_write
from splatfix.core.files import make_folder, set_aside, write_text
from splatfix.core.lock import Lock, Locked
from splatfix.core.step import say

MAX_IMAGES = 4
"""Per scene, in the report."""
TRAINING_LOG = "trainer.log"
"""In the folder of every scene that was begun."""
_OURS = ("certificate.", "container.", "image-build.")
"""What the files of a report begin with that belong to no scene; a signature among them holds for one certificate."""


@contextmanager
def report_lock(out: Path) -> Iterator[tuple[str, ...]]:
    """Keep other certifications out of a report folder, whose report they would move away, and give notes.

    A folder that is made here is none of the repository that it may lie in: it has a ``.gitignore``.

    Raises:
        SplatfixError: ``report-folder-busy`` when another is at work there; ``cannot-write``.
    """
    there, ignored = out.exists(), out / ".gitignore"
    make_folder(out)
    try:
        lock = Lock(out / ".splatfix.lock")
    except OSError as error:
        text = f"Cannot write into {out}: {error.strerror or error}."
        raise cannot_write(text, say("Choose another folder with --out.")) from error
    except Locked as locked:
        todo = (*map(say, locked.todo), say("Or choose another folder with --out."))
        raise SplatfixError.of("certify.report-folder-busy", holder=locked.tell(out), todo=todo) from None
    try:
        if not there:
            write_text(ignored, "*\n")
        yield lock.notes
    finally:
        lock.release(remove=True)
        with suppress(OSError):
            if not there and list(out.iterdir()) == [ignored]:  # it was refused before anything was written
                ignored.unlink()
                out.rmdir()


def make_room(out: Path, scenes: tuple[str, ...]) -> None:
    """Empty a report folder: an earlier report moves to ``previous``, with the folders of all its scenes.

    Raises:
        SplatfixError: ``cannot-write``; ``not-our-folder`` (exit code 2) where a scene's folder exists and holds
            something else than an earlier report: it may be the user's data.
    """
    make_folder(out)
    for scene in scenes:
        folder = out / scene
        ours = folder.is_dir() and ((folder / TRAINING_LOG).is_file() or not any(folder.iterdir()))
        if os.path.lexists(folder) and not ours:
            raise SplatfixError.of("certify.not-our-folder", folder=folder)
    earlier: list[str] = []
    if (out / "certificate.json").is_file():  # of whichever suite it was
        earlier = sorted(log.parent.name for log in out.glob(f"*/{TRAINING_LOG}"))
    files = [path.name for path in out.iterdir() if path.name.startswith(_OURS)]
    set_aside(out, (*files, *dict.fromkeys((*scenes, *earlier))))
