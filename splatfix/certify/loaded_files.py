"""Hold what the processes of a certification loaded against what was installed, by the RECORD of each wheel.

Nothing of the environment itself runs for that.
"""

import base64
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from splatfix.core.files import make_folder, object_in, sha256_of
from splatfix.facts import RecordedFile, System, origin_folder, record_of, recorded_files
from splatfix.model import Distribution, Facts


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
    """Files of the environment that no RECORD has a digest of, or that are gone."""


class LoadedFiles:
    """Compares what children loaded; they write it into :attr:`folder`, see ``inside/loaded.py``."""

    def __init__(self, facts: Facts, folder: Path, own: Sequence[Path]) -> None:
        """``own`` are folders of what is not the environment's: what splatfix put there, and a checkout."""
        self.folder = make_folder(folder)
        self._environment = facts.environment
        self._own = tuple(map(_folder, own))

    def compare(self) -> LoadedCode:
        """Read every file that was loaded, and look for its digest in the RECORD of its wheel."""
        recorded: dict[str, tuple[Distribution, RecordedFile]] = {}
        modules: dict[str, Distribution] = {}
        editable = []
        for distribution in self._environment.distributions.value or ():
            if distribution.editable:
                editable.append(_folder(origin_folder(distribution) or distribution.location))
                continue
            folder = os.path.realpath(distribution.location)
            for item in recorded_files(record_of(System(), distribution).splitlines()):
                recorded[f"{folder}/{item.path}"] = (distribution, item)
                if item.path.endswith((".py", ".so", ".pyd")):
                    # torch.optim of torch/optim/__init__.py, torch._C of torch/_C.cpython-311-x86_64-linux-gnu.so
                    *folders, name = item.path.split("/")
                    module = ".".join([*folders, name.partition(".")[0]]).removesuffix(".__init__")
                    modules.setdefault(module, distribution)
        loaded: dict[str, str] = {}
        """By file the module; "" for a library."""
        for path in sorted(self.folder.glob("loaded-*.json")):
            document = object_in(path)
            loaded |= dict.fromkeys(document["libraries"], "")
            loaded |= {file: module for module, file in document["modules"].items()}
        interpreter = self._environment.interpreter.value
        sites = tuple(map(_folder, interpreter.site_packages)) if interpreter else ()

        differences, unknown, owners = dict[Difference, None](), [], Counter[str]()
        for file, module in sorted(loaded.items()):
            if file.startswith(self._own):
                continue
            if file in recorded:
                distribution, item = recorded[file]
                name = f"{distribution.name} {distribution.version}"
                try:
                    digest = base64.urlsafe_b64encode(bytes.fromhex(sha256_of(Path(file))))
                except OSError:
                    digest = b""
                if not item.sha256 or not digest:
                    unknown.append(item.path)
                elif digest.decode().rstrip("=") == item.sha256:  # as a RECORD spells it
                    owners[name] += 1
                else:
                    text = f"{item.path} differs from what {name} installed"
                    differences[Difference(text, distribution.name)] = None
            elif module in modules and not file.startswith(tuple(editable)):
                # one difference for all modules of a package
                package, owner = module.partition(".")[0], modules[module]
                folder = file.rpartition(f"{os.sep}{package}")[0] or file
                text = (
                    f"{package} was loaded from {folder}, and not what {owner.name} {owner.version} installed"
                )
                differences[Difference(text)] = None
            elif module and file.startswith(sites):
                unknown.append(file)
        names = tuple(name for name, _ in owners.most_common())
        return LoadedCode(owners.total(), names, tuple(differences), tuple(unknown))


def _folder(path: str | Path) -> str:
    return f"{os.path.realpath(path)}{os.sep}"
