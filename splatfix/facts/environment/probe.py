"""What is true of one Python environment, read from its files; its interpreter only says where they are."""

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from splatfix.binaries import BinaryError
from splatfix.core.codec import from_json, parse_json
from splatfix.core.versions import release
from splatfix.facts.environment.extensions import own_tag, read_extensions, read_jit_caches
from splatfix.facts.environment.installer import find_installer
from splatfix.facts.environment.linkage import runtime_libraries, torch_abi
from splatfix.facts.environment.packages import (
    altered_files,
    importable_names,
    read_distributions,
    read_packages,
    read_shadows,
    record_of,
)
from splatfix.facts.machine import toolkits
from splatfix.facts.machine.libraries import Loader
from splatfix.facts.source.reader import FolderReader, NotPython
from splatfix.facts.source.syntax import simple_assignments
from splatfix.facts.system.live import System, captured, folder_of
from splatfix.facts.system.parallel import within
from splatfix.model import (
    EnvironmentFacts,
    Fact,
    FatbinGroup,
    ImportProbe,
    Interpreter,
    ToolkitChoice,
    Torch,
    group_fatbins,
    unknown,
    version_or_none,
)

_PROBE = Path(__file__).with_name("probe_env.py")
_TIMEOUT = 20.0
# Seconds for one part of the facts: a cold disk is slow, a dead network drive never answers.
_PATIENCE = 120.0
_IMPORT_TIMEOUT = 120.0
# What cpp_extension takes from setuptools' family, at whatever depth of the file.
_BUILDER_IMPORT = re.compile(
    r"^[ \t]*(?:from|import)[ \t]+(pkg_resources|setuptools|distutils)\b(.*)$", re.MULTILINE
)
T = TypeVar("T")

# The module is imported after torch (import order matters to extensions that link libc10), and the interpreter
# flushes before it ends so that a crash later in teardown cannot hide the answer. A word that no module can know is said before
# and after: a module may print what it likes, and end the interpreter as if all were well.
_IMPORT_SCRIPT = """
import importlib, os, sys
word = "splatfix-import-" + os.urandom(8).hex()
print(word, flush=True)
if sys.argv[1] != "torch":
    try:
        import torch
    except ImportError:
        pass
importlib.import_module(sys.argv[1])
print()
print(word, flush=True)
"""
_IMPORT_WORD = re.compile(r"^splatfix-import-\w{16}\n", re.MULTILINE)


class _Described(Struct, frozen=True):
    """What a Python says of itself; see ``probe_env.py``."""

    executable: str
    version: str
    implementation: str
    ext_suffix: str
    platform: str
    prefix: str
    base_prefix: str
    site_packages: tuple[str, ...]
    path: tuple[str, ...]
    """``sys.path`` without the probe's own folder."""
    conda: bool = False
    externally_managed: bool = False
    headers: bool | None = None
    abiflags: str = ""


_AS_SAID = set(_Described.__struct_fields__) & set(Interpreter.__struct_fields__)


def describe(system: System, python: str) -> _Described | str:
    """What a Python says of itself, or why it does not."""
    done = system.run([python, str(_PROBE)], _TIMEOUT)
    for line in reversed(done.stdout.splitlines()) if done.ok else ():
        # sitecustomize or .pth files may print before the answer, which is the last line
        with contextlib.suppress(ValueError):
            return from_json(_Described, parse_json(line))
    return done.why() or "its answer is not readable"


def probe(system: System, python: str) -> EnvironmentFacts:
    """Return everything about the environment of the interpreter ``python``."""
    described = describe(system, python)
    if isinstance(described, str):
        lost = unknown(f"the interpreter {python} did not describe itself: {described}", python)
        return EnvironmentFacts(unknown(described, python), lost, lost, lost, lost, lost, lost)
    sites = described.site_packages
    folders = (f"{path}/torch" for path in described.path)
    torch_folder = next((folder for folder in folders if system.exists(f"{folder}/version.py")), None)
    is_conda = described.conda or system.exists(f"{described.base_prefix}/conda-meta")
    executable = system.realpath(described.executable)
    loader = Loader(system, executable, described.base_prefix, sites, torch_folder, conda=is_conda)
    here = system.realpath(".")

    def look(work: Callable[[], T], found_via: str) -> Fact[T]:
        return within(_PATIENCE, work, found_via)

    distributions = look(
        lambda: tuple(read_distributions(system, sites)), "*.dist-info and *.egg-info in site-packages"
    )
    installed = distributions.value or ()
    torch = within(_PATIENCE, lambda: _read_torch(loader), loader.torch_folder or "")
    native = look(
        lambda: read_extensions(loader, sites, installed), "native files in site-packages, read as bytes"
    )
    extensions_found, copies = native.value or (None, None)
    extensions = Fact(extensions_found, native.found_via, native.error)
    packages = look(
        lambda: read_packages(system, sites, installed, extensions.value or ()),
        "the __init__.py of each installed package",
    )
    choice: Fact[ToolkitChoice] = unknown("no torch to choose a toolkit")
    if torch.value is not None:
        chosen = toolkits.torch_choice(system, torch_is_cuda=torch.value.cuda is not None)
        choice = Fact(chosen, "rules of torch/utils/cpp_extension.py")
    return EnvironmentFacts(
        interpreter=Fact(_interpreter(system, described), f"{_PROBE.name} run by {python}"),
        distributions=distributions,
        installer=find_installer(
            system, described.executable, pip_inside=any(item.name == "pip" for item in installed)
        ),
        torch=torch,
        torch_installed=Fact(loader.torch_folder is not None, "sys.path searched for the torch package"),
        toolkit_choice=choice,
        extensions=extensions,
        packages=packages,
        runtime_libraries=look(
            lambda: runtime_libraries(loader), "version definitions of the libraries the loader finds"
        ),
        runtime_copies=Fact(copies, "names of native files in site-packages", native.error),
        shadows=look(
            lambda: () if here in sites else read_shadows(system, here, packages.value or ()),
            "names in the current folder",
        ),
        jit_caches=look(
            lambda: read_jit_caches(loader, own_tag(described.version, described.abiflags, torch.value)),
            "torch's cache of extensions compiled at first use",
        ),
        modules=look(
            lambda: importable_names(system, described.path, installed),
            "names in the folders of sys.path, and of editable installs",
        ),
        altered=look(
            lambda: tuple(altered_files(system, installed, packages.value or ())), "compared with its RECORD"
        ),
    )


def try_import(system: System, python: str, module: str) -> ImportProbe:
    """Import ``module`` (after torch) in a child of the target interpreter and say how that ended."""
    done = system.run([python, "-c", _IMPORT_SCRIPT, module], _IMPORT_TIMEOUT)
    words = _IMPORT_WORD.findall(done.stdout)
    if len(words) > 1 and words[0] == words[-1] and done.returncode == 0:
        return ImportProbe(module, True, "ok", seconds=done.seconds)
    if done.returncode is None:
        return ImportProbe(module, False, "timeout", done.error, done.seconds)
    if done.returncode < 0:
        return ImportProbe(module, False, "signal", done.why(), done.seconds)
    output = done.stderr.strip() or _IMPORT_WORD.sub("", done.stdout).strip()
    if not output:
        output = f"exit code {done.returncode} before the import was done"
    last_line = output.splitlines()[-1]
    # another module's absence is a failure of this one
    if captured(r"^ModuleNotFoundError: No module named '([^']+)'", last_line) == module:
        return ImportProbe(module, False, "not installed", last_line, done.seconds)
    return ImportProbe(module, False, "exception", last_line, done.seconds)


def torch_as_installed(system: System, facts: EnvironmentFacts) -> bool:
    """Tell whether ``torch/__init__.py``, one of the compared files, is what pip installed.

    Importing torch takes seconds, so a torch that looks as it should is not imported to see whether it can be.
    """
    altered = facts.altered.value
    for distribution in facts.distributions.value or ():
        if distribution.name == "torch" and altered is not None:
            record = record_of(system, distribution)
            is_listed = re.search(r"^torch/__init__\.py,sha256=", record, re.MULTILINE)
            return bool(is_listed) and all(item.path != "torch/__init__.py" for item in altered)
    return False


def _read_torch(loader: Loader) -> Fact[Torch]:
    """torch's version and build from ``torch/version.py`` as text, its GPU code from ``libtorch_cuda``'s bytes."""
    system, folder = loader.system, loader.torch_folder
    if folder is None:
        return unknown("torch is not installed in this environment")
    text = system.read(f"{folder}/version.py")
    if text is None:
        return unknown("torch/version.py cannot be read", folder)
    try:
        assigned = dict(simple_assignments(FolderReader().parse(text).body))
    except NotPython as error:
        return unknown(f"torch/version.py is damaged: {error}", folder)
    constants = {name: getattr(value, "value", None) for name, value in assigned.items()}
    version, cuda, hip = map(version_or_none, map(constants.get, ("__version__", "cuda", "hip")))
    if version is None:
        return unknown("torch/version.py names no version", folder)
    code: tuple[FatbinGroup, ...] = ()
    code_error = ""
    library = "lib/torch_cuda.dll" if system.name == "windows" else "lib/libtorch_cuda.so"
    if cuda:
        try:
            code = group_fatbins(system.read_binary(f"{folder}/{library}").fatbins)
        except (BinaryError, OSError) as error:
            code_error = f"{library}: {error}"
    abi = torch_abi(loader)
    if abi is None and system.name == "linux" and release(version)[:2] >= (2, 7):
        abi = True  # every wheel from 2.7 on, as its release notes say
    builder = system.read(f"{folder}/utils/cpp_extension.py") or ""
    listed_archs = captured(r"supported_arches\s*=\s*\[([^\[\]]*)\]", builder)
    imported = _BUILDER_IMPORT.findall(builder)
    builder_imports = {module for module, _ in imported}
    # `from pkg_resources import packaging` broke with setuptools 70, which no longer vendors it there
    if any(module == "pkg_resources" and re.search(r"import\s+packaging", rest) for module, rest in imported):
        builder_imports.add("pkg_resources.packaging")
    return Fact(
        Torch(
            version=version,
            cuda=cuda,
            hip=hip,
            folder=folder,
            cxx11_abi=abi,
            code=code,
            code_error=code_error,
            knows_archs=tuple(re.findall(r"['\"]([0-9]{1,2}\.[0-9][af]?)['\"]", listed_archs)),
            builder_imports=tuple(sorted(builder_imports)),
        ),
        "torch/version.py read as text",
    )


def _interpreter(system: System, python: _Described) -> Interpreter:
    prefix = python.prefix
    config = system.read(f"{prefix}/pyvenv.cfg")
    kind = "system"
    if python.conda:
        kind = "conda"
    elif config is not None and system.exists(f"{prefix}/pipx_metadata.json"):
        kind = "pipx"
    elif config is not None:
        kind = captured(r"^(uv|virtualenv)\s*=", config, re.MULTILINE) or "venv"
    lock_files = [f"{folder_of(prefix)}/{name}" for name in ("uv.lock", "poetry.lock")]
    said = {name: getattr(python, name) for name in _AS_SAID}
    return Interpreter(
        **said,
        abi_tag=re.sub(r"^\.|\.(so|pyd)$", "", python.ext_suffix),
        platform_tag=python.platform,
        kind=kind,
        lock_file=next((path for path in lock_files if system.exists(path)), ""),
    )
