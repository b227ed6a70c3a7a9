"""Small wheels with GPU code, a face and torch's symbols, made byte by byte; indexes of them; a web server with faults."""

from __future__ import annotations

import hashlib
import re
import threading
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from msgspec.structs import replace

from splatfix.context import Context, make_context
from splatfix.knowledge.wheel_indexes import WheelIndex
from splatfix.model import Fact, Torch
from splatfix.wheels.listing import chosen_indexes
from splatfix.wheels.model import Search, Wanted
from splatfix.wheels.search import Finder
from splatfix.wheels.web import Web
from tests.archs import goal
from tests.binaries.forge_elf import ElfForge
from tests.binaries.forge_fatbin import PTX, SASS, entry, fatbin_of
from tests.binaries.forge_pe import PeForge
from tests.files import put
from tests.plan.machines import INTERPRETER, changed, machine, rasterizer_source

SYMBOL = "_ZN3c105ErrorC2ENS_14SourceLocationE"
WINDOWS_SYMBOL = "?lazy@c10@@YAXXZ"


def library(
    code: str,
    symbols: Iterable[str] = (SYMBOL,),
    padding: int = 0,
    needed: Iterable[str] = (),
    *,
    windows: bool = False,
) -> bytes:
    """A library with a fatbin: ``90 120`` machine code, ``90+PTX`` PTX; "" none; with several, ``90/120``."""

    def made(word: str) -> bytes:
        kind, version = (PTX, (8, 7)) if word.endswith("+PTX") else (SASS, (1, 8))
        return entry(kind, int(word.removesuffix("+PTX")), version=version)

    boxes = b""
    for box in code.split("/"):
        boxes += fatbin_of(*map(made, box.split()))
    sections = [(".nv_fatb" if windows else ".nv_fatbin", boxes)] if code.split() else []
    if windows:
        return PeForge(sections=tuple(sections), imports=(("c10.dll", tuple(symbols)),)).build()
    if padding:
        sections.append((".rodata", bytes(range(256)) * (padding // 256)))
    return ElfForge(sections=tuple(sections), needed=("libc10.so", *needed), imports=tuple(symbols)).build()


def write_wheel(
    folder: Path,
    wheel: str,
    code: str = "120",
    *,
    variant: str = "",
    symbols: Iterable[str] = (SYMBOL,),
    requires: Iterable[str] = (),
    padding: int = 0,
    suffix: str = "cpython-311-x86_64-linux-gnu.so",
    method: int = zipfile.ZIP_STORED,
    name: str = "",
    version: str = "",
    needed: Iterable[str] = (),
    returned: str = "",
    compiled: bytes = b"",
    more: Mapping[str, bytes] | None = None,
) -> Path:
    """A wheel of that file name.

    Args:
        compiled: its library; without one it is forged, with this code.
        more: other members.
        variant: its Python source is that of the variant of this key.
        returned: the statement in the place of that by which its rasterizer returns.
    """
    folder.mkdir(parents=True, exist_ok=True)
    distribution, stated = wheel.split("-")[:2]
    module = distribution.lower().replace(".", "_")
    info = f"{distribution}-{stated}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name or distribution}\nVersion: {version or stated}\n"
    members: dict[str, bytes | str] = {f"{module}/__init__.py": "from . import _C\n"}
    if variant:
        source = rasterizer_source(folder / f".{variant}", variant)
        text = (source / module / "__init__.py").read_text()
        members[f"{module}/__init__.py"] = re.sub(r"return .*", returned or r"\g<0>", text)
    if code != "none":
        windows = suffix.endswith(".pyd")
        members[f"{module}/_C.{suffix}"] = compiled or library(
            code, symbols, padding, needed, windows=windows
        )
    members.update(more or {})
    members[f"{info}/METADATA"] = metadata + "".join(f"Requires-Dist: {text}\n" for text in requires)
    tag = wheel[:-4].split("-", 2)[2]
    members[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n"
    members[f"{info}/RECORD"] = "".join(f"{member},,\n" for member in (*members, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / wheel, "w", method) as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return folder / wheel


def write_page(
    path: Path, links: Mapping[str, str], *, digests: str = "", yanked: Iterable[str] = ()
) -> None:
    """A page of links: text -> address relative to the page; with digests by this algorithm."""
    rows = []
    for text, address in links.items():
        target, fragment = (path.parent / address).resolve(), ""
        if digests and target.is_file():
            fragment = f"#{digests}={hashlib.new(digests, target.read_bytes()).hexdigest()}"
        attribute = ' data-yanked=""' if text in yanked else ""
        rows.append(f'<a href="{quote(address)}{fragment}"{attribute}>{text}</a><br>')
    put(path.parent, {path.name: "<!DOCTYPE html><html><body>" + "\n".join(rows) + "</body></html>"})


def torch_in(folder: Path, version: str = "2.8.0+cu128", symbols: Iterable[str] = (SYMBOL,)) -> Torch:
    """A torch whose libc10 exports these symbols."""
    elf = ElfForge(exports=tuple(symbols), soname="libc10.so").build()
    put(folder / "lib", {"libc10.so": elf, "c10.dll": PeForge(exports=(WINDOWS_SYMBOL,)).build()})
    digits = version.rpartition("+cu")[2]
    return Torch(version=version, cuda=f"{digits[:-1]}.{digits[-1]}", hip=None, folder=str(folder))


def context_of(
    torch: Torch,
    *targets: str,
    python: str = "3.11",
    platform: str = "linux-x86_64",
    libc: str = "glibc 2.36",
) -> Context:
    """A machine with this torch and Python."""
    plain = python.rstrip("t")
    number, place = plain.replace(".", ""), platform.replace("linux-x86_64", "x86_64-linux-gnu")
    abi = f"cpython-{number}{python[len(plain) :]}-{place}"
    if platform == "win-amd64":
        abi = f"cp{number}-win_amd64"
    interpreter = replace(INTERPRETER, version=f"{plain}.4", abi_tag=abi, platform_tag=platform)
    kind, _, version = libc.partition(" ")
    system = "windows" if platform.startswith("win") else "linux"
    glibc = version if kind == "glibc" and system == "linux" else None
    facts = machine(torch=torch, interpreter=interpreter)
    facts = changed(facts, libc=Fact(libc, "test"), glibc=glibc, system=system)
    return make_context(facts, goal(*(targets or ("sm_120",))))


def search(wanted: Wanted, index: str | WheelIndex, context: Context, web: Web | None = None) -> Search:
    """The answer of one index."""
    indexes = (index,) if isinstance(index, WheelIndex) else chosen_indexes((index,))
    assert context.interpreter and context.torch
    web = web or Web([item.address for item in indexes], timeout=5)
    return Finder(wanted, context, context.torch, web).find(indexes)


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; ``server.fault`` makes it misbehave."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def version_string(self) -> str:
        server: Any = self.server
        return str(server.software)

    def do_GET(self) -> None:
        server: Any = self.server
        parts = urlsplit(self.path)
        path = Path(self.translate_path(parts.path))
        if path.is_dir():
            path = path / "index.html"
        if not path.is_file():
            self.send_error(server.absent)
            return
        data, fault = path.read_bytes(), ""
        if path.suffix == ".whl" or server.everything:
            fault = server.fault
        server.requests.append(parts.path)
        if server.login and self.headers.get("Authorization") != server.login:
            self.send_error(401)
        elif fault == "status":
            self.send_error(503)
        elif fault in ("elsewhere", "here"):
            self.send_response(302)
            self.send_header("Location", "https://127.0.0.1:1/x.whl" if fault == "here" else server.place)
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.send_response(200)
            self._send(data, len(data) + 100 * (fault == "cut-off"), fault)

    def _send(self, data: bytes, length: int, fault: str) -> None:
        self.send_header("Content-Length", str(length))
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        if fault == "slow":
            for byte in data:
                self.wfile.write(bytes([byte]))
                time.sleep(0.01)
        elif fault == "silent":
            time.sleep(3)
        else:
            self.wfile.write(data)
        if fault in ("cut-off", "silent"):
            self.close_connection = True


class Server(ThreadingHTTPServer):
    """A web server on this machine."""

    daemon_threads = True
    fault = ""
    requests: list[str]
    """The path of each."""
    login = ""
    """The header without which it answers nothing."""
    place = "http://wheels.example/x.whl"
    """Where it leads to with the fault ``elsewhere``."""
    absent = 404
    """What it answers for what is not there."""
    software = "Python"
    everything = False
    """Pages misbehave too, not only wheels."""

    def handle_error(self, *_: object) -> None:
        """A client that has given up is no news."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Serve a folder for the duration of a ``with`` block."""
    with Server(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        server.requests = []
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
