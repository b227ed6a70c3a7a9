"""Writes edited files of a project: backed up, journaled in the project itself, undone by ``splatfix revert --project``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.files import write_text
from splatfix.install.backup import backup_files
from splatfix.install.edit import digest_of, write_edits
from splatfix.install.environment import environment_lock, project_environment
from splatfix.install.journal import Entry, EntryStatus, Journal, StepRecord
from splatfix.install.journal_paths import JournalPaths
from splatfix.install.undo import recover, undo_changes

_FOLDER = "edits-project"


def write_project(folder: Path, contents: Mapping[str, bytes], before: Mapping[str, bytes]) -> Entry:
    """Write files of a project, all of them or none.

    Args:
        contents: by name.
        before: what each of them held when it was judged.

    Raises:
        SplatfixError: ``changed-since``, ``cannot-write``, ``cannot-back-up``, ``environment-busy``, ``cannot-write-source``.
    """
    folder = folder.resolve()
    environment = project_environment(folder)
    journal = Journal(environment.state_folder)
    paths = {folder / name: content for name, content in contents.items()}
    for path in paths:
        if path.is_symlink():
            raise SplatfixError.of("install.project-file-link", path=path)
    with environment_lock(environment.state_folder):
        recover(environment, journal)
        write_text(environment.state_folder / ".gitignore", "*\n")
        for path in paths:
            if path.read_bytes() != before[path.name]:
                raise SplatfixError.of("install.project-changed", path=path)
        entry = journal.start({"project": str(folder)}, "", "project")
        backup_files(
            "project", paths, journal.folder_of(entry) / _FOLDER, JournalPaths.of(environment, str(folder))
        )
        record = StepRecord("edit-source", "project", backup=_FOLDER, source=str(folder))
        entry = journal.begin(entry, record)
        try:
            write_edits(paths)
        except BaseException:
            undo_changes(environment, journal, entry)
            journal.end(entry, EntryStatus.ROLLED_BACK)
            raise
        return journal.end(journal.finish(entry, record, digest=digest_of(paths)), EntryStatus.DONE)
