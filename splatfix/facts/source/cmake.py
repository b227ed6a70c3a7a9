"""What the CMakeLists.txt files of a source say about its build; CMake itself is not run."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from splatfix.core.reading import is_regular_file
from splatfix.facts.source.git_files import read_submodules
from splatfix.facts.source.reader import FolderReader
from splatfix.facts.source.setup_py import SetupScript

_OPTION = re.compile(r"\boption\s*\([^)]{0,2000}\)", re.IGNORECASE)
_OFF = re.compile(r"\boption\s*\(\s*(\w+)[^)]{0,2000}\bOFF\s*\)", re.IGNORECASE)
_IF = re.compile(r"\s*if\s*\(\s*(\w*)(\s*\))?", re.IGNORECASE)
_ELSE = re.compile(r"\s*else(if)?\s*\(", re.IGNORECASE)
_ENDIF = re.compile(r"\s*endif\s*\(", re.IGNORECASE)
_COMMENT = re.compile(r"(?<!\\)#[^\n\[]*")
MENTIONS_CUDA = re.compile(r"cuda|\.cu\b", re.IGNORECASE)
_ENVIRONMENT = re.compile(r"\$ENV\{(\w+)\}")
_VALUE = re.compile(r"\bset\s*\(\s*(\w+)\s+\"?([\w.]+)\"?\s*\)", re.IGNORECASE)
_LIBRARY = re.compile(r"\bCUDA::(?:cuda_driver|(cuda|nvrtc|cufile|nvml))\b")
_MODULE = re.compile(
    r"\b(?:pybind11_add_module|nanobind_add_module|Python3?_add_library)\s*\(\s*(?:\$\{(\w+)\}|(\w+))",
    re.IGNORECASE,
)
_FETCHED = re.compile(
    r"\bFetchContent_Declare\s*\(\s*(\w+)\b[^)]{0,2000}?\b(?:GIT_REPOSITORY|URL)\s+\"?(https?://[^\s\")]+)",
    re.IGNORECASE,
)
_REQUIRED = re.compile(
    r"^[ \t]*find_package\s*\(\s*(\w+)\b[^)]{0,2000}\bREQUIRED\b", re.IGNORECASE | re.MULTILINE
)


class CMakeProject(Struct, frozen=True):
    """What the CMakeLists.txt files of a source say, as far as the options that are on reach."""

    text: str = ""
    """"" where CMake has no part in its build."""
    variables: tuple[str, ...] = ()
    """Environment variables that it reads."""
    libraries: tuple[str, ...] = ()
    """Those of the driver and the toolkit that it links."""
    packages: tuple[str, ...] = ()
    """Those without which it does not configure: ``PCL`` of ``find_package(PCL REQUIRED)``."""
    fetched: Mapping[str, str] = {}
    """The addresses of what it downloads as it configures, by name."""
    modules: tuple[str, ...] = ()
    """The Python modules that it builds, by name; which sources go into them only CMake itself can tell."""


def read_cmake(folder: Path, script: SetupScript, reader: FolderReader) -> CMakeProject:
    """That of a source, without those of its submodules: what they build is no part of it."""
    if not is_regular_file(folder / "CMakeLists.txt"):
        return CMakeProject()
    carried = [folder / item.path for item in read_submodules(folder, reader)]
    files = reader.files_below(folder, ("CMakeLists.txt",), depth=3)
    own = [file for file in files if not any(file.is_relative_to(path) for path in carried)]
    text = _reached(_COMMENT.sub("", "\n".join(reader.text(file) for file in own)), script.literals)
    # cmake_build_extension's ``CMakeExtension(install_prefix="package")`` puts its modules into that package
    prefixes = [script.argument(call, "install_prefix") for call in script.calls("CMakeExtension")]
    packages = [prefix.strip("/").replace("/", ".") for prefix in prefixes if prefix]
    values = dict(_VALUE.findall(text))
    names = (name or values.get(variable) for variable, name in dict.fromkeys(_MODULE.findall(text)))
    return CMakeProject(
        text=text,
        variables=tuple(dict.fromkeys(_ENVIRONMENT.findall(text))),
        libraries=tuple(name or "cuda" for name in _LIBRARY.findall(text)),
        packages=tuple(dict.fromkeys(_REQUIRED.findall(text))),
        fetched=dict(_FETCHED.findall(text)),
        modules=tuple(".".join([*packages[:1], name]) for name in names if name),
    )


def place_of_package(folder: Path, name: str, reader: FolderReader) -> tuple[str, int]:
    """The CMakeLists.txt of a source that asks for a package, and the line in it."""
    asks = re.compile(rf"\s*find_package\s*\(\s*{re.escape(name)}\b", re.IGNORECASE)
    for file in reader.files_below(folder, ("CMakeLists.txt",), depth=3):
        for number, line in enumerate(reader.text(file).splitlines(), 1):
            if asks.match(line):
                return file.relative_to(folder).as_posix(), number
    return "CMakeLists.txt", 1


def _reached(text: str, given: Sequence[str]) -> str:
    """The code without what stands behind ``if(X)``, where ``option(X "..." OFF)`` and setup.py does not give ``-DX=``."""
    off = {name for name in _OFF.findall(text) if not any(item.startswith(f"-D{name}=") for item in given)}
    kept, skipped = [], 0
    for line in text.splitlines():
        begins = _IF.match(line)
        if skipped:
            if begins:
                skipped += 1
            elif _ENDIF.match(line) or (skipped == 1 and _ELSE.match(line)):
                skipped -= 1
        elif begins and begins.group(1) in off and begins.group(2):
            skipped = 1
        else:
            kept.append(line)
    return _OPTION.sub("", "\n".join(kept))
