"""Hold what the processes of a certification loaded against what was installed, by the RECORD of each wheel.

Nothing of the environment itself runs for that.
"""

import base64
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from splatfix.core.files import make_folder, object_in, sha256_of
from splatfix.facts import RecordedFile, System, origin_folder, read_distributions, record_of, recorded_files
from splatfix.model import Distribution, Facts

_SOURCES = (".py", ".so", ".pyd")


class Difference(Struct, frozen=True):
    """Something that ran and is not what was installed."""

    text: str
    distribution: str = ""
    """Which installing anew puts right; "" where it is another file that must go."""


class LoadedCode(Struct, frozen=True):
    """What ran, compared with what was installed."""

    compared: int = 0
    """Files that are as they were installed."""
    distributions: tuple[str, ...] = ()
    """Of these, each with its version; that with the most files first."""
    differences: tuple[Difference, ...] = ()
    unknown: tuple[str, ...] = ()
    """Files that nothing tells the installed content of."""


class LoadedFiles:
    """Compares what children loaded; they write it into :attr:`folder`, see ``inside/loaded.py``."""

    def __init__(self, facts: Facts, folder: Path, own: Sequence[Path]) -> None:
        """``own`` are folders of what is not the environment's: what splatfix put there, and a checkout."""
        self.folder = make_folder(folder)
        self._facts = facts
        self._own = tuple(f"{os.path.realpath(path)}{os.sep}" for path in own)

    def compare(self) -> LoadedCode:
        """Read every file that was loaded, and look for its digest in the RECORD of its wheel."""
        installed = _Installed(self._facts)
        results: dict[str, Difference | str | None] = {}
        """By file: what is different, why it is not known, or None for what is as installed."""
        for path in sorted(self.folder.glob("loaded-*.json")):
            document = object_in(path)
            installed.add_folders(document.get("path", ()))
            python = tuple(f"{folder}{os.sep}" for folder in document.get("python", ()))
            files = [(file, name) for name, file in document.get("modules", {}).items()]
            files += [(file, "") for file in document.get("libraries", ())]
            for file, module in files:
                if file in results or file.startswith(self._own):
                    continue
                # libraries of the system, and Python's own modules, are no package's
                of_python = file.startswith(python) and not file.startswith(installed.sites)
                if file in installed.files or (module and not of_python):
                    results[file] = installed.judge(file, module)
        told = [results[file] for file in sorted(results)]
        differences = dict.fromkeys(item for item in told if isinstance(item, Difference))
        unknown = tuple(item for item in told if isinstance(item, str))
        good = [file for file, result in results.items() if result is None]
        owners = Counter(_name(installed.files[file][0]) for file in good)
        names = tuple(name for name, _ in owners.most_common())
        return LoadedCode(len(good), names, tuple(differences), unknown)


class _Installed:
    """What the wheels of an environment installed."""

    def __init__(self, facts: Facts) -> None:
        interpreter = facts.environment.interpreter.value
        self._system = System()
        self.sites: tuple[str, ...] = ()
        if interpreter is not None:
            self.sites = tuple(f"{os.path.realpath(site)}{os.sep}" for site in interpreter.site_packages)
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
                if source := origin_folder(distribution):
                    self._editable.append(f"{source}{os.sep}")
                continue
            folder = os.path.realpath(distribution.location)
            for item in recorded_files(record_of(self._system, distribution).splitlines()):
                self.files[f"{folder}/{item.path}"] = (distribution, item)
                if of_sites and item.path.endswith(_SOURCES):
                    # torch.optim of torch/optim/__init__.py, torch._C of torch/_C.cpython-311-x86_64-linux-gnu.so
                    *folders, name = item.path.split("/")
                    parts = [*folders, name.partition(".")[0]]
                    module = ".".join(parts).removesuffix(".__init__")
                    self._modules.setdefault(module, distribution)

    def judge(self, file: str, module: str) -> Difference | str | None:
        """What is different about a file, why that is not known, or None for one as installed; ``module`` is "" for a library."""
        elsewhere = file not in self.files or not file.startswith(self.sites)
        if module in self._modules and elsewhere and not file.startswith(tuple(self._editable)):
            # one difference for all modules of a package
            package, owner = module.partition(".")[0], _name(self._modules[module])
            folder = file.rpartition(f"{os.sep}{package}")[0] or file
            return Difference(f"{package} was loaded from {folder}, and not what {owner} installed")
        if file not in self.files:
            return f"{file} (no RECORD lists it)"
        distribution, recorded = self.files[file]
        name = _name(distribution)
        if not recorded.sha256:
            return f"{recorded.path} (the RECORD of {name} has no digest of it)"
        try:
            same_size = recorded.size is None or Path(file).stat().st_size == recorded.size
            if same_size:
                digest = base64.urlsafe_b64encode(bytes.fromhex(sha256_of(Path(file))))
                if digest.decode().rstrip("=") == recorded.sha256:  # as a RECORD spells it
                    return None
        except OSError as error:
            return f"{recorded.path} ({error.strerror or error})"
        return Difference(f"{recorded.path} differs from what {name} installed", distribution.name)


def _name(distribution: Distribution) -> str:
    """``torch 2.13.0``."""
    return f"{distribution.name} {distribution.version}"
