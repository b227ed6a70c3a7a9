"""What pip in an image is told: requirements, pins, and this machine's own pip settings."""

import ast
import importlib.metadata
import importlib.util
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from msgspec import Struct
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from splatfix.core.errors import SplatfixError
from splatfix.core.files import read_named
from splatfix.core.redact import HIDDEN
from splatfix.core.resources import bundled
from splatfix.core.runner import Runner
from splatfix.knowledge.lanes import Lane

_SETTINGS = {
    name: f"PIP_{name.replace('-', '_').upper()}"
    for name in ("index-url", "extra-index-url", "find-links", "trusted-host")
}
"""Of pip, and the variables that win over its files (https://pip.pypa.io/en/stable/topics/configuration/)."""
_AUTHORITIES = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
_ROW = re.compile(r"(?P<section>\S+)\.(?P<name>[a-z-]+)=(?P<value>'.*'|\".*\")")


class PipSettings(Struct, frozen=True):
    """Where pip finds packages on this machine, as far as an image build can use it."""

    build_args: Mapping[str, str] = {}
    """PIP_INDEX_URL and the like, without what lies on this machine's disk."""
    folders: tuple[Path, ...] = ()
    """Local folders of ``--find-links``."""
    certificates: bytes = b""
    """PEM: the authorities that pip on this machine trusts where it does not bring its own, those of a closed site."""


def pip_settings(runner: Runner) -> PipSettings:
    """Return this machine's settings of pip: files as pip itself reads them, by the pip of splatfix's environment (pipx shares
    one), else one on PATH; and variables. An address with a password counts only where a variable has it.

    Raises:
        SplatfixError: ``cannot-read`` (exit code 2) for certificates.
    """
    pip = [sys.executable, "-m", "pip"]
    if importlib.util.find_spec("pip") is None:
        pip = ["pip3"]
    listed = runner.run([*pip, "config", "list"], timeout=60).stdout
    values: dict[str, str] = {}
    for section in ("global", "install"):
        for row in map(_ROW.fullmatch, listed.splitlines()):
            if row and row["section"] == section:
                values[row["name"]] = str(ast.literal_eval(row["value"]))
    # what pip says comes without passwords; in a variable they are at hand
    values |= {name: os.environ[variable] for name, variable in _SETTINGS.items() if os.environ.get(variable)}
    arguments: dict[str, str] = {}
    folders = []
    for name, variable in _SETTINGS.items():
        addresses = []
        for item in values.get(name, "").split():
            url = item.startswith("file:")
            if HIDDEN in item:
                continue
            if name == "trusted-host" or ("://" in item and not url):
                addresses.append(item)
            elif name == "find-links":
                folders.append(Path(url2pathname(urlsplit(item).path) if url else item))
        if addresses:
            arguments[variable] = " ".join(addresses)
    certificates = b""
    for file in (os.environ.get("PIP_CERT") or values.get("cert"), *map(os.environ.get, _AUTHORITIES)):
        if file and Path(file).is_file():
            certificates = read_named(Path(file))
            break
    return PipSettings(arguments, tuple(filter(Path.is_dir, folders)), certificates)


def wheels_of_torch(lane: Lane, settings: PipSettings) -> tuple[Path, ...]:
    """Return the wheels of the lane's torch in this machine's own folders: they travel with the build."""
    version, interpreter = lane.torch.partition("==")[2], lane.python.replace(".", "")
    # 2.11.0 is 2.11.0+cu130 too
    pattern = f"torch-{version}*-cp{interpreter}-*linux*.whl"
    wheels = {path.name: path for folder in settings.folders for path in sorted(folder.glob(pattern))}
    return tuple(wheels.values())


def requirements(lane: Lane) -> str:
    """Return what ``pip install --requirement`` reads: what splatfix and its certification need, and the lane's own.

    Raises:
        SplatfixError: ``own-metadata-missing`` where splatfix was copied instead of installed.
    """
    try:
        own = importlib.metadata.requires("splatfix") or []
    except importlib.metadata.PackageNotFoundError as error:
        raise SplatfixError.of("containers.own-metadata-missing") from error
    needed = [line.partition(";")[0] for line in own if not re.search("extra == .(?!certify)", line)]
    return "\n".join((*needed, *lane.requirements, ""))


def constraints(lane: Lane) -> str:
    """Return the pins that splatfix is tested with, without what the lane pins itself."""
    own = {canonicalize_name(Requirement(line).name) for line in (lane.torch, *lane.requirements)}
    lines = bundled("constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line.strip() and not line.startswith("#")]
    return "".join(f"{line}\n" for line in pins if canonicalize_name(Requirement(line).name) not in own)
