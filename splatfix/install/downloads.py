"""Downloads into splatfix's own cache, never into an environment: CUDA toolkits and source distributions, with pip."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct
from packaging.utils import parse_wheel_filename

from splatfix.core.errors import SplatfixError
from splatfix.core.files import read_json, sha256_of, write_json
from splatfix.core.reading import read_text
from splatfix.core.resources import TOOLKIT_MARKER
from splatfix.core.runner import Completed, Runner
from splatfix.core.scratch import temporary_folder
from splatfix.core.toml import table_beside
from splatfix.install.environment import Environment, open_environment
from splatfix.install.trust import distrust, private_cache
from splatfix.knowledge.toolkits import known_digest
from splatfix.model.steps import FetchWheel, ProvideToolkit
from splatfix.wheels.listing import save_listed

_DOWNLOAD_TIMEOUT = 3600.0
# Settings of the user's pip that would send the wheels elsewhere; where to download from is left as it is.
_UNSET = {"PIP_TARGET", "PIP_USER", "PIP_PREFIX", "PIP_ROOT", "PIP_NO_INDEX", "PIP_REQUIRE_VIRTUALENV"}
_PROBE = table_beside(__file__, "toolkit_probe.toml")
_MOST_UNPACKED = 256 << 20
# Its wheel is py3-none-any and compiles at the first import; its sdist carries setup.py, all CUDA sources and glm.
FETCHABLE = re.compile(r"(gsplat)==(\d+(?:\.\d+)+)")


class Pip(Struct, frozen=True):
    """pip with the person's own indexes, and without what would send files elsewhere."""

    argv: tuple[str, ...]
    """How it is called; see :meth:`splatfix.facts.Installer.pip`."""
    runner: Runner
    log: Path | None = None

    @classmethod
    def of(cls, environment: Environment, log: Path | None = None) -> Pip:
        return cls(environment.installer.pip(environment.python), environment.runner, log)

    def run(self, *arguments: str) -> Completed:
        variables = {name: value for name, value in os.environ.items() if name not in _UNSET}
        argv = [*self.argv, "--no-input", "--disable-pip-version-check", *arguments]
        return self.runner.run(argv, timeout=_DOWNLOAD_TIMEOUT, env=variables, log=self.log)


def provide_toolkit(step: ProvideToolkit, pip: Pip, tell: Callable[[str], None]) -> tuple[Path, str]:
    """Unpack the step's toolkit into the cache, whole or not at all; returns its root, and a digest of its wheels.

    Raises ``toolkit-not-provided`` with what pip or the probe said, ``cache-not-private``.
    """
    folder = Path(step.folder)
    root = folder / Path(step.root).relative_to(folder)
    private_cache(folder.parent.name, folder.parent.parent)
    if (folder / TOOLKIT_MARKER).is_file() and not distrust(folder):
        note = read_json(folder / TOOLKIT_MARKER, "the note on a toolkit in the cache")
        return root, _digest(note.get("wheels"))
    try:
        with temporary_folder(".making-", folder.parent) as making:
            tell(f"downloading {step.requirements[0]}")
            unpacked = making / "toolkit"
            unpacked.mkdir(mode=0o700)
            wheels, lock = making / "wheels", making / "lock.txt"
            _run(pip, "download", "--only-binary", ":all:", "--dest", str(wheels), *step.requirements)
            digests: dict[str, str] = {}
            for path in sorted(wheels.glob("*.whl")):
                name, version, _, _ = parse_wheel_filename(path.name)
                # pip has compared each with the hash that its index gives; of a wheel that the tables know, it then
                # installs those bytes or none, whatever index it came from
                digests[f"{name}=={version}"] = known_digest(name, version) or sha256_of(path)
            lock.write_text("".join(f"{pin} --hash=sha256:{digest}\n" for pin, digest in digests.items()))
            local = ("--no-index", "--find-links", str(wheels), "--target", str(unpacked))
            _run(pip, "install", "--no-deps", *local, "--require-hashes", "--requirement", str(lock))
            shutil.rmtree(wheels)
            toolkit = unpacked / root.relative_to(folder)
            # the unversioned names that linkers ask for, which wheels cannot carry, and execute bits where they were lost
            for link, points_to in step.links:
                if not (toolkit / link).exists() and (toolkit / link).parent.is_dir():
                    (toolkit / link).symlink_to(points_to)
            for program in (*toolkit.glob("bin/*"), *toolkit.glob("nvvm/bin/*")):
                if program.is_file():
                    program.chmod(program.stat().st_mode | 0o111)
            tell("compiling a probe with it")
            _check_toolkit(toolkit, pip, making / "probe")
            note = {"schema_version": 1, "requirements": list(step.requirements), "wheels": digests}
            write_json(unpacked / TOOLKIT_MARKER, note)
            shutil.rmtree(folder, ignore_errors=True)  # incomplete without the marker, or somebody else's
            unpacked.replace(folder)
    except OSError as error:
        raise _not_provided(f"{folder} cannot be written: {error.strerror or error}", pip) from error
    return root, _digest(digests)


def _digest(wheels: Mapping[str, str] | None) -> str:
    """Return one digest for all wheels of a toolkit; "" for one that an earlier splatfix made, which kept none."""
    return hashlib.sha256(json.dumps(wheels, sort_keys=True).encode()).hexdigest() if wheels else ""


def fetch_wheel(step: FetchWheel, pip: Pip, folder: Path) -> Path:
    """Fetch the wheel of one version, from the person's own indexes, or an address; raises ``wheel-not-fetched``."""
    folder.mkdir(parents=True, exist_ok=True)
    argv = ["download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    if step.index:
        argv += ["--extra-index-url", step.index, "--retries", "2"]
    completed = pip.run(*argv, step.requirement)
    wheels = tuple(folder.glob("*.whl"))
    if completed.ok and len(wheels) == 1:
        return wheels[0]
    line = _last_error(completed)
    raise SplatfixError.of("install.wheel-not-fetched", requirement=step.requirement, line=line, log=pip.log)


def _run(pip: Pip, command: str, *arguments: str) -> None:
    # pip's cache is the user's, and a toolkit of gigabytes does not belong there as well
    completed = pip.run("--no-cache-dir", command, *arguments)
    if not completed.ok:
        raise _not_provided(f"pip could not {command} it: {_last_error(completed)}", pip)


def _last_error(completed: Completed) -> str:
    """Return the last line of a failed pip's output that tells an error, else why it failed."""
    lines = (completed.stdout + completed.stderr).splitlines()
    return next((line.strip() for line in reversed(lines) if "ERROR" in line), completed.why())


def _check_toolkit(root: Path, pip: Pip, folder: Path) -> None:
    """Check that every file that builds need is there, and that a kernel compiles and links as torch links."""
    lacking = [name for name in _PROBE["needed"] if not (root / name).exists()]
    if lacking:
        raise _not_provided(f"the wheels left out {', '.join(lacking)}", pip)
    folder.mkdir()
    (folder / "probe.cu").write_text(_PROBE["source"])
    argv = [str(root / "bin" / "nvcc"), f"-L{root / 'lib'}", *_PROBE["options"]]
    completed = pip.runner.run(argv, timeout=300.0, cwd=folder, log=pip.log)
    if not completed.ok:
        output = (completed.stderr or completed.stdout).strip() or completed.why()
        raise _not_provided(f"it does not compile: {output.splitlines()[0]}", pip)


def _not_provided(reason: str, pip: Pip) -> SplatfixError:
    return SplatfixError.of("install.toolkit-not-provided", reason=reason, log=pip.log)


def fetch_source(
    text: str, python: str, *, pip: Pip | None = None, cache: Path | None = None, offline: bool = False
) -> str:
    """Return the folder of the source that ``text`` (such as ``gsplat==1.5.3``) names; any other text as it is.

    It is unpacked into splatfix's own cache, once, by the pip of ``python``; no environment is touched, and nothing of it run.
    Raises ``source-not-fetched`` with what pip or the archive said, ``cache-not-private``.
    """
    named = FETCHABLE.fullmatch(text.strip())
    if named is None:
        return text
    source = private_cache("sources", cache) / f"{named.group(1)}-{named.group(2)}"
    if (source / "setup.py").is_file() and not distrust(source):
        return str(source)
    try:
        if offline:
            raise ValueError("--offline asks no index, and it is not in splatfix's cache")
        with temporary_folder(".fetching-", source.parent) as scratch:
            archive = scratch / f"{source.name}.tar.gz"
            _download_sdist(text.strip(), pip or Pip.of(open_environment(python)), archive)
            _unpack_sdist(archive, scratch / "unpacked")
            tops = [path for path in (scratch / "unpacked").iterdir() if (path / "setup.py").is_file()]
            if len(tops) != 1:
                raise ValueError(f"{archive.name} holds {len(tops) or 'no'} setup.py where one belongs")
            shutil.rmtree(source, ignore_errors=True)
            tops[0].chmod(0o700)
            tops[0].replace(source)
    except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError) as error:
        raise SplatfixError.of("install.source-not-fetched", text=text, reason=error) from error
    return str(source)


def _download_sdist(requirement: str, pip: Pip, archive: Path) -> None:
    """Fetch the archive that pip would take. pip would run its setup.py, to learn the name that it has already; of archives
    that it may not take it only says where they lie."""
    look = ("download", "-vvv", "--no-deps", "--only-binary", ":all:", "--dest", str(archive.parent))
    completed = pip.run(*look, f"{requirement}+source")
    listed = re.search(
        rf"No sources permitted for \S+ (\S+/{re.escape(archive.name)})(?:#\S*)?(?: \(from (\S+)\))?",
        completed.stdout,
    )
    if listed is None:
        raise ValueError(f"pip finds no {archive.name} where it looks: {_last_error(completed)}")
    address, page = listed[1], listed[2] or ""
    # pip hides logins in what it says, not in its settings; a file, because what it prints comes without them too
    log = archive.with_name("pip.log")
    pip.run("--log", str(log), "config", "list")
    named = [page, *re.findall(r"https?://[^\s'\"]+@[^\s'\"]+", str(read_text(log)))]
    save_listed(address, page, archive, named)


def _unpack_sdist(archive: Path, folder: Path) -> None:
    """Unpack files and folders; links and devices have no place in a source."""
    size = 0
    with tarfile.open(archive) as tar:
        for member in filter(tarfile.TarInfo.isfile, tar):
            path, size = folder / member.name, size + member.size
            if size > _MOST_UNPACKED:
                raise ValueError(f"it unpacks to more than {_MOST_UNPACKED >> 20} MiB")
            if ".." in path.parts or folder not in path.parents:
                raise ValueError(f"{member.name} would be written outside of its folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            content = tar.extractfile(member)
            assert content is not None
            path.write_bytes(content.read())
