"""What the facts say that several rooms ask for: torch, toolkits, what is still to be built."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from packaging.utils import canonicalize_name

from splatfix.context.targets import listed_gpus
from splatfix.core.versions import major_minor, release
from splatfix.facts import (
    CheckoutSource,
    Extension,
    Facts,
    Source,
    Toolkit,
    ToolkitChoice,
    Torch,
    origin_folder,
)
from splatfix.knowledge.drivers import Platform
from splatfix.knowledge.torch_releases import COMPANIONS

SETUPTOOLS_DROPPED = {"pkg_resources.packaging": 70, "pkg_resources": 82}
"""What builders import of setuptools' family, with the release of setuptools that no longer has it."""


def torch_of(facts: Facts) -> Torch | None:
    """The target environment's torch, when it could be read."""
    return facts.environment.torch.value


def torch_cuda(facts: Facts) -> tuple[int, int] | None:
    """(major, minor) of ``torch.version.cuda``; None for no torch or a build without CUDA."""
    torch = torch_of(facts)
    return major_minor(torch.cuda) if torch else None


def compiling_toolkits(facts: Facts) -> tuple[Toolkit, ...]:
    """The toolkits that have an nvcc which answers."""
    return tuple(
        item for item in facts.machine.toolkits.value or () if item.nvcc and len(release(item.version)) > 1
    )


def chosen_toolkit(facts: Facts) -> Toolkit | None:
    """The toolkit behind torch's choice of CUDA_HOME, seen through a wrapper script, when it is one of those found."""
    choice = facts.environment.toolkit_choice.value
    if choice is None or choice.root is None:
        return None
    roots = {choice.root, choice.resolved, choice.real_root}
    for item in compiling_toolkits(facts):
        if item.root in roots or choice.nvcc in item.on_path:
            return item
    return None


def wrapper_choice(facts: Facts) -> ToolkitChoice | None:
    """torch's choice, when it is a folder that is not the toolkit's own root."""
    choice = facts.environment.toolkit_choice.value
    return choice if choice and choice.root and choice.real_root and not choice.has_headers else None


def best_toolkit(facts: Facts, cuda: tuple[int, int] | None) -> Toolkit | None:
    """The toolkit here that fits a CUDA version best: same major, then nearest minor, then fewest missing parts."""
    fitting = [
        item for item in compiling_toolkits(facts) if cuda is None or release(item.version)[0] == cuda[0]
    ]
    minor = cuda[1] if cuda else 0
    return min(fitting, key=lambda t: (abs(release(t.version)[1] - minor), len(t.missing)), default=None)


def build_toolkit(facts: Facts) -> Toolkit | None:
    """The toolkit a build here would use: torch's choice, else the one that fits torch best."""
    return chosen_toolkit(facts) or best_toolkit(facts, torch_cuda(facts))


_CUDA_OF_A_FILE = re.compile(r"(?<=[_.-])cu(?:da)?(\d{2})(\d)(?=[_.-])")


def loaded_extensions(facts: Facts) -> tuple[Extension, ...]:
    """Native files, without those that this torch never loads: a wheel may bring one module for each CUDA
    (``_cuda_cu118``, ``_cuda_cu124``...), of which its package takes the one of torch's CUDA. Where there is none, it tries them
    in order, and the first of torch's CUDA major is the first whose runtime is found. Source: fussim 0.3.15's loader."""
    rows: dict[tuple[str, str], dict[tuple[int, int], Extension]] = {}
    every = facts.environment.extensions.value or ()
    for item in every:
        if found := _CUDA_OF_A_FILE.search(item.path):
            name = item.folder + _CUDA_OF_A_FILE.sub("*", item.path)
            rows.setdefault((item.distribution or "", name), {})[int(found[1]), int(found[2])] = item
    cuda = torch_cuda(facts)
    loaded = []
    for row in rows.values():
        fitting = [key for key in row if cuda and key[0] == cuda[0]]
        loaded.append(row[cuda if cuda in row else min(fitting, default=max(row))])
    several = [item for row in rows.values() for item in row.values()]
    return tuple(item for item in every if item not in several or item in loaded)


def names_built(source: Source) -> frozenset[str]:
    """The normalised names under which what a source builds is found again: its distribution's, and what is imported."""
    modules = (item.name.partition(".")[0] for item in source.modules)
    packages = (name.partition(".")[0] for name in source.packages)
    return frozenset(canonicalize_name(name) for name in (source.label, *packages, *modules) if name)


def distributions_of(facts: Facts, names: Collection[str], folder: str = "") -> tuple[str, ...]:
    """Installed distributions of these normalised names, or that were installed from this folder."""
    return tuple(
        item.name
        for item in facts.environment.distributions.value or ()
        if canonicalize_name(item.name) in names
        or (folder and folder in (origin_folder(item), item.built.source if item.built else ""))
    )


def files_installed(facts: Facts, names: Collection[str], folder: str = "") -> tuple[Extension, ...]:
    """Native files of what was built under these normalised names, or from this folder."""
    owners = distributions_of(facts, names, folder)
    return tuple(
        item
        for item in facts.environment.extensions.value or ()
        if item.distribution in owners or canonicalize_name(item.module.partition(".")[0]) in names
    )


def sources_to_build(facts: Facts) -> Iterator[CheckoutSource]:
    """Sources that are still to be built: where what they build is installed, the build went well."""
    found = facts.checkout.value
    for item in found.sources if found else ():
        files = files_installed(facts, names_built(item.source), item.source.folder)
        if item.source.needs_cuda and not any(file.importable for file in files):
            yield item


def compiles_at_first_use(facts: Facts) -> tuple[str, ...]:
    """Installed packages that will compile CUDA code at their first import: gsplat's plain wheel, older nvdiffrast."""
    if facts.environment.extensions.value is None:
        return ()
    compiled = {re.split(r"[./]", item.path)[0] for item in facts.environment.extensions.value}
    compiled |= {
        item.name.partition("_")[0]
        for item in facts.environment.jit_caches.value or ()
        if item.current and item.library
    }
    found = []
    for item in facts.environment.distributions.value or ():
        name = item.name.lower()
        # nvdiffrast is compiled by pip from 0.4 on
        if name == "gsplat" or (name == "nvdiffrast" and release(item.version)[:2] < (0, 4)):
            found += [name] if name not in compiled else []
    return tuple(found)


def builds_ahead(facts: Facts) -> tuple[str, ...]:
    """What is going to be compiled in this environment, as far as the facts tell; () for nothing known."""
    return (*(item.source.label for item in sources_to_build(facts)), *compiles_at_first_use(facts))


def nothing_waits(facts: Facts) -> bool:
    """Splatting extensions are here, compiled, and nothing else is to be built: an environment made to run, as images are."""
    packages = facts.environment.packages.value or ()
    compiled = any(item.native and not item.native_missing and not item.error for item in packages)
    return compiled and not builds_ahead(facts) and facts.checkout.value is None


def has_working_gpu(facts: Facts) -> bool | None:
    """An NVIDIA GPU that torch would see; None when that is not known."""
    machine = facts.machine
    driver, cuda = machine.driver, machine.cuda
    if machine.gpus.value is None:
        return None
    if not listed_gpus(facts):
        return False
    if cuda.known or cuda.absent:
        return bool(cuda.value)
    if driver.value is None:
        return False if driver.absent else None
    library_not_found = 12  # NVML_ERROR_LIBRARY_NOT_FOUND; a Jetson has none, but its libcuda answers
    refused = driver.value.cuda_error is not None
    return not refused and not (driver.value.nvml_error == library_not_found and driver.value.cuda is None)


def platform_of(facts: Facts) -> Platform | None:
    """The machine's system as the tables name it; None where there is no CUDA (macOS)."""
    known: dict[str, Platform] = {"linux": "linux", "windows": "windows"}
    return known.get(facts.machine.system)


def python_version(facts: Facts) -> tuple[int, int] | None:
    """(major, minor) of the target interpreter."""
    found = facts.environment.interpreter.value
    return major_minor(found.version) if found else None


def glibc_of(facts: Facts) -> tuple[int, int] | None:
    """(major, minor) of the C library; None for another than glibc."""
    return major_minor(facts.machine.glibc)


def installed_driver(facts: Facts) -> str:
    """The driver's version as it writes it itself; after an upgrade without a reboot the one that a reboot brings."""
    found = facts.machine.driver.value
    return (found.library_version or found.version or "") if found else ""


def is_windows(facts: Facts) -> bool:
    """The machine's shell is cmd.exe."""
    return facts.machine.system == "windows"


def python_of(facts: Facts) -> str:
    """The target interpreter as it stands in a command."""
    python = facts.environment.interpreter.value
    return python.executable if python else "python"


def python_versions(facts: Facts) -> dict[str, tuple[int, ...]]:
    """Versions on which Python code depends: of ``python`` itself, and of every installed distribution by its name."""
    found: dict[str, tuple[int, ...]] = {
        canonicalize_name(item.name): release(item.version)
        for item in facts.environment.distributions.value or ()
    }
    if torch := torch_of(facts):
        found["torch"] = release(torch.version)
    if python := facts.environment.interpreter.value:
        found["python"] = release(python.version)
    return found


def torch_family(facts: Facts) -> dict[str, str]:
    """Versions of torch and its companions that are installed, by name."""
    names = ("torch", *COMPANIONS)
    found = {item.name.lower(): item.version for item in facts.environment.distributions.value or ()}
    family = {name: found[name] for name in names if name in found}
    torch = torch_of(facts)
    return {**family, "torch": torch.version} if torch else family
