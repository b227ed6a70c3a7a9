"""What pip in an image is told: requirements, pins, and this machine's own pip settings."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from splatfix.containers.lanes import Lane
from splatfix.core.errors import SplatfixError
from splatfix.core.isolation import find_program
from splatfix.core.redact import HIDDEN
from splatfix.core.resources import bundled
from splatfix.core.runner import Runner
from splatfix.core.step import say

_SETTINGS = {
    "index-url": "PIP_INDEX_URL",
    "extra-index-url": "PIP_EXTRA_INDEX_URL",
    "find-links": "PIP_FIND_LINKS",
    "trusted-host": "PIP_TRUSTED_HOST",
    "cert": "PIP_CERT",
}
_SECTIONS = ("global", "install")
"""Of ``pip config list``; later ones win, then variables (https://pip.pypa.io/en/stable/topics/configuration/)."""


@dataclass(frozen=True)
class PipSettings:
    """Where pip finds packages on this machine, as far as an image build can use it."""

    build_args: Mapping[str, str]
    """PIP_INDEX_URL and the like, without what lies on this machine's disk."""
    folders: tuple[Path, ...]
    """Local folders of ``--find-links``."""
    certificates: Path | None


def pip_settings(runner: Runner) -> PipSettings:
    """This machine's settings of pip: files as pip itself reads them, and variables. An address with a password counts only
    where a variable has it."""
    done = runner.run([*_pip(), "config", "list"], timeout=60) if _pip() else None
    values: dict[str, str] = {}
    rows = [
        re.fullmatch(r"(\S+)\.([a-z-]+)=('.*'|\".*\")", line)
        for line in (done.stdout if done else "").splitlines()
    ]
    for section in _SECTIONS:
        for row in rows:
            if row and row[1] == section and row[2] in _SETTINGS:
                values[row[2]] = str(ast.literal_eval(row[3]))
    # what pip says comes without passwords; in a variable they are at hand
    values |= {name: os.environ[variable] for name, variable in _SETTINGS.items() if os.environ.get(variable)}
    values = {name: value for name, value in values.items() if HIDDEN not in value}
    certificates = values.pop("cert", "")
    words = {_SETTINGS[name]: value.split() for name, value in values.items()}
    links = [
        url2pathname(urlsplit(word).path) if word.startswith("file:") else word
        for word in words.get("PIP_FIND_LINKS", ())
    ]
    args = {
        name: " ".join(word for word in found if "://" in word and not word.startswith("file:"))
        for name, found in words.items()
    }
    args["PIP_TRUSTED_HOST"] = " ".join(words.get("PIP_TRUSTED_HOST", ()))
    return PipSettings(
        {name: value for name, value in args.items() if value},
        tuple(folder for folder in map(Path, links) if folder.is_dir()),
        Path(certificates) if certificates else None,
    )


def wheels_of_torch(lane: Lane, settings: PipSettings) -> tuple[Path, ...]:
    """The wheels of the lane's torch in this machine's own folders: they travel with the build."""
    asked, short = Requirement(lane.torch), "cp" + lane.python.replace(".", "")
    found = {}
    for path in sorted(path for folder in settings.folders for path in folder.glob("torch-*.whl")):
        try:
            name, version, _, tags = parse_wheel_filename(path.name)
        except ValueError:
            continue
        fits = any(tag.interpreter == short and "linux" in tag.platform for tag in tags)
        if name == asked.name and asked.specifier.contains(version) and fits:
            found[path.name] = path
    return tuple(found.values())


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
        found = importlib.metadata.distribution("splatfix")
        text = found.read_text("METADATA") or ""
    except importlib.metadata.PackageNotFoundError:
        text = ""
    if not text:
        raise SplatfixError(
            "own-metadata-missing",
            "splatfix has no metadata, so its requirements are unknown.",
            meaning="It was copied instead of installed.",
            todo=(say("Install splatfix with pip or pipx."),),
        )
    folder = f"splatfix-{found.version}.dist-info"
    return {
        f"{folder}/METADATA": text.partition("\n\n")[0].encode() + b"\n",
        f"{folder}/INSTALLER": b"splatfix\n",
        f"{folder}/RECORD": b"",
    }


def _pip() -> list[str]:
    """The pip of splatfix's environment (pipx shares one), else one on PATH; nothing where there is none."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = next(filter(None, map(find_program, ("pip3", "pip"))), None)
    return [found] if found else []


def certificate_file(settings: PipSettings) -> Path | None:
    """The certificate authorities that pip on this machine trusts, where it does not bring its own: those of a closed site."""
    named = (settings.certificates, *map(os.environ.get, ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")))
    return next((Path(item) for item in named if item and Path(item).is_file()), None)
