"""Runs a setup.py in the place of a build, and writes down what it would compile. Standard library only.

    python setup_recorder.py FOLDER ROOT [CAPABILITY]    one JSON document on standard output, see ``splatfix.model.inquiry``

FOLDER has the setup.py. ROOT is the scratch folder around it; nothing is written elsewhere. With a CAPABILITY, such as ``12.0``,
torch sees one GPU, else none. ``setup()`` goes on into its own ``build_ext``, torch's too, in which each compiler is written down
instead of being run: only there the final ``-gencode`` is decided. Where there is no torch, a stand-in answers. Python 3.8 and
newer; 3.7 answers that it cannot shut the network.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import re
import runpy
import subprocess
import sys
import traceback
from importlib.machinery import ModuleSpec
from types import FrameType, SimpleNamespace
from typing import Any, Dict, List, Optional

HERE, ROOT = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
CAPABILITY = [int(number) for number in "".join(sys.argv[3:]).split(".") if number]
AFTER_IMPORT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "after_import.py")
LIBRARY = os.path.dirname(os.__file__)
ENVIRON = (os.__file__, os.path.join(LIBRARY, "_collections_abc.py"))
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
REMOVING = ("os.remove", "os.rmdir", "shutil.rmtree")  # in that, files are named relative to open folders
LOCAL = (None, "", "localhost", "127.0.0.1", "::1")

FOUND: Dict[str, Any] = {"setups": [], "torch": "", "asks_gpu": False, "reads": [], "sets": {}, "error": ""}
FOUND.update(children=[], downloads=[], written=[])


def text_of(value: object) -> str:
    """Return a value as text, with paths of the copy relative to the folder."""
    return str(value).replace(HERE + os.sep, "").replace(HERE, ".")


def note(kind: str, value: object) -> None:
    """Write down what happened, once."""
    text = text_of(value)
    if text not in FOUND[kind]:
        FOUND[kind].append(text)


def asked_by_setup(*through: str) -> bool:
    """Tell whether the folder's own code asks: the nearest frame that is neither ours nor the standard library's.

    Args:
        through: files of the standard library that may stand between; all of them when left out.
    """
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        between = name.startswith(through or LIBRARY) and "-packages" not in name
        if not (between or name == __file__ or name.startswith("<frozen ")):
            return os.path.realpath(name).startswith(ROOT + os.sep)
        frame = frame.f_back
    return False


def described(problem: BaseException) -> str:
    """Return an exception in one line, with the last line of the folder's own code that it came through."""
    line = ""
    for frame in traceback.extract_tb(problem.__traceback__):
        if frame.filename.startswith(HERE):
            line = " ({} line {})".format(frame.filename, frame.lineno)
    text = "{}: {}{}".format(type(problem).__name__, str(problem)[:400], line)
    return " ".join(text_of(text).split())


COPIED: List[str] = []
"""Variables that a copy of all of them comes to next: that is no reading."""


class Environ(os._Environ):  # type: ignore[type-arg]
    """``os.environ`` that writes down which variables the folder's own code reads and sets."""

    def __iter__(self) -> Any:
        COPIED[:] = super().__iter__()
        return iter(tuple(COPIED))

    def __getitem__(self, name: str) -> str:
        if COPIED[:1] == [name]:
            COPIED.pop(0)
        elif asked_by_setup(*ENVIRON):
            note("reads", name)
        return str(super().__getitem__(name))

    def __contains__(self, name: object) -> bool:
        if asked_by_setup(*ENVIRON):
            note("reads", name)
        return super().__contains__(name)

    def __setitem__(self, name: str, value: str) -> None:
        if asked_by_setup(*ENVIRON):
            FOUND["sets"][name] = text_of(value)
        super().__setitem__(name, value)


# Children that only look at something: where a program is, the machine, git's commit, a version.
HARMLESS = re.compile(
    r"(\S*[/\\])?((which|where|uname|ldconfig|nvidia-smi|pkg-config|lscpu|nproc|sw_vers)( [^|&;<>`$]*)?"
    r"|git (-C \S+ )?(rev-parse|describe|log|status|show|rev-list)( [^|&;<>`$]*)?"
    r"|[\w.+-]+( (--version|-version|-V|-v|-dumpversion|-dumpfullversion|-dumpmachine|--list-gpu-arch))+"
    r"|python[\w.]* -c .*)",
    re.DOTALL,
)


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """A child that looks at something runs; of another it is written down, and one that does nothing runs in its place."""

    def __init__(self, args: Any, *more: Any, **keywords: Any) -> None:
        words = [args] if isinstance(args, (str, bytes, os.PathLike)) else args
        text = " ".join(os.fsdecode(word) for word in words)
        if not HARMLESS.fullmatch(text):
            note("children", text[:400])
            args, more = [sys.executable, "-I", "-S", "-c", ""], more[:1]
            keywords.update(shell=False, executable=None, env=None, cwd=None)
        super().__init__(args, *more, **keywords)


def audit(event: str, arguments: Any) -> None:
    """Refuse every download, and what the folder's own code writes outside of ROOT."""
    is_address = event == "urllib.Request" and arguments[0].startswith(("http", "ftp"))
    if is_address or (event == "socket.getaddrinfo" and arguments[0] not in LOCAL):
        note("downloads", arguments[0])
        raise OSError("no network while setup.py is asked")
    if event == "os.exec":
        note("children", os.fsdecode(arguments[0]))
        raise OSError("no other program takes the place of setup.py while it is asked")
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
        arguments = arguments[:1]
    elif event == "os.symlink":
        arguments = arguments[1:2]  # where the link leads, nothing is changed
    elif event not in ("os.mkdir", "os.rename", "os.link", "os.truncate", "os.chmod", *REMOVING):
        return
    for path in arguments:
        if not isinstance(path, (str, bytes, os.PathLike)) or (event == "os.mkdir" and os.path.isdir(path)):
            continue
        if event in REMOVING and not os.path.lexists(path):
            continue
        path = os.path.realpath(os.fsdecode(path))
        if not path.startswith((ROOT + os.sep, "/dev/", "/proc/")) and asked_by_setup():
            note("written", path)
            raise PermissionError(13, "nothing is written elsewhere while setup.py is asked", path)


def pretend_gpu(cuda: Any) -> None:
    """Have ``torch.cuda`` answer for one GPU of CAPABILITY, or for none."""
    major, minor = CAPABILITY or (0, 0)
    gpu = SimpleNamespace(major=major, minor=minor, total_memory=24 << 30, multi_processor_count=100)
    values: Dict[str, Any] = {"is_available": bool(CAPABILITY), "device_count": int(bool(CAPABILITY))}
    values.update(get_device_capability=(major, minor), get_device_properties=gpu)
    values.update(current_device=0, get_device_name="GPU")

    def answer(name: str, *_: Any, **__: Any) -> Any:
        # torch's own question decides where TORCH_CUDA_ARCH_LIST is not set
        if asked_by_setup() or sys._getframe(1).f_code.co_name == "_get_cuda_arch_flags":
            FOUND["asks_gpu"] = True
        if not CAPABILITY and name not in ("is_available", "device_count"):
            raise RuntimeError("No CUDA GPUs are available")
        return values[name]

    for name in values:
        setattr(cuda, name, functools.partial(answer, name))


def record_compiling(builder: Any) -> None:
    """Have torch's builder write down what it would give ninja."""
    signature = inspect.signature(builder._write_ninja_file_and_compile_objects)

    def write_down(*arguments: Any, **keywords: Any) -> None:
        given = signature.bind(*arguments, **keywords).arguments
        flags = [*(given.get("cuda_cflags") or ()), *(given.get("cuda_post_cflags") or ())]
        compiled([*given["sources"], *flags])

    builder._write_ninja_file_and_compile_objects = write_down
    builder.load = builder.load_inline = lambda *_, **__: note("children", "torch.utils.cpp_extension.load")


class StandIn:
    """Finds a stand-in for torch, where nothing else has found one."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        """Return the spec of the stand-in, or of a part of it."""
        if name != "torch" and not (name.startswith("torch.") and FOUND["torch"] == "stub"):
            return None
        FOUND["torch"] = "stub"
        part = functools.reduce(getattr, name.split(".")[1:], stand_in())
        loader: Any = SimpleNamespace(create_module=lambda spec: part, exec_module=lambda module: None)
        return ModuleSpec(name, loader, is_package=True)


@functools.lru_cache(maxsize=None)
def stand_in() -> Any:
    """Make a torch 2.11 for CUDA 13 in which every other name stands for anything."""
    from unittest.mock import MagicMock

    from setuptools import Extension
    from setuptools.command.build_ext import build_ext

    def cuda_extension(*arguments: Any, **keywords: Any) -> Any:
        made = Extension(*arguments, **keywords)
        made.libraries = [*made.libraries, "cudart"]
        return made

    torch = MagicMock()
    torch.__version__ = torch.version.__version__ = "2.11.0"
    torch.version.cuda, torch.version.hip, builder = "13.0", None, torch.utils.cpp_extension
    pretend_gpu(torch.cuda)
    builder.BuildExtension = type("BuildExtension", (build_ext,), {"with_options": lambda **_: build_ext})
    builder.CppExtension, builder.CUDAExtension = Extension, cuda_extension
    builder.CUDA_HOME, builder.ROCM_HOME, builder.IS_HIP_EXTENSION = os.environ.get("CUDA_HOME"), None, False
    builder.include_paths.return_value = builder.library_paths.return_value = []
    return torch


BUILDING: List[Dict[str, Any]] = []
"""The module that is being compiled, as it is written down."""
ARCHS = re.compile(r"(?<!\S)(?:-gencode|--generate-code|--gpu-architecture|-arch|-code|--gpu-code)[= ]\S+")


def compiled(words: Any, *_: Any, **__: Any) -> None:
    """Write down for which architectures nvcc would compile."""
    text = " ".join(str(word) for word in words).replace("'", "").replace('"', "")
    if BUILDING and re.search(r"\.cuh?(?!\S)", text):
        around = [os.environ.get("NVCC_PREPEND_FLAGS", ""), text, os.environ.get("NVCC_APPEND_FLAGS", "")]
        archs = ARCHS.findall(" ".join(around))
        if archs not in BUILDING[0]["archs"]:
            BUILDING[0]["archs"].append(archs)


def setup(**attributes: Any) -> None:
    """Stand in for ``setup()``: read what it declares, also in setup.cfg and pyproject.toml, and go on into its build_ext."""
    import setuptools

    attributes.pop("setup_requires", None)  # setuptools would install it
    call: Dict[str, Any] = {"name": str(attributes.get("name") or ""), "modules": [], "error": ""}
    call["commands"] = list(attributes.get("cmdclass") or ())
    FOUND["setups"].append(call)
    distribution: Any = attributes.pop("distclass", setuptools.Distribution)(attributes)
    distribution.parse_config_files()
    call.update(name=str(distribution.metadata.name or ""), version=str(distribution.metadata.version or ""))
    call["packages"] = [str(name) for name in distribution.packages or ()]
    call["requires"] = [str(requirement) for requirement in distribution.install_requires or ()]
    modules = {}
    for extension in distribution.ext_modules or ():
        sources = [text_of(os.fspath(source)) for source in extension.sources]
        is_cuda = "cudart" in (extension.libraries or ()) or any(name.endswith(".cu") for name in sources)
        module = {"name": str(extension.name), "sources": sources, "cuda": is_cuda, "archs": []}
        modules[id(extension)] = module
    call["modules"] = list(modules.values())
    if modules and FOUND["torch"] != "stub":
        try:
            go_on(distribution, modules)
        except (Exception, SystemExit) as problem:
            call["error"] = described(problem)
    for extension in distribution.ext_modules or ():  # not before, because build_ext may make some of them
        lacking = [text_of(source) for source in extension.sources if not os.path.exists(source)]
        modules[id(extension)]["missing"] = lacking


def go_on(distribution: Any, modules: Dict[int, Dict[str, Any]]) -> None:
    """Run build_ext as a build would, with every compiler written down in the place of being run."""
    command = distribution.get_command_obj("build_ext")
    command.force = True  # it compares no file's time with that of an object that is not there
    command.build_lib = command.build_temp = os.path.join(ROOT, "asked")
    command.ensure_finalized()
    command.inplace = 0
    build = command.build_extension

    def build_extension(extension: Any) -> None:
        BUILDING[:] = filter(None, [modules.get(id(extension))])
        if hasattr(command.compiler, "spawn"):  # a run() of its own may have made none
            command.compiler.spawn = command.compiler.call = compiled  # call: setuptools from 84 on
        build(extension)

    command.build_extension = build_extension
    command.run()


def main() -> None:
    """Run the setup.py and print what was found."""
    answer = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # setup.py may print
    os.chdir(HERE)
    sys.argv[:], sys.dont_write_bytecode = ["setup.py", "bdist_wheel"], True
    del sys.path[0]  # the folder of this file, whose modules are nobody's libraries
    try:
        for name in ("setuptools", "distutils.core"):  # in this order: setuptools brings its own distutils
            vars(importlib.import_module(name)).update(setup=setup)
        sys.path.insert(0, HERE)
        after_import = runpy.run_path(AFTER_IMPORT)["AfterImport"]
        after_import("torch", lambda _: FOUND.update(torch=FOUND["torch"] or "installed"))
        after_import("torch.cuda", pretend_gpu)
        after_import("torch.utils.cpp_extension", record_compiling)
        sys.meta_path.append(StandIn)
        subprocess.Popen = Popen  # type: ignore[misc]
        # what setup.py itself hands to a shell, refused or written down as any child
        os.system = lambda command: Popen(command, shell=True).wait() << 8  # nosec B604
        sys.addaudithook(audit)  # its own error with Python 3.7, which cannot shut the network
        os.environ.__class__ = Environ
        runpy.run_path(os.path.join(HERE, "setup.py"), run_name="__main__")
    except BaseException as problem:
        if not isinstance(problem, SystemExit) or problem.code:
            FOUND["error"] = described(problem)
    answer.write(json.dumps(FOUND))
    answer.flush()
    os._exit(0)  # whatever threads were started


main()
