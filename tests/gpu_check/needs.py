"""Whether anything can run here: asked before the first step, answered in one line."""

import functools
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from splatfix.core.runner import ProcessRunner

CHILDREN = Path(__file__).parent / "children"

# Folder in GPU_SOURCES -> environment in which it is tried: one for each package that carries a rasterizer's name.
SOURCES = {
    "inria-v1": "stack",
    "simple-knn": "stack",
    "fused-ssim": "stack",
    "inria-2024": "inria-2024",
    "mip-splatting": "mip-splatting",
    "taming-3dgs": "taming-3dgs",
    "gsplat": "gsplat",
}

# Distribution -> what is imported of it. splatfix' own, the kernels' and the test helpers', which every step needs ...
PACKAGES = {
    "torch": "torch",
    "numpy": "numpy",
    "pytest": "pytest",
    "packaging": "packaging",
    "typer": "typer",
    "rich": "rich",
    "jinja2": "jinja2",
    "nvidia-ml-py": "pynvml",
    **({} if sys.version_info >= (3, 11) else {"tomli": "tomli"}),
}
# ... and what some need. setuptools replaces distutils, so nothing that imports distutils may come before it.
MORE = {
    "setuptools": "setuptools",
    "pip": "pip",
    "pillow": "PIL.Image",
    "wheel": "wheel|setuptools.command.bdist_wheel",  # setuptools 70.1 has its own
    "ninja": "ninja",
    "jaxtyping": "jaxtyping",
}
NVCC, COMPILER, HEADER = "nvcc", "a C++ compiler", "Python.h"
TOOLS = (NVCC, COMPILER, HEADER)
"""Where splatfix finds none, nothing can be compiled."""
BUILD = ("pip", "setuptools", "wheel", "ninja", *TOOLS)
"""What compiling an extension needs."""
STOOD_IN = (NVCC, "jaxtyping")
"""What a rehearsal does not need: its sources are C++, and its gsplat imports nothing."""


class Damaged(Exception):
    """The carried wheels cannot be unpacked; the message says why."""


def lacking(wants: Iterable[str]) -> str:
    """What this Python and this machine lack, and how to bring it, in a line; "" for nothing.

    Args:
        wants: of :data:`MORE` and :data:`TOOLS`; none for :data:`PACKAGES`.
    """
    needed = set(wants)
    modules = PACKAGES
    if needed:
        modules = {name: module for name, module in MORE.items() if name in needed}
    absent, obstacles = missing(modules)
    if absent:
        version = ".".join(map(str, sys.version_info[:2]))
        names = " ".join(absent)
        obstacles.append(
            f"this Python lacks {', '.join(absent)}; fetch the wheels with their dependencies on a machine of this kind: "
            f"python3 -m pip download --only-binary=:all: --python-version {version} --dest DIR {names}; "
            f"and carry them: python3 tests/gpu_check --sources DIR"
        )
    lost = tools_missing(needed) if not obstacles else []
    if lost:
        obstacles.append(
            f"no {' and no '.join(lost)} is here, which compiling needs (--only leaves steps out)"
        )
    return "; ".join(obstacles)


@functools.cache
def lacking_for(wants: tuple[str, ...]) -> str:
    """The same for a step, once for all that want the same; "" for one that wants nothing beyond what every step needs."""
    if not wants:
        return ""
    return lacking(wants)


def missing(modules: dict[str, str]) -> tuple[list[str], list[str]]:
    """The distributions that are not here, and in words those that are and do not import; each is imported in a child."""
    rows = [f"{name}={module}" for name, module in modules.items()]
    done = ProcessRunner().run([sys.executable, CHILDREN / "there.py", *rows], timeout=120)
    problems = {}
    for line in done.stdout.splitlines():
        name, found, problem = line.partition("\t")
        if found and name in modules:  # the rest is what a package printed
            problems[name] = problem
    absent = [name for name, problem in problems.items() if problem.startswith("ModuleNotFoundError")]
    broken = {name: problem for name, problem in problems.items() if problem and name not in absent}
    for name in modules:
        if name not in problems:  # the one whose import ended the process
            broken[name] = done.why() or "its import ended Python"
            break
    return absent, [f"{name} does not import here: {problem}" for name, problem in broken.items()]


def tools_missing(wanted: set[str]) -> list[str]:
    """Those of :data:`TOOLS` that are wanted and that splatfix does not find."""
    if not wanted.intersection(TOOLS):
        return []
    from splatfix.facts import gather

    machine = gather(sys.executable).machine
    header = Path(sysconfig.get_path("include"), "Python.h")
    there = {NVCC: machine.toolkits.value, COMPILER: machine.compilers.value, HEADER: header.is_file()}
    return [name for name in TOOLS if name in wanted and not there[name]]


def unpack_wheels(sources: Path | None, site: Path) -> None:
    """Install the wheels that lie beside the sources into a folder of the run, and let this Python and its children find them.

    Raises:
        Damaged: pip cannot.
    """
    wheels = sorted(sources.glob("*.whl")) if sources else []
    if not wheels:
        return
    carried = [wheel for wheel in wheels if wheel.name.startswith("pip-")]
    pip = [str(carried[0] / "pip")] if carried else ["-m", "pip"]
    argv = [sys.executable, *pip, "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    argv += ["--no-cache-dir", "--disable-pip-version-check", "--target", str(site), *map(str, wheels)]
    done = ProcessRunner().run(argv, timeout=300)
    if not done.ok:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        if errors:
            raise Damaged(errors[-1].removeprefix("ERROR: "))
        raise Damaged(done.why())
    put_first("PYTHONPATH", site)
    put_first("PATH", site / "bin")
    sys.path.insert(0, str(site))


def put_first(variable: str, folder: Path) -> None:
    """Let this process and its children look into a folder first."""
    os.environ[variable] = os.pathsep.join(filter(None, [str(folder), os.environ.get(variable, "")]))


def sources_in(folder: Path | None) -> tuple[dict[str, str], list[str]]:
    """The sources of a folder by their names, and what else lies there."""
    if folder is None:
        return {}, []
    there = {path.name: str(path) for path in sorted(folder.iterdir()) if path.is_dir()}
    known = {name: path for name, path in there.items() if name in SOURCES}
    return known, sorted(there.keys() - known.keys())


def machine() -> tuple[dict[str, str], str]:
    """GPU, torch and Python for the record; and why nothing can be run on a GPU, "" where it can."""
    from splatfix.facts.machine import nvml

    done = ProcessRunner().run([sys.executable, CHILDREN / "about_torch.py"], timeout=120)
    about = {"python": ".".join(map(str, sys.version_info[:3]))}
    try:
        torch = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return about, f"torch cannot be asked: {done.why() or 'no readable answer'}"
    about |= {"torch": str(torch["torch"]), "cuda": str(torch["cuda"])}
    if torch["cuda"] is None:
        return about, f"torch {torch['torch']} of {sys.executable} is built without CUDA"
    if not torch["gpus"]:
        said = done.stderr.strip().splitlines()
        seen = "nvidia-smi is there" if shutil.which("nvidia-smi") else "no nvidia-smi is there"
        return about, f"torch {torch['torch']} sees no GPU ({said[-1].strip() if said else seen})"
    first = torch["gpus"][0]
    told = nvml.ask()
    about["driver"] = told.get("driver") or f"unknown ({told.get('error', 'NVML does not tell it')})"
    about |= {"gpu": str(first["name"]), "capability": str(first["cc"]), "gpus": str(len(torch["gpus"]))}
    return about, ""
