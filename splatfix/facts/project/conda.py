"""Reads conda's environment files and pixi's manifests and locks. They are judged, and never written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from packaging.utils import canonicalize_name

from splatfix.core.data import replace
from splatfix.core.redact import without_credentials
from splatfix.facts.project.model import BuildSettings, Dependency, Locked, Manager, Manifest
from splatfix.facts.project.pyproject import line_of_key, pep440, place_of, table, texts
from splatfix.facts.project.requirements import dependency_of

# A colon alone is that of a key, as in "- pip:"; two are behind a channel's name.
_KEY_COLON = re.compile(r"(?<![:\w]):(?!:)|(?<!:):(?=\s|$)")
_CONDA_NAME = re.compile(r"(?:[\w./-]+::)?([A-Za-z][\w.-]*)\s*(.*)")
_TORCH = {"pytorch": "torch", "pytorch-gpu": "torch", "pytorch-cpu": "torch"}
# What says for which CUDA a pytorch of conda's is built.
_CUDA_PACKAGES = ("pytorch-cuda", "cudatoolkit", "cuda-version")
_PLATFORMS = {
    "linux": "sys_platform == 'linux'",
    "win": "sys_platform == 'win32'",
    "osx": "sys_platform == 'darwin'",
}
_LOCKED = re.compile(r"^[ \t]*-[ \t]+(conda|pypi):[ \t]+(\S+)", re.MULTILINE)


def read_environment(file: str, text: str) -> Manifest:
    """An ``environment.yml``, with what its pip is to install."""
    dependencies: list[Dependency] = []
    indexes: list[str] = []
    for line, item, of_pip in _items(text):
        if not of_pip:
            dependencies += _of_conda(item, line)
        elif option := re.match(r"(?:-i|--index-url|--extra-index-url|-f|--find-links)[\s=]+(\S+)", item):
            indexes.append(without_credentials(option[1]))
        elif dependency := dependency_of(re.sub(r"^(-e|--editable)\s+", "", item), line):
            dependencies.append(dependency)
    return _of_conda_packages(Manifest(file, Manager.CONDA, tuple(dependencies), indexes=tuple(indexes)))


def read_pixi(file: str, text: str, pixi: Mapping[str, Any], lock: str) -> Manifest:
    """A ``pixi.toml``, or the table of pixi in a pyproject.toml; of its features those of the default environment."""
    dependencies: list[Dependency] = []
    options = table(pixi, "pypi-options")
    for names, marker in _tables(pixi):
        for name, value in table(names, "dependencies").items():
            version = (
                value
                if isinstance(value, str)
                else f"{table(names, 'dependencies', name).get('version', '*')}"
            )
            build = str(table(names, "dependencies", name).get("build", ""))
            items = _of_conda(f"{name} {version} {build}", line_of_key(text, name))
            dependencies += [replace(item, marker=marker) for item in items]
        for name in table(names, "pypi-dependencies"):
            dependencies.append(
                replace(_of_pypi(text, name, table(names, "pypi-dependencies")), marker=marker)
            )
    alone = options.get("no-build-isolation")
    named: set[str] = set(map(canonicalize_name, texts(options, "no-build-isolation")))
    builds = {}
    for item in dependencies:
        builds[item.name] = BuildSettings(isolated=alone is not True and item.name not in named)
    indexes = texts(options, "extra-index-urls")
    if isinstance(options.get("index-url"), str):
        indexes.append(str(options["index-url"]))
    cuda = str(table(pixi, "system-requirements").get("cuda", ""))
    dependencies = [
        replace(item, cuda="")
        if item.name == "torch" and item.conda and item.cuda == "cpu" and cuda
        else item
        for item in dependencies
    ]
    locked = tuple(_locked(kind, address) for kind, address in _LOCKED.findall(lock))
    manifest = Manifest(file, Manager.PIXI, tuple(dependencies), indexes=tuple(indexes), builds=builds)
    manifest = _of_conda_packages(manifest)
    if locked:
        return replace(manifest, lock="pixi.lock", locked=locked)
    return manifest


def _tables(pixi: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    yield pixi, ""
    for name in table(pixi, "target"):
        yield table(pixi, "target", name), _PLATFORMS.get(name.partition("-")[0], "")


def _of_pypi(text: str, name: str, names: Mapping[str, Any]) -> Dependency:
    row = names[name] if isinstance(names[name], Mapping) else {"version": str(names[name])}
    address, folder = place_of(row)
    version = str(row.get("version", "*"))
    return Dependency(
        canonicalize_name(name),
        pep440(version),
        line_of_key(text, name),
        address=address,
        folder=folder,
        index=str(row.get("index", "")),
    )


def _items(text: str) -> Iterator[tuple[int, str, bool]]:
    """(line, text, whether pip installs it) of every dependency of an environment file."""
    inside, pip_indent = False, 0
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"[^\s#-]", line):
            inside = line.startswith("dependencies:")
        item = re.match(r"(\s*)-\s+([^\s#].*?)\s*(?:\s#.*)?$", line) if inside else None
        if item is None:
            continue
        entry = item[2].strip("\"'")
        if re.fullmatch(r"pip\s*:", entry):
            pip_indent = len(item[1]) + 1
            continue
        of_pip = pip_indent > 0 and len(item[1]) >= pip_indent
        if of_pip or not _KEY_COLON.search(entry):
            yield number, entry, of_pip


def _of_conda(text: str, line: int) -> Iterator[Dependency]:
    """A match specification of conda's: ``pytorch=1.12.1=py3.8_cuda11.6``, ``channel::name >=2``."""
    parsed = _CONDA_NAME.fullmatch(text.strip())
    if parsed is None:
        return
    # one "=" before the version is any release that begins so; a second one begins the build
    version = re.fullmatch(r"=?\s*([^\s=<>!~][^=\s]*)(?:(?:=|\s+)(\S+))?\s*", parsed[2])
    build, specifier = "", pep440(parsed[2])
    if version:
        fuzzy = "" if version[1].endswith("*") or text.count("==") else ".*"
        specifier = "" if version[1] == "*" else f"=={version[1]}{fuzzy}"
        build = version[2] or ""
    cuda = re.search(r"cuda(\d+\.\d+)|cuda_?(\d\d)(\d)(?!\.)", build)
    named = f"{cuda[1]}" if cuda and cuda[1] else f"{cuda[2]}.{cuda[3]}" if cuda else ""
    if parsed[1].lower() == "pytorch-cpu" or re.match(r"(\*)?cpu", build):
        named = "cpu"
    yield Dependency(
        _TORCH.get(parsed[1].lower(), canonicalize_name(parsed[1])), specifier, line, conda=True, cuda=named
    )


def _of_conda_packages(manifest: Manifest) -> Manifest:
    """With what conda's own packages say: the CUDA of torch, Python and pip."""
    conda = [item for item in manifest.dependencies if item.conda]
    cuda = next((_version(item) for item in conda if item.name in _CUDA_PACKAGES and item.specifier), "")
    if any(item.name == "cpuonly" for item in conda):
        cuda = "cpu"
    dependencies = []
    for item in manifest.dependencies:
        if item.name == "torch" and item.conda and not item.cuda:
            item = replace(item, cuda=cuda)
        dependencies.append(item)
    pythons = [item for item in conda if item.name == "python"]
    pips = [_version(item) for item in conda if item.name == "pip" and item.specifier.startswith("==")]
    python = ""
    if pythons and pythons[0].specifier.startswith("=="):
        minor = ".".join(_version(pythons[0]).split(".")[:2])
        if re.fullmatch(r"3\.\d{1,3}", minor):
            python = minor
    return replace(
        manifest,
        dependencies=tuple(dependencies),
        requires_python=pythons[0].specifier if pythons else "",
        python=python,
        pip=pips[0] if pips else "",
    )


def _version(item: Dependency) -> str:
    """The first version that a specifier names, its end left open: ``12.4`` of ``==12.4.*``."""
    numbers = re.search(r"\d+(?:\.\d+)*", item.specifier)
    return numbers[0] if numbers else ""


def _locked(kind: str, address: str) -> Locked:
    """One package of pixi's lock file, by the name of its file."""
    file = unquote(address.rpartition("/")[2])
    if kind == "pypi":
        name, _, rest = file.partition("-")
        index = address.rpartition("/")[0] if ".whl" in file else address
        return Locked(
            canonicalize_name(name), rest.partition("-")[0], index, (file,) if ".whl" in file else ()
        )
    name, version, build = ["", "", *re.sub(r"\.(conda|tar\.bz2)$", "", file).rsplit("-", 2)][-3:]
    channel, _, platform = address.rpartition("/")[0].rpartition("/")
    marker = _PLATFORMS.get(platform.partition("-")[0], "")
    return Locked(_TORCH.get(name, name), f"{version}={build}", channel, marker=marker)
