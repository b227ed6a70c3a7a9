"""Stand-ins for the CUDA extensions of splatting stacks: real compiled extensions, for the CPU.

Their compiled functions take exactly what the public ones take (`signatures.toml`), so that a wrong call fails as with the
real one; they compute with splatfix's own kernels, or are sabotaged. The Python around them is generated from
`splatfix/knowledge/data/stacks.json`: settings, arguments of `forward`, and what comes back.

    put(site, "mip")                                  # into a folder on sys.path
    put(site, "simple-knn", sabotage="segfault")

One compilation serves all (about a minute, kept in the cache that `cache_folder` names).
"""

import contextlib
import functools
import hashlib
import importlib.machinery
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
TABLE = HERE.parents[1] / "splatfix" / "knowledge" / "data" / "stacks.json"
_TABLES: dict[str, Any] = tomllib.loads((HERE / "tables.toml").read_text(encoding="utf-8"))
SABOTAGES = tuple(_TABLES["sabotages"])
_KINDS = {name: kind for kind, names in _TABLES["settings"].items() for name in names}


@functools.cache
def signatures() -> dict[str, dict[str, str]]:
    """Variant -> compiled function -> its arguments and results, inherited ones included."""
    table: dict[str, dict[str, str]] = tomllib.loads((HERE / "signatures.toml").read_text(encoding="utf-8"))
    result: dict[str, dict[str, str]] = {}
    for name, row in table.items():
        result[name] = {**result.get(row.get("like", ""), {}), **row}
        result[name].pop("read")
        result[name].pop("like", None)
    return result


VARIANTS = tuple(signatures())


def missing() -> str:
    """What this machine lacks to compile them; "" for nothing."""
    if sys.platform != "linux":
        return "stand-ins are made for Linux"
    return "; ".join(f"no {name} here" for name in ("c++", "ninja") if shutil.which(name) is None)


def module_of(variant: str) -> str:
    """The package that the variant is imported as."""
    return {"fused-ssim": "fused_ssim", "simple-knn": "simple_knn"}.get(variant) or _row(variant)["module"]


def put(site: Path, variant: str, sabotage: str = "") -> None:
    """Install a stand-in into a folder that is on ``sys.path``, compiled when it is not yet."""
    assert sabotage in SABOTAGES, sabotage
    package = site / module_of(variant)
    package.mkdir(parents=True, exist_ok=True)
    for name, text in _package(variant).items():
        (package / name).write_text(text, encoding="utf-8")
    # not sysconfig's: on 3.11 its table is seen half filled by a second thread that asks at the same time
    library, suffix = _library(variant), importlib.machinery.EXTENSION_SUFFIXES[0]
    target = site.joinpath(*library.split("."))
    shutil.copy2(_compiled(), target.with_name(target.name + suffix))
    described = f"{variant}\n{sabotage}\n{module_of(variant)}.standin_compute\n"
    target.with_name(f"{target.name}.standin").write_text(described, encoding="utf-8")


@contextlib.contextmanager
def imported(site: Path, variant: str) -> Iterator[Any]:
    """The stand-in that was put into ``site``, imported into this process; afterwards it is forgotten."""
    name = module_of(variant)
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module(f"{name}._C" if variant == "simple-knn" else name)
    finally:
        sys.path.remove(str(site))
        for loaded in [key for key in sys.modules if key.partition(".")[0] in (name, "fused_ssim_cuda")]:
            del sys.modules[loaded]


def cache_folder() -> Path:
    """Where compiled stand-ins are kept: SPLATFIX_STANDINS, or a folder of this user's beside other temporary files."""
    named = os.environ.get("SPLATFIX_STANDINS")
    return Path(named) if named else Path(tempfile.gettempdir()) / f"splatfix-standins-{os.getuid()}"


def _library(variant: str) -> str:
    """The compiled module."""
    return "fused_ssim_cuda" if variant == "fused-ssim" else f"{module_of(variant)}._C"


@functools.cache
def _compiled() -> Path:
    """The library that serves all variants; compiled where the cache lacks it."""
    import torch
    from torch.utils import cpp_extension

    bindings = _bindings(list(VARIANTS))
    source = (HERE / "extension.cpp").read_text(encoding="utf-8")
    key = json.dumps([source, bindings, torch.__version__, sys.version])
    folder = cache_folder() / hashlib.sha256(key.encode()).hexdigest()[:16]
    library = folder / "standin.so"
    if not library.is_file():
        with tempfile.TemporaryDirectory() as work:
            Path(work, "signatures.inc").write_text(bindings, encoding="utf-8")
            options = {
                "extra_cflags": ["-O0", f"-I{work}"],
                "build_directory": work,
                "is_python_module": False,
            }
            cpp_extension.load("standin", [str(HERE / "extension.cpp")], **options)
            folder.mkdir(parents=True, exist_ok=True)
            # whole, also beside another process that compiles
            own = shutil.copy2(Path(work, "standin.so"), folder / f"standin.{os.getpid()}")
            Path(own).replace(library)
    return library


def _bindings(variants: list[str]) -> str:
    """C++: each variant's functions; those that take the same types share one instantiation."""
    kinds: dict[tuple[str, ...], str] = {}
    lines: list[str] = []
    for variant in variants:
        lines.append(f'if (variant == "{variant}") {{')
        for function, text in signatures()[variant].items():
            takes, _, gives = text.partition("->")
            texts = takes.split()
            types = tuple(_TABLES["types"][word.partition(":")[2]] for word in texts)
            kind = kinds.setdefault(types, f"bind{len(kinds)}")
            names = " ".join(word.partition(":")[0] for word in [*texts, "->", *gives.split()])
            lines.append(f'    m.def("{function}", {kind}("{function}", "{names}"));')
        lines.append("}")
    heads = []
    for types, kind in kinds.items():
        parameters = ", ".join(f"{type_} a{i}" for i, type_ in enumerate(types))
        values = ", ".join(f"a{i}" for i in range(len(types)))
        heads.append(
            f"auto {kind} = [](const char* function, const char* names) {{\n"
            f"    return [=]({parameters}) {{ return call(function, names, py::make_tuple({values})); }};\n}};"
        )
    return "\n".join([*heads, *lines]) + "\n"


@functools.cache
def _row(variant: str) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))["variants"][variant]
    return row


def _package(variant: str) -> dict[str, str]:
    """The Python files of the package; simple_knn has none of its own."""
    files = {"standin_compute.py": (HERE / "compute.py").read_text(encoding="utf-8")}
    if variant == "fused-ssim":
        files["__init__.py"] = (HERE / "fused_ssim.jinja").read_text(encoding="utf-8")
    elif variant != "simple-knn":
        files["__init__.py"] = _rasterizer(variant)
    return files


def _rasterizer(variant: str) -> str:
    """The Python around a rasterizer: settings, an autograd function that calls ``_C`` by position, and the module."""
    row, compiled = _row(variant), signatures()[variant]
    function = next(name for name in compiled if re.fullmatch(r"rasterize_\w+s", name))
    takes, gives = _names(compiled[function])
    back_takes, back_gives = _names(compiled[f"{function}_backward"])
    settings, forward = row["settings"], row["forward"]

    def argument(name: str) -> str:
        if name == "settings":
            return "settings.settings.to_dict()"
        if name == "pixel_weights":
            return "torch.zeros(0) if settings.pixel_weights is None else settings.pixel_weights"
        return f"settings.{name}" if name in settings else name

    kept = [name for name in dict.fromkeys([*takes, *gives]) if name in back_takes and name not in settings]
    calls = {"arguments": list(map(argument, takes)), "back_arguments": list(map(argument, back_takes))}
    calls |= {"gives": gives, "back_gives": back_gives, "results": row["returns"], "kept": kept}
    names = {"function": function, "prefix": row["rasterizer_class"].removesuffix("Rasterizer")}
    inputs = {"forward": forward, "optional": [name for name in forward if name in _TABLES["optional"]]}
    inputs["inputs"] = [_TABLES["inputs"].get(name, name) for name in forward]
    fields = [(name, _KINDS.get(name, "torch.Tensor")) for name in settings]
    return _filled_in(row=row, variant=variant, fields=fields, **names, **calls, **inputs)


def _filled_in(**values: Any) -> str:
    text = (HERE / "rasterizer.jinja").read_text(encoding="utf-8")
    filled = jinja2.Template(text, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return filled.render(values)


def _names(text: str) -> tuple[list[str], list[str]]:
    takes, gives = ([word.partition(":")[0] for word in part.split()] for part in text.split("->"))
    return takes, gives
