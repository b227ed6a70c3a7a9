"""Servers as they are, and as they should not be: what is fetched, what is believed, what is said."""

from __future__ import annotations

import socket
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from splatfix.core.errors import Exit
from splatfix.wheels import web as web_module
from splatfix.wheels.listing import chosen_indexes, links_of
from splatfix.wheels.model import Link, Search
from splatfix.wheels.names import parse_name
from splatfix.wheels.search import wanted_by_name
from splatfix.wheels.web import Web, WebError, refused_address
from tests.files import put
from tests.plan.machines import refused
from tests.tables import data

from .forge import Server, context_of, search, serving, torch_in, write_wheel

TABLES = data(__file__)
WHEEL = "fused_ssim-1.0.0+cu128torch2.8-cp311-cp311-linux_x86_64.whl"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path / "served") as running:
        yield running


def asked(server: Server, folder: Path) -> Search:
    """The answer of its page."""
    context = context_of(torch_in(folder / "torch"))
    web = Web([server.address], timeout=1, deadline=1)
    return search(wanted_by_name("fused_ssim"), server.address + "/", context, web)


@pytest.mark.parametrize("everything", [False, True], ids=["the wheel", "the page too"])
@pytest.mark.parametrize(("fault", "reason"), TABLES["faults"])
def test_a_server_that_misbehaves_proves_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, reason: str, everything: bool
) -> None:
    monkeypatch.setattr(web_module, "_DOWNLOAD_TIMEOUT", 1.0)
    write_wheel(tmp_path / "served", WHEEL, padding=1 << 20)
    put(tmp_path / "served", {"index.html": f"<a href={WHEEL}>x</a>" + " " * 2000})
    server.fault, server.everything = fault, everything
    answer = asked(server, tmp_path)
    assert answer.exit_code is Exit.UNDETERMINED
    (why,) = [*answer.rejected, *answer.unanswered]
    assert reason in why.why and why.what == (server.address + "/" if everything else WHEEL)


@pytest.mark.parametrize(
    ("absent", "software", "answered"),
    [(404, "nginx", True), (403, "AmazonS3", True), (403, "nginx", False)],  # S3 forbids what is not there
)
def test_a_missing_page(server: Server, tmp_path: Path, absent: int, software: str, answered: bool) -> None:
    server.absent, server.software = absent, software
    answer = asked(server, tmp_path)
    assert (answer.unanswered == ()) is answered
    assert answer.exit_code is (Exit.FAILURE if answered else Exit.UNDETERMINED)


def test_nobody_there(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        pass
    answer = asked(server, tmp_path)
    assert answer.exit_code is Exit.UNDETERMINED and "refused" in answer.unanswered[0].why.lower()


def test_a_search_has_one_deadline() -> None:
    with pytest.raises(WebError, match="the search took longer than 0 s"):
        Web(search=0).page("https://wheels.example/")


def test_the_links_of_a_page() -> None:
    page = """<A class=x HREF='a&amp;b' data-yanked>.</a><!-- <a href=no> --><a href = "c>d"
        data-requires-python=">=3.8">.</a><script>"<a href=no>"</script><abbr href=no><a name=x><a href=e>"""
    links = [("https://x.org/a&b", True), ("https://x.org/c>d", False), ("https://x.org/e", False)]
    assert [(link.address, link.yanked) for link in links_of("https://x.org/", page)] == links
    with pytest.raises(WebError, match="its page cannot be read"):
        links_of("https://x.org/", f"<a href='&#{'9' * 5000};'>")


TAGS = ".".join(f"a{number}" for number in range(600))


@pytest.mark.parametrize(
    "rest", [f"1.0-{TAGS}-{TAGS}-{TAGS}", "9" * 5000 + "-py3-none-any", "1.0-1/../../x-py3-none-any", "1"]
)
def test_names_of_no_wheel(rest: str) -> None:
    assert parse_name(Link(f"fused_ssim-{rest}.whl", "", "", "")) is None


def test_a_login_stays_with_its_host(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a header, not on a redirect, and no name with it is looked up."""
    asked_for: list[object] = []
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **b: asked_for.append(a) or real(*a, **b))
    put(tmp_path / "served", {"private/index.html": "ours"})
    server.login = "Basic dTpzM2NyZXQ="
    named = server.address.replace("://", "://u:s3cret@")
    web = Web([named])
    assert web.page(f"{server.address}/private/")[1] == "ours"
    with pytest.raises(WebError, match="status 401: it asks for a login"):
        Web([server.address]).page(f"{server.address}/private/")
    with pytest.raises(WebError, match="holds a login"):
        web.page(named)
    with serving(tmp_path / "served") as other:
        other.fault, other.everything, other.place = "elsewhere", True, f"{server.address}/private/"
        with pytest.raises(WebError, match="status 401"):
            Web([other.address.replace("://", "://u:s3cret@"), server.address]).page(
                f"{other.address}/private/"
            )
    assert "s3cret" not in str(asked_for)
    assert "s3cret" not in refused(chosen_indexes, (f"{named.replace('s3', 's/3')}/x",)).what


def test_a_path_with_an_at_is_no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a@b").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert chosen_indexes(("~/a@b",))[0].address == str(tmp_path / "a@b")
    assert refused(chosen_indexes, ("/nowhere/a@b",)).code == "unknown-index"
    logins = ("me:s3cret@host/x", "~me:s3cret@host/x", "me@x.org:s/3cret@host/x", "s3cret@host/x")
    for login in (*logins, "https://s/3cret@host/x"):
        error = refused(chosen_indexes, (login,))
        assert error.code == "odd-login" and "cret" not in error.what


@pytest.mark.parametrize(("bound", "file"), [("MOST_PAGE", "index.html"), ("MOST_FETCHED", WHEEL)])
def test_what_is_too_large(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, file: str
) -> None:
    monkeypatch.setattr(web_module, bound, 1 << 20)
    put(tmp_path / "served", {"index.html": f"<a href={WHEEL}>x</a>", WHEEL: "", file: bytes(2 << 20)})
    answer = asked(server, tmp_path)
    assert [item.why for item in (*answer.rejected, *answer.unanswered)] == ["it has more than 1 MiB"]


@pytest.mark.parametrize(("address", "asked"), TABLES["addresses"])
def test_addresses_that_are_asked(address: str, asked: bool) -> None:
    assert (refused_address(address) == "") is asked


def test_a_page_cannot_lead_to_files_of_this_machine(server: Server, tmp_path: Path) -> None:
    strange = (f"file:///tmp/{WHEEL}", f"https://localhost:1/{WHEEL}", f"http://wheels.example/{WHEEL}")
    links = (*strange, "https://[x/", "javascript:0")
    put(tmp_path / "served", {"index.html": "".join(f'<a href="{link}">x</a>' for link in links)})
    answer = asked(server, tmp_path)
    rejections = [item.rejected for item in answer.candidates if item.rejected]
    assert [item.code for item in rejections] == ["unreachable", "bad-address", "bad-address"]
    assert "it leads to this machine" in rejections[0].what


@pytest.mark.parametrize(
    ("left_out", "reason"), [("METADATA", "0 METADATA"), ("__init__.py", "it has no package")]
)
def test_what_a_wheel_must_hold(tmp_path: Path, left_out: str, reason: str) -> None:
    name = "diff_gaussian_rasterization-0.0.0-cp311-cp311-linux_x86_64.whl"
    whole = write_wheel(tmp_path / "whole", name, variant="inria-v1")
    (tmp_path / "less").mkdir()
    with zipfile.ZipFile(whole) as archive, zipfile.ZipFile(tmp_path / "less" / name, "w") as less:
        for member in archive.namelist():
            if left_out not in member:
                less.writestr(member, archive.read(member))
    context = context_of(torch_in(tmp_path / "torch"))
    (rejected,) = search(wanted_by_name("inria-v1"), str(tmp_path / "less"), context).rejected
    assert reason in rejected.why
