"""Where a source folder comes from, in words: the repository and commit that git's files name, else the folder itself."""

from __future__ import annotations

from pathlib import Path

from splatfix.facts import commit_of, git_folder, remote_of


def origin_of(folder: Path) -> str:
    """``graphdeco-inria/diff-gaussian-rasterization at 9c5c2028f6`` for a clone or submodule, with the way inside it."""
    for root in (folder, *folder.parents):
        if git := git_folder(root):
            break
    else:
        return str(folder)
    address = remote_of(git).removesuffix(".git").replace(":", "/").rstrip("/")
    repository = "/".join(address.split("/")[-2:]) if "/" in address else str(root)
    inside = folder.relative_to(root).as_posix()
    commit = commit_of(git)
    return f"{repository}{'' if inside == '.' else f'/{inside}'}{f' at {commit[:10]}' if commit else ''}"
