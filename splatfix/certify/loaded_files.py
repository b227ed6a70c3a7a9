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
        self._environment = facts.environment
        self._own = tuple(_folder(path) for path in own)
        self._sites: tuple[str, ...] = ()
        if facts.environment.interpreter.value:
            self._sites = tuple(map(_folder, facts.environment.interpreter.value.site_packages))
        self._files: dict[str, tuple[Distribution, RecordedFile]] = {}
        self._modules: dict[str, Distribution] = {}
        self._editable: list[str] = []

    def compare(self) -> LoadedCode:
        """Read every file that was loaded, and look for its digest in the RECORD of its wheel."""
        loaded: dict[str, str] = {}
        """By file the module; "" for a library."""
        python, folders = set[str](), set[str]()
        for path in sorted(self.folder.glob("loaded-*.json")):
            document = object_in(path)
            folders.update(document.get("path", ()))
            python.update(f"{folder}{os.sep}" for folder in document.get("python", ()))
            for module, file in document.get("modules", {}).items():
                loaded.setdefault(file, module)
            for file in document.get("libraries", ()):
                loaded.setdefault(file, "")
        self._read_records(self._environment.distributions.value or (), of_sites=True)
        # a .pth file may lend the packages of another environment
        others = sorted(folder for folder in folders if f"{folder}{os.sep}" not in self._sites)
        self._read_records(read_distributions(System(), others), of_sites=False)

        differences, unknown, owners = dict[Difference, None](), [], Counter[str]()
        for file, module in sorted(loaded.items()):
            # libraries of the system, and Python's own modules, are no package's
            of_python = file.startswith(tuple(python)) and not file.startswith(self._sites)
            of_a_package = file in self._files or (module and not of_python)
            if file.startswith(self._own) or not of_a_package:
                continue
            result = self._judge(file, module)
            if isinstance(result, Difference):
                differences[result] = None
            elif isinstance(result, str):
                unknown.append(result)
            else:
                owners[_name(self._files[file][0])] += 1
        names = tuple(name for name, _ in owners.most_common())
        return LoadedCode(owners.total(), names, tuple(differences), tuple(unknown))

    def _read_records(self, distributions: Iterable[Distribution], *, of_sites: bool) -> None:
        for distribution in distributions:
            if distribution.editable:
                if source := origin_folder(distribution):
                    self._editable.append(f"{source}{os.sep}")
                continue
            folder = os.path.realpath(distribution.location)
            for item in recorded_files(record_of(System(), distribution).splitlines()):
                self._files[f"{folder}/{item.path}"] = (distribution, item)
                if of_sites and item.path.endswith(_SOURCES):
                    # torch.optim of torch/optim/__init__.py, torch._C of torch/_C.cpython-311-x86_64-linux-gnu.so
                    *folders, name = item.path.split("/")
                    parts = [*folders, name.partition(".")[0]]
                    module = ".".join(parts).removesuffix(".__init__")
                    self._modules.setdefault(module, distribution)

    def _judge(self, file: str, module: str) -> Difference | str | None:
        """What is different about a file, why that is not known, or None for one as installed; ``module`` is "" for a library."""
        elsewhere = file not in self._files or not file.startswith(self._sites)
        if module in self._modules and elsewhere and not file.startswith(tuple(self._editable)):
            # one difference for all modules of a package
            package, owner = module.partition(".")[0], _name(self._modules[module])
            folder = file.rpartition(f"{os.sep}{package}")[0] or file
            return Difference(f"{package} was loaded from {folder}, and not what {owner} installed")
        if file not in self._files:
            return f"{file} (no RECORD lists it)"
        distribution, recorded = self._files[file]
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


def _folder(path: str | Path) -> str:
    return f"{os.path.realpath(path)}{os.sep}"


def _name(distribution: Distribution) -> str:
    """``torch 2.13.0``."""
    return f"{distribution.name} {distribution.version}"
