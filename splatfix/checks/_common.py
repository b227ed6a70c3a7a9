"""Small questions that several checks ask of the facts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from splatfix.checks.model import Goal
from splatfix.checks.visible import hidden_gpus
from splatfix.core.step import Step, run
from splatfix.facts import CheckoutSource, Compiler, Facts, FatbinGroup, Toolkit, ToolkitChoice, Torch
from splatfix.knowledge import drivers
from splatfix.knowledge.archs import Arch
from splatfix.knowledge.drivers import Platform
from splatfix.knowledge.wheel_index import COMPANIONS

SETUPTOOLS_DROPPED = {"pkg_resources.packaging": 70, "pkg_resources": 82}
"""What builders import of setuptools' family, with the release of setuptools that no longer has it."""


@dataclass(frozen=True)
class Target:
    """A GPU architecture to judge for, and where it comes from."""

    arch: Arch
    label: str
    """``sm_120 (GPU 0, NVIDIA GeForce RTX 5080)`` or ``sm_120 (--target)``."""


def targets(facts: Facts, goal: Goal) -> tuple[Target, ...]:
    """What the person asked for; failing that, this machine's NVIDIA GPUs, each architecture once.

    A GPU that CUDA_VISIBLE_DEVICES surely hides runs nothing of what is started here, and is left out.
    """
    if goal.targets:
        return tuple(Target(Arch.parse(text), f"{text} (--target)") for text in goal.targets)
    found: dict[Arch, list[str]] = {}
    hidden = hidden_gpus(facts)
    for gpu in facts.machine.gpus.value or ():
        arch = Arch.known(gpu.cc) if gpu.vendor == "nvidia" else None
        if arch is not None and gpu.index not in hidden:
            found.setdefault(arch, []).append(f"GPU {gpu.index}, {gpu.name}")
    return tuple(Target(arch, f"{arch.sm} ({'; '.join(names)})") for arch, names in found.items())


def has_nvidia_gpu(facts: Facts) -> bool:
    """At least one NVIDIA GPU is known to be here."""
    return any(gpu.vendor == "nvidia" for gpu in facts.machine.gpus.value or ())


def numbers(text: str | None) -> tuple[int, ...]:
    """``13.0.88`` -> (13, 0, 88); empty for None or no digits."""
    return tuple(int(part) for part in re.findall(r"\d+", text or ""))


def pair(text: str | None) -> tuple[int, int] | None:
    """The first two numbers of a version."""
    found = numbers(text)
    return (found[0], found[1]) if len(found) >= 2 else ((found[0], 0) if found else None)


def torch_of(facts: Facts) -> Torch | None:
    """The target environment's torch, when it could be read."""
    return facts.environment.torch.value


def torch_cuda(facts: Facts) -> tuple[int, int] | None:
    """(major, minor) of ``torch.version.cuda``; None for no torch or a build without CUDA."""
    torch = torch_of(facts)
    return pair(torch.cuda) if torch else None


def compiling_toolkits(facts: Facts) -> tuple[Toolkit, ...]:
    """The toolkits that have an nvcc which answers."""
    return tuple(
        item for item in facts.machine.toolkits.value or () if item.nvcc and len(numbers(item.version)) > 1
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
        item for item in compiling_toolkits(facts) if cuda is None or numbers(item.version)[0] == cuda[0]
    ]
    minor = cuda[1] if cuda else 0
    return min(fitting, key=lambda t: (abs(numbers(t.version)[1] - minor), len(t.missing)), default=None)


def build_toolkit(facts: Facts) -> Toolkit | None:
    """The toolkit a build here would use: torch's choice, else the one that fits torch best."""
    return chosen_toolkit(facts) or best_toolkit(facts, torch_cuda(facts))


def sources_to_build(facts: Facts) -> Iterator[CheckoutSource]:
    """Sources that are still to be built: where a compiled module of that name is installed, the build went well."""
    found = facts.checkout.value
    have = {
        re.split(r"[./]", item.path)[0]
        for item in facts.environment.extensions.value or ()
        if item.importable
    }
    for item in found.sources if found else ():
        names = {one.name.partition(".")[0] for one in item.source.modules} or set(item.source.packages)
        if item.source.needs_cuda and not names & have:
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
        if name == "gsplat" or (name == "nvdiffrast" and numbers(item.version)[:2] < (0, 4)):
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
    driver = facts.machine.driver
    if facts.machine.gpus.value is None:
        return None
    if not has_nvidia_gpu(facts):
        return False
    if driver.value is None:
        return False if driver.absent else None
    library_not_found = 12  # NVML_ERROR_LIBRARY_NOT_FOUND; a Jetson has none, but its libcuda answers
    return not (driver.value.nvml_error == library_not_found and driver.value.cuda is None)


def driver_level(facts: Facts, arch: Arch) -> str | None:
    """The CUDA level whose PTX this GPU's driver compiles, such as ``13.0``; None: not known, as for a GPU elsewhere.

    The driver says it itself; where neither NVML nor libcuda answered, the kernel module's version tells
    (knowledge/data/drivers.json).
    """
    driver = facts.machine.driver.value
    here = {gpu.cc for gpu in facts.machine.gpus.value or () if gpu.vendor == "nvidia"}
    if driver is None or (here and arch.plain.cc not in here):
        return None
    if driver.cuda or not numbers(driver.version):
        return driver.cuda
    level = drivers.cuda_level_of_driver(numbers(driver.version))
    return f"{level[0]}.{level[1]}" if level else None


def platform_of(facts: Facts) -> Platform:
    """The machine's system as the tables name it."""
    return "windows" if facts.machine.system == "windows" else "linux"


def remove_command(facts: Facts, path: str, text: str = "", *, folder: bool = False) -> Step:
    """The command that removes a file, or a folder with what is in it, in this machine's shell."""
    if is_windows(facts):
        verb = ("rmdir", "/s") if folder else ("del",)
        return run(*verb, path.replace("/", "\\"), text=text)
    return run("rm", *(("-r",) if folder else ()), path, text=text)


def is_windows(facts: Facts) -> bool:
    """The machine's shell is cmd.exe."""
    return facts.machine.system == "windows"


def python_of(facts: Facts) -> str:
    """The target interpreter as it stands in a command."""
    python = facts.environment.interpreter.value
    return python.executable if python else "python"


def host_compiler(facts: Facts) -> Compiler | None:
    """The C++ compiler a build would use: what CXX (or CC) names, else the first g++ on PATH, else clang++."""
    compilers = facts.machine.compilers.value or ()
    for variable in ("CXX", "CC"):
        named = [item for item in compilers if variable in item.found_via]
        if named:
            return named[0]
    for kind in ("g++", "clang++", "cl", "gcc"):
        for item in compilers:
            # setuptools finds Visual Studio by its own list, so cl need not be on PATH
            within_reach = "PATH" in item.found_via or kind == "cl"
            if item.kind == kind and within_reach and item.path.endswith((kind, f"{kind}.exe")):
                return item
    return None


def nvcc_host_compiler(facts: Facts) -> Compiler | None:
    """The host compiler that nvcc calls in a build by torch, which is another one than torch's where only CXX is set.

    torch hands CC to nvcc as ``-ccbin`` (``unix_cuda_flags`` of torch/utils/cpp_extension.py); of several nvcc takes the
    last. Without one it takes NVCC_CCBIN, then gcc on PATH (nvcc 13.0, ``--dryrun``); CXX and CUDAHOSTCXX are not asked.
    """
    compilers = facts.machine.compilers.value or ()
    for variable in ("NVCC_APPEND_FLAGS -ccbin", "CC", "NVCC_PREPEND_FLAGS -ccbin", "NVCC_CCBIN"):
        for item in compilers:
            if variable in item.found_via and item.kind != "cl":
                return item
    if facts.machine.system == "linux":
        found = {
            name: item
            for name in ("gcc", "g++")
            for item in reversed(compilers)
            if "PATH" in item.found_via and item.path.endswith(f"/{name}")
        }
        gcc, gxx = found.get("gcc"), found.get("g++")
        if gcc or gxx:  # they come together, though not every record of a machine names both
            return gxx if gxx and (gcc is None or gcc.version == gxx.version) else gcc
    return host_compiler(facts)


def family_of(compiler: Compiler) -> str:
    """``gcc``, ``clang`` or ``cl``."""
    return {"g++": "gcc", "clang++": "clang"}.get(compiler.kind, compiler.kind)


def code_words(groups: tuple[FatbinGroup, ...]) -> str:
    """``sm_80 sm_90 +PTX 9.0 for sm_90`` over all fatbins, for evidence lines; partial ones are marked with n/total."""
    total = sum(group.count for group in groups)
    seen: dict[tuple[str, str, tuple[int, int] | None], int] = {}
    for group in groups:
        for entry in group.entries:
            key = (entry.kind.value, entry.arch, entry.ptx_version)
            seen[key] = seen.get(key, 0) + group.count
    words = []
    for (kind, arch, version), count in sorted(
        seen.items(), key=lambda item: (item[0][0] != "sass", numbers(item[0][1]))
    ):
        ptx = f" {version[0]}.{version[1]}" if version else ""
        name = arch if kind == "sass" else f"{kind.upper()}{ptx} for {arch}"
        words.append(name if count == total else f"{name} ({count} of {total} fatbins)")
    return ", ".join(words)


def torch_family(facts: Facts) -> dict[str, str]:
    """Versions of torch and its companions that are installed, by name."""
    names = ("torch", *COMPANIONS)
    found = {item.name.lower(): item.version for item in facts.environment.distributions.value or ()}
    family = {name: found[name] for name in names if name in found}
    torch = torch_of(facts)
    return {**family, "torch": torch.version} if torch else family
