import pytest

from splatfix.context.submodules import how_to_fetch, public_address
from splatfix.core.step import commands
from splatfix.model import Submodule
from tests.tables import data

ONE, TWO = "1" * 40, "2" * 40


@pytest.mark.parametrize(("url", "remote", "address"), data(__file__)["addresses"])
def test_addresses(url: str, remote: str, address: str) -> None:
    assert public_address(url, remote) == address


def fetched_by(*items: Submodule, clone: bool = True, **more: object) -> list[str]:
    return [
        " ".join(command.argv)
        for command in commands(how_to_fetch("/gs", items, clone=clone, **more))  # type: ignore[arg-type]
    ]


KNN = Submodule("submodules/knn", "https://x.org/a/knn", True, recorded=ONE)
UPDATE = "git -C /gs submodule update --init --recursive"


def test_git_fetches_what_it_has_links_for() -> None:
    lost = Submodule("lost", "", True, recorded=TWO)
    unlinked = Submodule("glm", "git@github.com:g/glm.git", True)
    assert fetched_by(KNN) == [UPDATE]
    assert fetched_by(KNN, lost) == [f"{UPDATE} -- submodules/knn"]
    assert fetched_by(KNN, unlinked) == [
        f"{UPDATE} -- submodules/knn",
        "git clone --recursive https://github.com/g/glm.git /gs/glm",
    ]
    inside = Submodule("dgr/glm", "https://x.org/glm", True, listed=False, recorded=TWO)
    place = "/gs/dgr/glm"
    assert fetched_by(inside) == [
        f"git clone --recursive https://x.org/glm {place}",
        f"git -C {place} checkout --recurse-submodules {TWO}",
    ]
    assert fetched_by(lost) == [] and "lost" in how_to_fetch("/gs", [lost], clone=True)[0].text


def test_without_git_each_is_cloned_at_its_commit() -> None:
    knn = Submodule("submodules/knn", "../knn", True)
    clone = "git clone --recursive https://x.org/a/knn /gs/submodules/knn"
    remote = "https://x.org/a/gs"
    assert fetched_by(knn, clone=False, remote=remote) == [clone]
    assert fetched_by(knn, clone=False, remote=remote, commits={"submodules/knn": "44f76"}) == [
        clone,
        "git -C /gs/submodules/knn checkout --recurse-submodules 44f76",
    ]
    assert fetched_by(knn, clone=False) == []
    branched = Submodule("a", "https://x.org/a", True, branch="dr_aa")
    assert fetched_by(branched, clone=False) == ["git clone --recursive --branch dr_aa https://x.org/a /gs/a"]
    assert (
        fetched_by(branched, clone=False, commits={"a": "9c5c2"})[0]
        == "git clone --recursive https://x.org/a /gs/a"
    )


def test_no_key_is_needed() -> None:
    port = Submodule("a", "ssh://git@git.example:2222/a/b.git", True, recorded=ONE)
    short = Submodule("b", "git@github.com:a/b.git", True, recorded=ONE)
    (line,) = fetched_by(port, short)
    assert "-c url.https://git.example/.insteadOf=ssh://git@git.example:2222/ " in line
    assert "-c url.https://github.com/.insteadOf=git@github.com: " in line
