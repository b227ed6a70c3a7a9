"""Hold what the processes of a certification loaded against what was installed, by the RECORD of each wheel.

Nothing of the environment itself runs for that.
"""

import base64
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from splatfix.certify.criteria.criterion import Measure, Registered
from splatfix.certify.model import CODE_AS_INSTALLED, Criterion
from splatfix.core.files import object_in, sha256_of
from splatfix.core.step import Command
from splatfix.core.words import counted, few
from splatfix.facts import RecordedFile, System, origin_folder, record_of, recorded_files
from splatfix.model import Distribution, Facts

_AS_INSTALLED = Registered(
    code=CODE_AS_INSTALLED,
    title="Every file that ran is as its wheel installed it",
    why="Other code ran than the versions in this certificate name.",
    source="the RECORD of each wheel (PEP 376); SunshineWYC/BlockGaussian#2: another version of the rasterizer lay there",
)
_REMOVE = "look into the named files, and remove what is not wanted (a .pth file or sitecustomize loads them)"


def as_installed(facts: Facts, told: Path, own: Sequence[Path], python: str) -> Criterion:
    """Look for the digest of every file that was loaded in the RECORD of its wheel; name what differs, and what has no digest.

    Args:
        told: the folder into which children write what they loaded, see ``inside/loaded.py``.
        own: folders of what is not the environment's: what splatfix put there, and a checkout.
        python: the interpreter, for the commands that mend it.
    """
    recorded: dict[str, tuple[Distribution, RecordedFile]] = {}
    modules: dict[str, Distribution] = {}
    editable = []
    for distribution in facts.environment.distributions.value or ():
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
    for path in sorted(told.glob("loaded-*.json")):
        document = object_in(path)
        loaded |= dict.fromkeys(document["libraries"], "")
        loaded |= {file: module for module, file in document["modules"].items()}
    interpreter = facts.environment.interpreter.value
    sites = tuple(map(_folder, interpreter.site_packages)) if interpreter else ()
    ours = tuple(map(_folder, own))

    # each difference with what to do about it
    differences, unknown, owners = dict[str, str](), [], Counter[str]()
    for file, module in sorted(loaded.items()):
        if file.startswith(ours):
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
                repair = ("splatfix", "install", "--repair", distribution.name, "--python", python)
                text = f"{item.path} differs from what {name} installed"
                differences[text] = Command(repair).shell(windows=False)
        elif module in modules and not file.startswith(tuple(editable)):
            # one difference for all modules of a package
            package, owner = module.partition(".")[0], modules[module]
            folder = file.rpartition(f"{os.sep}{package}")[0] or file
            installed = f"{owner.name} {owner.version} installed"
            differences[f"{package} was loaded from {folder}, and not what {installed}"] = _REMOVE
        elif module and file.startswith(sites):
            unknown.append(file)

    texts = list(differences)
    if not texts and owners:
        names = [name for name, _ in owners.most_common()]
        texts.append(f"{counted(owners.total(), 'file')} of {few(names)} are as they were installed")
    if unknown:
        texts.append(f"not known: {few(unknown, 3)}")
    met = not differences if differences or owners else None
    advice = "; ".join(dict.fromkeys(differences.values()))
    return _AS_INSTALLED.criterion(Measure(met, few(texts, between="; "), advice=advice))


def _folder(path: str | Path) -> str:
    return f"{os.path.realpath(path)}{os.sep}"
