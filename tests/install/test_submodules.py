"""Submodules fetched by real git, from repositories in a folder that stands for a server."""

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from splatfix.core.errors import SplatfixError
from splatfix.core.runner import Completed
from splatfix.facts.checkout import is_empty
from splatfix.install.outcome import FetchedSubmodule
from splatfix.install.submodules import _target_folder, fetch_submodules
from tests.files import contents, put
from tests.plan.machines import refused

from .environments import Interposed, Run

SERVER = "https://git.example/"
ALL = ("https", "ssh", "file")
KNN = "submodules/simple-knn"


def git(folder: Path, *words: str) -> str:
    argv = ["git", "-c", "protocol.file.allow=always", "-C", str(folder), *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder: Path, files: dict[str, str], links: dict[str, tuple[str, str]]) -> str:
    """A repository with files and, by path, links: address and commit. Returns its commit."""
    listed = [f'[submodule "{at}"]\n\tpath = {at}\n\turl = {url}\n' for at, (url, _) in links.items()]
    git(put(folder, {**files, ".gitmodules": "".join(listed)}), "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    for path, (_, commit) in links.items():
        git(folder, "update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")
    git(folder, "commit", "-q", "-m", "one")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where ``https://git.example/`` leads, by the person's own configuration of git."""
    folder = tmp_path / "server"
    config = tmp_path / "gitconfig"
    config.write_text(
        f'[user]\n\tname = t\n\temail = t@example.org\n[url "file://{folder}/"]\n\tinsteadOf = {SERVER}\n'
        "[uploadpack]\n\tallowAnySHA1InWant = true\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    folder.mkdir()
    return folder


@pytest.fixture
def stack(server: Path, tmp_path: Path) -> Path:
    """A plain clone, whose extension has a submodule of its own, at an address of another kind each."""
    glm = repository(server / "glm", {"glm/glm.hpp": "//"}, {})
    knn = repository(server / "knn", {"setup.py": "x", "ext.cu": "x"}, {"third_party/glm": ("../glm", glm)})
    (server / "knn/later").write_text("x")
    git(server / "knn", "add", "later")
    git(server / "knn", "commit", "-q", "-m", "two")
    links = {KNN: ("git@git.example:knn", knn), "SIBR_viewers": (f"{SERVER}gone", "5" * 40)}
    repository(server / "stack", {"train.py": "import simple_knn"}, links)
    git(tmp_path, "clone", "-q", str(server / "stack"), "stack")
    return tmp_path / "stack"


def test_a_clone_gets_what_it_needs_and_theirs(stack: Path, server: Path) -> None:
    before = contents(stack / ".git")
    told: list[str] = []
    knn, glm = fetch_submodules(stack, tell=told.append, protocols=ALL)
    wanted = git(server / "knn", "rev-parse", "HEAD~1")
    assert knn == FetchedSubmodule(KNN, f"{SERVER}knn", wanted)
    assert (glm.path, glm.asked) == (f"{KNN}/third_party/glm", True)
    assert not (stack / KNN / "later").exists(), "the commit that is recorded, not the newest"
    assert (stack / KNN / "third_party/glm/glm/glm.hpp").is_file()
    assert is_empty(stack / "SIBR_viewers"), "nothing needs it, and its address is dead"
    assert contents(stack / ".git") == before and told[0] == KNN
    assert sorted(path.name for path in stack.iterdir()) == [
        *(".git", ".gitmodules", "SIBR_viewers", "submodules", "train.py")
    ]
    assert git(stack, "status", "--porcelain") == "" and fetch_submodules(stack, protocols=ALL) == ()
    git(stack, "submodule", "update", "--init", "--recursive", KNN)  # git itself goes on with it


def test_an_archive_gets_the_newest(stack: Path, server: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    git(stack, "archive", "--output", str(tmp_path / "a.tar"), "HEAD")
    subprocess.run(["tar", "-xf", str(tmp_path / "a.tar"), "-C", str(archive)], check=True)
    found = fetch_submodules(archive, protocols=ALL)
    assert [(item.path, item.asked) for item in found] == [(KNN, False), (f"{KNN}/third_party/glm", True)]
    assert (archive / KNN / "later").exists()


def test_it_is_all_or_nothing(stack: Path, server: Path) -> None:
    (server / "glm").rename(server / "elsewhere")
    before = contents(stack)
    error = refused(fetch_submodules, stack, protocols=ALL)
    assert error.code == "submodules-not-fetched" and "third_party/glm" in error.what
    assert contents(stack) == before and is_empty(stack / KNN)
    assert not list(stack.glob(".splatfix*"))


@pytest.mark.parametrize(
    ("word", "ends"), [("init", SplatfixError), ("remote", SplatfixError), ("checkout", KeyboardInterrupt)]
)
def test_failures_leave_what_was_there(stack: Path, word: str, ends: type[BaseException]) -> None:
    """The checkout's own git too, which git would take where it has no repository of its own."""

    def fails(argv: list[str], env: Mapping[str, str], run: Run) -> Completed:
        if word not in argv:
            return run()
        if ends is KeyboardInterrupt:
            run()
            raise KeyboardInterrupt
        return Completed(tuple(argv), 128, "fatal: no room\n", "", 0.0)

    git(stack, "checkout", "-q", "-b", "mine")
    before = contents(stack)
    with pytest.raises(ends, match=None if ends is KeyboardInterrupt else "no room") as caught:
        fetch_submodules(stack, runner=Interposed(fails), protocols=ALL)
    assert getattr(caught.value, "code", "") in ("", "submodules-not-fetched")
    assert contents(stack) == before and not list(stack.glob(".splatfix*"))


def test_a_failed_move_undoes_the_others(stack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (stack / ".gitmodules").open("a") as file:
        file.write(f'[submodule "z"]\npath = submodules/z\nurl = {SERVER}glm\n')
    real: Callable[..., Path] = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if target.name == "z":
            raise OSError(5, "Input/output error", str(target))
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    before = contents(stack)
    assert "Input/output error" in refused(fetch_submodules, stack, protocols=ALL).what
    assert contents(stack) == before and is_empty(stack / KNN)


@pytest.mark.parametrize(
    "url", ["/etc", "file:///etc", "ext::sh -c true", "--upload-pack=true", "", "https://me:***@x.org/a"]
)
def test_only_https_and_ssh(tmp_path: Path, url: str) -> None:
    (tmp_path / ".gitmodules").write_text(f'[submodule "a"]\n\tpath = submodules/a\n\turl = {url}\n')
    assert refused(fetch_submodules, tmp_path).code == "submodules-not-fetched"


@pytest.mark.parametrize("path", ["../out", "/out", "a/../../out", ".git/hooks", "link/in", ""])
def test_no_place_outside_the_checkout(tmp_path: Path, path: str) -> None:
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout/link").symlink_to(tmp_path)
    assert "no folder inside the checkout" in refused(_target_folder, tmp_path / "checkout", path).what


def test_no_hooks_no_prompts(stack: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hook = (
        put(tmp_path, {"hooks/post-checkout": f"#!/bin/sh\ntouch {tmp_path}/ran\n"}) / "hooks/post-checkout"
    )
    hook.chmod(0o755)
    git(stack, "config", "--global", "core.hooksPath", str(hook.parent))
    seen: list[Mapping[str, str]] = []

    def watched(argv: list[str], env: Mapping[str, str], run: Run) -> Completed:
        seen.append(env)
        return run()

    monkeypatch.setenv("GIT_DIR", str(stack / ".git"))
    fetch_submodules(stack, runner=Interposed(watched), protocols=ALL)
    assert seen and not (tmp_path / "ran").exists()
    for variables in seen:
        assert variables["GIT_TERMINAL_PROMPT"] == "0" and "GIT_DIR" not in variables
        assert variables["GIT_SSH_COMMAND"].endswith("-oBatchMode=yes")


def test_without_git_or_its_leave(stack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """git is told to speak nothing but HTTPS and SSH."""
    assert "transport 'file' not allowed" in refused(fetch_submodules, stack).what
    monkeypatch.setenv("PATH", "")
    assert refused(fetch_submodules, stack).code == "no-git"
