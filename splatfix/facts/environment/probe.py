"""What is true of one Python environment, read from its files; its interpreter only says where they are."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from splatfix.binaries import BinaryError
from splatfix.core.codec import parse_json
from splatfix.core.runner import Completed
from splatfix.core.versions import release
from splatfix.facts.environment.extensions import own_tag, read_extensions, read_jit_caches
from splatfix.facts.environment.installer import find_installer
from splatfix.facts.environment.linkage import runtime_libraries, torch_abi
from splatfix.facts.environment.packages import (
    importable_names,
    read_distributions,
    read_packages,
    read_shadows,
)
from splatfix.facts.machine import toolkits
from splatfix.facts.machine.libraries import Loader
from splatfix.facts.model.environment import (
    EnvironmentFacts,
    ImportProbe,
    Interpreter,
    ToolkitChoice,
    Torch,
)
from splatfix.facts.model.fact import Fact, FatbinGroup, absent, group_fatbins, unknown, version_or_none
from splatfix.facts.source.reader import NotPython, parse_python
from splatfix.facts.source.syntax import simple_assignments
from splatfix.facts.system.live import System, captured
from splatfix.facts.system.parallel import fact_within, within

_PROBE = Path(__file__).with_name("probe_env.py")
_TIMEOUT = 20.0
# Seconds for one part of the facts: a cold disk is slow, a dead network drive never answers.
_PATIENCE = 120.0
_IMPORT_TIMEOUT = 120.0
S = TypeVar("S")
T = TypeVar("T")

# The module is imported after torch (import order matters to extensions that link libc10), and the interpreter
# flushes before it ends so that a crash later in teardown cannot hide the answer.
_IMPORT_SCRIPT = """
import importlib, sys
if sys.argv[1] != "torch":
    try:
        import torch
    except ImportError:
        pass
importlib.import_module(sys.argv[1])
print("splatfix-import-ok", flush=True)
"""


def no_environment(reason: str) -> EnvironmentFacts:
    """No environment was meant: there is nothing to ask."""
    none = absent(reason, "the command line, the shell and the current folder")
    names = {item.name for item in dataclasses.fields(EnvironmentFacts)} - {"installer", "imports", "chosen"}
    facts: dict[str, Any] = dict.fromkeys(names, none)
    return EnvironmentFacts(**facts)


def probe(
    system: System, python: str, *, timeout: float = _TIMEOUT
) -> tuple[EnvironmentFacts, dict[str, Any]]:
    """The environment of the interpreter ``python``.

    Args:
        timeout: seconds the interpreter gets to describe itself.

    Returns:
        The facts, and the probe's raw answer (empty when there was none) for further look-ups.
    """
    done = system.run([python, str(_PROBE)], timeout)
    raw = _answer(done)
    if raw is None:
        reason = done.why() or "its answer is not readable"
        lost = unknown(f"the interpreter {python} did not describe itself: {reason}", python)
        return EnvironmentFacts(unknown(reason, python), lost, lost, lost, lost, lost, lost), {}
    sites = tuple(raw["site_packages"])
    loader = _loader(system, raw, sites)
    here = system.realpath(".")

    distributions = _part(
        lambda: tuple(read_distributions(system, sites)), "*.dist-info and *.egg-info in site-packages"
    )
    installed = distributions.value or ()
    torch = fact_within(_PATIENCE, lambda: _read_torch(loader), loader.torch_folder or "")
    native = _part(
        lambda: read_extensions(loader, sites, installed), "native files in site-packages, read as bytes"
    )
    extensions = _of(native, lambda pair: pair[0])
    packages = _part(
        lambda: read_packages(system, sites, installed, extensions.value or ()),
        "__init__.py of splatting packages, read as source text",
    )
    facts = EnvironmentFacts(
        interpreter=Fact(_interpreter(system, raw), f"{_PROBE.name} run by {python}"),
        distributions=distributions,
        installer=find_installer(
            system, raw["executable"], pip_inside=any(item.name == "pip" for item in installed)
        ),
        torch=torch,
        torch_installed=Fact(loader.torch_folder is not None, "sys.path searched for the torch package"),
        toolkit_choice=_toolkit_choice(system, torch),
        extensions=extensions,
        packages=packages,
        runtime_libraries=_part(
            lambda: runtime_libraries(loader), "version definitions of the libraries the loader finds"
        ),
        runtime_copies=_of(native, lambda pair: pair[1], "names of native files in site-packages"),
        shadows=_part(
            lambda: () if here in sites else read_shadows(system, here, packages.value or ()),
            "names in the current folder",
        ),
        jit_caches=_part(
            lambda: read_jit_caches(loader, own_tag(raw, torch.value)),
            "torch's cache of extensions compiled at first use",
        ),
        modules=_part(
            lambda: importable_names(system, raw["path"], installed),
            "names in the folders of sys.path, and of editable installs",
        ),
    )
    return facts, raw


def _loader(system: System, raw: Mapping[str, Any], sites: tuple[str, ...]) -> Loader:
    torch_folders = [f"{path}/torch" for path in raw["path"]]
    base_prefix = raw["base_prefix"]
    return Loader(
        system,
        system.realpath(raw["executable"]),
        base_prefix,
        sites,
        next((folder for folder in torch_folders if system.exists(f"{folder}/version.py")), None),
        conda=bool(raw.get("conda")) or system.exists(f"{base_prefix}/conda-meta"),
    )


def _part(look: Callable[[], T], found_via: str) -> Fact[T]:
    """What one part of the environment shows. A part that breaks, or hangs on a dead drive, costs no other its fact."""
    return within(_PATIENCE, look, found_via)


def _of(fact: Fact[S], part: Callable[[S], T], found_via: str = "") -> Fact[T]:
    value = None if fact.value is None else part(fact.value)
    return Fact(value, found_via or fact.found_via, fact.error)


def _toolkit_choice(system: System, torch: Fact[Torch]) -> Fact[ToolkitChoice]:
    if torch.value is None:
        return unknown("no torch to choose a toolkit")
    choice = toolkits.torch_choice(system, torch_is_cuda=torch.value.cuda is not None)
    return Fact(choice, "rules of torch/utils/cpp_extension.py")


def packaged_toolkits(system: System, raw: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Toolkit folders that pip put into the environment (``nvidia/cu13``), as (folder, how it came up)."""
    folders = []
    for site in raw.get("site_packages", ()):
        for name in system.listdir(f"{site}/nvidia"):
            if re.fullmatch(r"cu\d+", name):
                folders.append((f"{site}/nvidia/{name}", f"pip packages in the environment (nvidia/{name})"))
    return folders


def try_import(system: System, python: str, module: str, timeout: float = _IMPORT_TIMEOUT) -> ImportProbe:
    """Import ``module`` (after torch) in a child of the target interpreter and say how that ended."""
    done = system.run([python, "-c", _IMPORT_SCRIPT, module], timeout)
    if "splatfix-import-ok" in done.stdout and done.returncode == 0:
        return ImportProbe(module, True, "ok", seconds=done.seconds)
    if done.returncode is None:
        return ImportProbe(module, False, "timeout", done.error, done.seconds)
    if done.returncode < 0:
        return ImportProbe(module, False, "signal", done.why(), done.seconds)
    output = done.stderr.strip() or done.stdout.strip()
    if not output:
        output = f"exit code {done.returncode} before the import was done"
    last_line = output.splitlines()[-1]
    # another module's absence is a failure of this one
    if captured(r"^ModuleNotFoundError: No module named '([^']+)'", last_line) == module:
        return ImportProbe(module, False, "not installed", last_line, done.seconds)
    return ImportProbe(module, False, "exception", last_line, done.seconds)


def torch_as_installed(system: System, facts: EnvironmentFacts) -> bool:
    """Whether ``torch/__init__.py`` is byte for byte what pip installed, by its RECORD.

    Importing torch takes seconds, so a torch that looks as it should is not imported to see whether it can be.
    """
    for distribution in facts.distributions.value or ():
        if distribution.name != "torch":
            continue
        record = system.read(f"{distribution.location}/torch-{distribution.version}.dist-info/RECORD") or ""
        recorded = captured(r"^torch/__init__\.py,sha256=([\w-]+)", record, re.MULTILINE)
        text = system.read(f"{distribution.location}/torch/__init__.py")
        if recorded and text is not None:
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode("utf-8")).digest())
            return digest.decode().rstrip("=") == recorded
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
        assigned = dict(simple_assignments(parse_python(text).body))
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
        abi = True  # every wheel from 2.7 on; compat.md section 4
    builder = system.read(f"{folder}/utils/cpp_extension.py") or ""
    return Fact(
        Torch(
            version=version,
            cuda=cuda,
            hip=hip,
            folder=folder,
            cxx11_abi=abi,
            code=code,
            code_error=code_error,
            knows_archs=_known_archs(builder),
            builder_imports=_builder_imports(builder),
        ),
        "torch/version.py read as text",
    )


def _answer(done: Completed) -> dict[str, Any] | None:
    if not done.ok:
        return None
    # sitecustomize or .pth files may print before the answer, which is the last line
    for line in reversed(done.stdout.splitlines()):
        try:
            answer = parse_json(line)
        except ValueError:
            continue
        return answer if isinstance(answer, dict) and "site_packages" in answer else None
    return None


def _interpreter(system: System, raw: Mapping[str, Any]) -> Interpreter:
    prefix = raw["prefix"]
    project = re.split(r"[\\/][^\\/]*$", prefix)[0]
    lock_files = [f"{project}/{name}" for name in ("uv.lock", "poetry.lock")]
    return Interpreter(
        executable=raw["executable"],
        version=raw["version"],
        implementation=raw["implementation"],
        abi_tag=re.sub(r"^\.|\.(so|pyd)$", "", raw["ext_suffix"]),
        platform_tag=raw["platform"],
        prefix=prefix,
        base_prefix=raw["base_prefix"],
        kind=_kind(system, raw),
        site_packages=tuple(raw["site_packages"]),
        externally_managed=bool(raw.get("externally_managed")),
        lock_file=next((path for path in lock_files if system.exists(path)), ""),
    )


def _kind(system: System, raw: Mapping[str, Any]) -> str:
    """Who made the environment; see :class:`Interpreter`."""
    config = system.read(f"{raw['prefix']}/pyvenv.cfg")
    if raw.get("conda"):
        return "conda"
    if config is None:
        return "system"
    if system.exists(f"{raw['prefix']}/pipx_metadata.json"):
        return "pipx"
    return captured(r"^(uv|virtualenv)\s*=", config, re.MULTILINE) or "venv"


def _known_archs(source: str) -> tuple[str, ...]:
    """The ``supported_arches`` list of cpp_extension, as its source spells it."""
    listed = captured(r"supported_arches\s*=\s*\[([^\[\]]*)\]", source)
    return tuple(re.findall(r"['\"]([0-9]{1,2}\.[0-9][af]?)['\"]", listed))


def _builder_imports(source: str) -> tuple[str, ...]:
    """What cpp_extension takes from setuptools' family, at whatever depth of the file."""
    imports: set[str] = set()
    pattern = r"^[ \t]*(?:from|import)[ \t]+(pkg_resources|setuptools|distutils)\b(.*)$"
    for module, rest in re.findall(pattern, source, re.MULTILINE):
        imports.add(module)
        # `from pkg_resources import packaging` broke with setuptools 70, which no longer vendors it there
        if module == "pkg_resources" and re.search(r"import\s+packaging", rest):
            imports.add("pkg_resources.packaging")
    return tuple(sorted(imports))
