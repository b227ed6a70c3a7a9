"""What the processes of a certification loaded, held against what was installed: by the RECORD of each wheel, and for what
splatfix installed also by its journal.

Large libraries are hashed in a thread, beside the training; nothing of the environment itself runs for that.
"""

import base64
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from splatfix.certify.inside import loaded
from splatfix.core.data import dataclass
from splatfix.core.files import make_folder, write_json
from splatfix.core.lenient import object_in
from splatfix.core.reading import read_blocks
from splatfix.core.runner import Runner
from splatfix.core.words import few
from splatfix.facts import (
    Distribution,
    Facts,
    LiveSystem,
    RecordedFile,
    origin_folder,
    read_distributions,
    record_of,
    recorded_files,
)

SURELY_LOADED = (
    "smoke_trainer.data.images",
    "smoke_trainer.densify.ops",
    "smoke_trainer.metrics",
    "smoke_trainer.model",
    "smoke_trainer.photos",
    "smoke_trainer.renderers",
    "smoke_trainer.train",
    "splatfix.kernels.rasterizer",
    "torch",
    "torch._tensor",
    "torch.functional",
    "torch.nn.functional",
    "torch.nn.modules.module",
    "torch.autograd",
    "torch.optim.adam",
    "torch.optim.optimizer",
    "numpy",
    "PIL.Image",
)
"""Modules that every training loads, with the kernels of others too: seen with torch 2.1.2 and 2.13."""
_SOURCES = (".py", ".so", ".pyd")
_COMPARING_TIMEOUT = 120.0


@dataclass(frozen=True)
class Difference:
    """Something that ran and is not what was installed."""

    text: str
    distribution: str = ""
    """Which installing anew puts right; "" where it is another file that must go."""


@dataclass(frozen=True)
class _Replaced:
    """A function whose code is of a file that belongs to no package."""

    function: str
    file: str


@dataclass(frozen=True)
class LoadedCode:
    """What ran, compared with what was installed."""

    compared: int = 0
    """Files that are as they were installed."""
    distributions: tuple[str, ...] = ()
    """Of these, each with its version; that with the most files first."""
    differences: tuple[Difference, ...] = ()
    unknown: tuple[str, ...] = ()
    """Files that nothing tells the installed content of."""
    untold: tuple[str, ...] = ()
    """Processes that ended well, and told nothing."""


class LoadedFiles:
    """Compares what children loaded; they write it into :attr:`folder`, see ``inside/loaded.py``."""

    def __init__(
        self,
        facts: Facts,
        python: str,
        runner: Runner,
        folder: Path,
        own: Sequence[Path],
        journal: Mapping[str, str],
    ) -> None:
        """Args:
        folder: for what the children write.
        own: folders of what is not the environment's: what splatfix put there, and a checkout.
        journal: SHA-256 in hexadecimal digits of every file that splatfix installed, by path.
        """
        self.folder = make_folder(folder)
        self._python, self._runner = python, runner
        self._own = tuple(f"{os.path.realpath(path)}{os.sep}" for path in own)
        self._installed = _Installed(facts, journal)
        self._began = False
        self._trainings: dict[str, Sequence[str]] = {}
        self._told: dict[str, set[str]] = {}
        """By training, what was read of it: perhaps before it is known that it ended well."""
        self._read: set[Path] = set()
        self._results: dict[str, Difference | _Replaced | str | None] = {}
        """By file, function or bytecode: what is different, why it is not known, or None for what is as installed."""
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._work: Future[None] | None = None

    def folder_of(self, training: str) -> Path:
        """Where the processes of a training are to tell what they loaded."""
        return make_folder(self.folder / training)

    def trained(self, training: str, libraries: Sequence[str]) -> None:
        """A training ended well: what it tells will be held against what it surely loaded.

        Args:
            libraries: native files that it held by what the system tells.
        """
        self._trainings[training] = libraries

    def look(self) -> None:
        """Begin to compare what was loaded since the last time."""
        self._began = True
        try:
            self._work = self._pool.submit(self._compare)
        except RuntimeError:  # no room for another thread
            self._compare()

    def result(self, *, wait: bool) -> LoadedCode | None:
        """What was compared; None where that is not done yet, or nothing was run.

        Args:
            wait: for what is being compared.
        """
        if self._work is not None:
            if not wait and not self._work.done():
                return None
            self._work.result()
        if not self._began:
            return None
        differences: dict[Difference, None] = {}
        replaced: dict[str, list[str]] = {}
        unknown = []
        owners: Counter[str] = Counter()
        for file, result in sorted(self._results.items()):
            if isinstance(result, Difference):
                differences[result] = None
            elif isinstance(result, _Replaced):
                replaced.setdefault(result.file, []).append(result.function)
            elif result is None:
                owners[self._installed.owner_of(file)] += 1
            else:
                unknown.append(result)
        for file, functions in replaced.items():
            differences[Difference(f"code of {file} ran in place of {few(functions)}")] = None
        names = tuple(name for name, _ in owners.most_common() if name)
        told = {path.parent.name for path in self._read}
        untold = [f"the training of {name}" for name in self._trainings if name not in told]
        if not self._read:
            untold = ["any process"]
        return LoadedCode(owners.total(), names, tuple(differences), tuple(unknown), tuple(untold))

    def _compare(self) -> None:
        sources: list[tuple[str, str]] = []
        for path in sorted(self.folder.rglob("loaded-*.json")):
            if path in self._read:
                continue
            self._read.add(path)
            document = object_in(path)
            self._installed.add_folders(document.get("path", ()))
            python = tuple(f"{folder}{os.sep}" for folder in document.get("python", ()))
            modules: dict[str, list[str]] = document.get("modules", {})
            for name, (file, cached) in modules.items():
                self._look_at(file, name, python)
                if cached and loaded.TRAINED_BY.fullmatch(name) and file in self._installed.files:
                    sources.append((file, cached))
            libraries: list[str] = document.get("libraries", [])
            self._told.setdefault(path.parent.name, set()).update(modules, libraries)
            for file in libraries:
                self._look_at(file, "", python)
            for function, file in document.get("replaced", {}).items():
                self._look_at_function(function, file, python)
        self._look_at_bytecode(sources)
        for training in tuple(self._trainings):
            if training in self._told:
                self._look_at_list(training, self._told[training])

    def _look_at_list(self, training: str, told: set[str]) -> None:
        """What a training told, modules and libraries, has what it surely loaded."""
        libraries = [file for file in self._trainings[training] if file in self._installed.files]
        for file in libraries:
            self._look_at(file, "", ())
        self._results.pop(training, None)  # judged before, of a part of its processes
        if hidden := [name for name in (*SURELY_LOADED, *libraries) if name not in told]:
            text = f"the training of {training} does not tell of {few(hidden, 3)}, which it loaded"
            self._results[training] = Difference(text)

    def _look_at(self, file: str, module: str, python: tuple[str, ...]) -> None:
        if file in self._results or file.startswith(self._own):
            return
        recorded = self._installed.files.get(file)
        owner = self._installed.shadowed(module, file)
        if recorded is not None and not owner:
            self._results[file] = self._installed.compare(file, *recorded)
        elif recorded is None and (not module or self._of_python(file, python)):
            return  # libraries of the system are no package's
        elif owner:
            # one difference for all modules of a package
            package = module.partition(".")[0]
            folder = file.rpartition(f"{os.sep}{package}")[0] or file
            self._results[file] = Difference(
                f"{package} was loaded from {folder}, and not what {owner} installed"
            )
        else:
            self._results[file] = f"{file} (no RECORD lists it)"

    def _look_at_function(self, function: str, file: str, python: tuple[str, ...]) -> None:
        """A function of a package whose code is another file's: torch uses some of other packages, and of Python."""
        if file in self._installed.files or self._of_python(file, python) or file.startswith(self._own):
            return
        if self._installed.is_editable(file):
            self._results[function] = f"{function} (replaced by {file})"
        else:
            self._results[function] = _Replaced(function, file)

    def _look_at_bytecode(self, sources: Sequence[tuple[str, str]]) -> None:
        """Python runs a ``.pyc`` without reading its source: both are compared by the Python that would run it."""
        new = [pair for pair in dict.fromkeys(sources) if pair[1] not in self._results]
        if not new:
            return
        request = self.folder / "sources.json"
        write_json(request, new)
        # without site-packages, so that nothing of the environment has a say in it
        argv = [self._python, "-I", "-S", loaded.__file__, str(request)]
        done = self._runner.run(argv, timeout=_COMPARING_TIMEOUT)
        try:
            different = set(json.loads(done.stdout))
        except ValueError:
            self._results["bytecode"] = f"bytecode ({done.why() or 'it was not compared'})"
            return
        for source, cached in new:
            self._results[cached] = None
            if cached in different:
                distribution, recorded = self._installed.files[source]
                text = f"{cached}, which Python runs, is not the bytecode of {recorded.path}"
                self._results[cached] = Difference(text, distribution.name)

    def _of_python(self, file: str, python: tuple[str, ...]) -> bool:
        """Of Python's own library."""
        return file.startswith(python) and not file.startswith(self._installed.sites)


class _Installed:
    """What the wheels of an environment installed."""

    def __init__(self, facts: Facts, journal: Mapping[str, str]) -> None:
        interpreter = facts.environment.interpreter.value
        self._system = LiveSystem()
        self.sites: tuple[str, ...] = ()
        if interpreter is not None:
            self.sites = tuple(f"{os.path.realpath(site)}{os.sep}" for site in interpreter.site_packages)
        self._journal = journal
        self.files: dict[str, tuple[Distribution, RecordedFile]] = {}
        self._modules: dict[str, Distribution] = {}
        self._editable: list[str] = []
        self._folders = set(self.sites)
        self._add(facts.environment.distributions.value or (), of_sites=True)

    def add_folders(self, folders: Iterable[str]) -> None:
        """More folders that modules come from: a ``.pth`` file may lend the packages of another environment."""
        new = {f"{folder}{os.sep}" for folder in folders} - self._folders
        self._folders |= new
        self._add(read_distributions(self._system, sorted(folder[:-1] for folder in new)), of_sites=False)

    def _add(self, distributions: Iterable[Distribution], *, of_sites: bool) -> None:
        for distribution in distributions:
            if distribution.editable:
                self._editable += filter(None, [origin_folder(distribution)])
                continue
            folder = os.path.realpath(distribution.location)
            for item in recorded_files(record_of(self._system, distribution).splitlines()):
                self.files[f"{folder}/{item.path}"] = (distribution, item)
                if of_sites and item.path.endswith(_SOURCES):
                    self._modules.setdefault(_module_of(item.path), distribution)

    def owner_of(self, file: str) -> str:
        """``torch 2.13.0``; "" for what no RECORD lists."""
        if file not in self.files:
            return ""
        return _name(self.files[file][0])

    def shadowed(self, module: str, file: str) -> str:
        """The distribution that installed this module elsewhere than where it was loaded from; "" where none did."""
        if module not in self._modules or self.is_editable(file):
            return ""
        if file in self.files and file.startswith(self.sites):
            return ""
        return _name(self._modules[module])

    def is_editable(self, file: str) -> bool:
        """It is in the source folder of an editable install."""
        return any(file.startswith(f"{folder}{os.sep}") for folder in self._editable)

    def compare(
        self, file: str, distribution: Distribution, recorded: RecordedFile
    ) -> Difference | str | None:
        """One file with what was installed in its place."""
        name = _name(distribution)
        expected = [recorded.sha256]
        installed = ""
        if distribution.made_by_splatfix:  # a RECORD can be written anew after an edit
            installed = self._journal.get(file, "")
        if installed:
            expected.append(_base64(bytes.fromhex(installed)))
        expected = list(filter(None, expected))
        if not expected:
            return f"{recorded.path} (the RECORD of {name} has no digest of it)"
        try:
            if recorded.size is not None and Path(file).stat().st_size != recorded.size:
                found = ""
            else:
                found = _digest(file)
        except OSError as error:
            return f"{recorded.path} ({error.strerror or error})"
        if all(digest == found for digest in expected):
            return None
        return Difference(f"{recorded.path} differs from what {name} installed", distribution.name)


def _digest(file: str) -> str:
    digest = hashlib.sha256()
    for block in read_blocks(file):
        digest.update(block)
    return _base64(digest.digest())


def _base64(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _name(distribution: Distribution) -> str:
    return f"{distribution.name} {distribution.version}"


def _module_of(path: str) -> str:
    """``torch.optim`` of ``torch/optim/__init__.py``, ``torch._C`` of ``torch/_C.cpython-311-x86_64-linux-gnu.so``."""
    folder, _, name = path.rpartition("/")
    stem = name.partition(".")[0]
    parts = folder.split("/") if folder else []
    if stem != "__init__":
        parts.append(stem)
    return ".".join(parts)
