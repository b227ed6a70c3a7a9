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
from packaging.utils import canonicalize_name, parse_wheel_filename

from splatfix.containers.lanes import Lane
from splatfix.core.errors import SplatfixError
from splatfix.core.isolation import find_program
from splatfix.core.redact import HIDDEN
from splatfix.core.resources import bundled
from splatfix.core.runner import Runner

_SETTINGS = {
    name: f"PIP_{name.replace('-', '_').upper()}"
    for name in ("index-url", "extra-index-url", "find-links", "trusted-host", "cert")
}
_SECTIONS = ("global", "install")
"""Of ``pip config list``; later ones win, then variables (https://pip.pypa.io/en/stable/topics/configuration/)."""
_ROW = re.compile(r"(?P<section>\S+)\.(?P<name>[a-z-]+)=(?P<value>'.*'|\".*\")")


class PipSettings(Struct, frozen=True):
    """Where pip finds packages on this machine, as far as an image build can use it."""

    build_args: Mapping[str, str]
    """PIP_INDEX_URL and the like, without what lies on this machine's disk."""
    folders: tuple[Path, ...]
    """Local folders of ``--find-links``."""
    certificates: Path | None


def pip_settings(runner: Runner) -> PipSettings:
    """This machine's settings of pip: files as pip itself reads them, and variables. An address with a password counts only
    where a variable has it."""
    values = _configured(runner)
    # what pip says comes without passwords; in a variable they are at hand
    for name, variable in _SETTINGS.items():
        values[name] = os.environ.get(variable) or values.get(name, "")
        if HIDDEN in values[name]:
            del values[name]
    certificates = values.pop("cert", "")
    arguments: dict[str, str] = {}
    folders = []
    for name, value in values.items():
        addresses = []
        for item in value.split():
            url = item.startswith("file:")
            if name == "trusted-host" or ("://" in item and not url):
                addresses.append(item)
            elif name == "find-links":
                folders.append(Path(url2pathname(urlsplit(item).path) if url else item))
        if addresses:
            arguments[_SETTINGS[name]] = " ".join(addresses)
    return PipSettings(
        arguments, tuple(filter(Path.is_dir, folders)), Path(certificates) if certificates else None
    )


def _configured(runner: Runner) -> dict[str, str]:
    """Our settings in pip's files, by name; by the pip of splatfix's environment (pipx shares one), else one on PATH."""
    pip = [sys.executable, "-m", "pip"]
    if importlib.util.find_spec("pip") is None:
        program = find_program("pip3") or find_program("pip")
        if program is None:
            return {}
        pip = [program]
    done = runner.run([*pip, "config", "list"], timeout=60)
    rows = [row for row in map(_ROW.fullmatch, done.stdout.splitlines()) if row and row["name"] in _SETTINGS]
    values: dict[str, str] = {}
    for section in _SECTIONS:
        for row in rows:
            if row["section"] == section:
                values[row["name"]] = str(ast.literal_eval(row["value"]))
    return values


def wheels_of_torch(lane: Lane, settings: PipSettings) -> tuple[Path, ...]:
    """The wheels of the lane's torch in this machine's own folders: they travel with the build."""
    torch, interpreter = Requirement(lane.torch), "cp" + lane.python.replace(".", "")
    wheels = {}
    for path in sorted(path for folder in settings.folders for path in folder.glob("torch-*.whl")):
        try:
            name, version, _, tags = parse_wheel_filename(path.name)
        except ValueError:
            continue
        fits = any(tag.interpreter == interpreter and "linux" in tag.platform for tag in tags)
        if name == torch.name and torch.specifier.contains(version) and fits:
            wheels[path.name] = path
    return tuple(wheels.values())


def requirements(lane: Lane) -> str:
    """For ``pip install --requirement``: splatfix with what certifies, which the image has metadata of, and the lane's own."""
    return "".join(f"{line}\n" for line in ("splatfix[certify]", *lane.requirements))


def constraints(lane: Lane) -> str:
    """The pins that splatfix is tested with, without what the lane pins itself."""
    own = {canonicalize_name(Requirement(line).name) for line in (lane.torch, *lane.requirements)}
    try:
        lines = bundled("constraints.txt").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return ""
    pins = [line for line in lines if line.strip() and not line.startswith("#")]
    return "".join(f"{line}\n" for line in pins if canonicalize_name(Requirement(line).name) not in own)


def own_metadata() -> dict[str, bytes]:
    """splatfix's metadata as in site-packages: from it pip knows what splatfix requires, and takes it for installed. Without its
    README: an edit of that is none of the packages.

    Raises:
        SplatfixError: ``own-metadata-missing`` where splatfix was copied instead of installed.
    """
    try:
        installed = importlib.metadata.distribution("splatfix")
        text = installed.read_text("METADATA") or ""
    except importlib.metadata.PackageNotFoundError:
        text = ""
    if not text:
        raise SplatfixError.of("containers.own-metadata-missing")
    folder = f"splatfix-{installed.version}.dist-info"
    return {
        f"{folder}/METADATA": text.partition("\n\n")[0].encode() + b"\n",
        f"{folder}/INSTALLER": b"splatfix\n",
        f"{folder}/RECORD": b"",
    }


def certificate_file(settings: PipSettings) -> Path | None:
    """The certificate authorities that pip on this machine trusts, where it does not bring its own: those of a closed site."""
    for item in (
        settings.certificates,
        os.environ.get("REQUESTS_CA_BUNDLE"),
        os.environ.get("SSL_CERT_FILE"),
    ):
        if item and Path(item).is_file():
            return Path(item)
    return None
