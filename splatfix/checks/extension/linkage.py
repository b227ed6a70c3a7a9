"""Checks of what extensions link to: torch's symbols, libraries, C++ runtime; found from bytes, without importing anything."""

import re
from collections.abc import Iterator

from splatfix.checks.evidence import reason
from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.core.step import Step, run, say
from splatfix.core.versions import release
from splatfix.core.words import counted, few
from splatfix.model import Evidence, Extension, Finding, Linkage, RuntimeCopy, Torch

check = checks_of("extension")

# They come with the driver; that there is none is told by the checks of the driver.
_DRIVER_LIBRARY = re.compile(r"libcuda\.so|libnvidia-|libnvcuvid|nvcuda\.dll|nvml\.dll", re.IGNORECASE)


_ABIS = {
    True: "the new C++ ABI (_GLIBCXX_USE_CXX11_ABI=1)",
    False: "the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0)",
}
TORCH_LIBRARY = re.compile(r"(lib)?(torch|c10)")


@check("torch-abi-mismatch", "Extensions find in torch the symbols they were built against")
def torch_abi_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    """An extension built against another torch imports C++ symbols that this torch does not export; importing it then ends
    in "undefined symbol: _ZN3c10...". splatfix reads the imports of every extension that links torch and looks each one
    up in the hash tables of torch's libraries, so nothing has to be imported to know it. Where all are found, but splatfix's
    manifest names another torch that it was built against, that is told: classes may be laid out otherwise. A library that
    importing its package does not load, such as open3d's for torch.ops, gives no more than a warning."""
    torch, reported = context.torch, set[str]()
    # one warning for each distribution with libraries for another torch that importing it does not load
    for item in context.extensions:
        unused, owner = item.linkage, item.distribution or _name(item)
        if not item.optional or unused is None or torch is None or owner in reported:
            continue
        if unused.torch_missing or unused.unresolved or other_cxx11_abi(torch, unused):
            reported.add(owner)
            lacking = "needs " + ", ".join(unused.unresolved)
            if unused.torch_missing:
                lacking = "imports " + few(unused.torch_missing, 3)
            yield this.warn(
                f"{owner} brings {item.path.rpartition('/')[2]}, which torch {torch.version} cannot load; "
                f"importing {owner} leaves it alone.",
                subject=owner,
                evidence=Evidence(item.path, lacking, "its dynamic section and symbol table"),
                remedy=f"Nothing, unless you use {owner}'s functions for torch: they need the torch they were built for.",
            )
    for item, linkage in _linked(context):
        # cxx11-abi-mismatch tells of the other kind of std::string
        if item.links_torch and not (torch and other_cxx11_abi(torch, linkage)):
            yield from _symbols_of_torch(context, this, item, linkage)


def _symbols_of_torch(context: Context, this: Check, item: Extension, linkage: Linkage) -> Iterator[Finding]:
    torch, subject = context.torch, _name(item)
    # what splatfix compiled it against, where it was splatfix: within a minor release torch keeps its classes
    owners = (one for one in context.distributions if one.name == item.distribution)
    built = next((owner.built.torch for owner in owners if owner.built), "")
    interface = _binary_interface(f"{torch.version} {torch.cuda}") if torch else None
    other = built and _binary_interface(built) != interface
    if linkage.torch_missing:
        folder, are = "", "are"
        if torch is not None:
            folder = torch.folder
        if len(linkage.torch_missing) == 1:
            are = "is"
        symbols = "imports " + few(linkage.torch_missing, 3)
        yield this.fail(
            f"{subject} was built against another torch: {_count(linkage.torch_missing)} it imports "
            f"{are} not in torch {context.torch_version}.",
            subject=subject,
            evidence=(
                Evidence(item.path, symbols, "its dynamic symbol table"),
                Evidence("torch", folder, "hash tables of its libraries"),
            ),
            remedy=_rebuild(context, item),
        )
    elif linkage.error:
        yield this.unknown(
            f"Whether torch has what {subject} imports is not known.",
            subject=subject,
            evidence=reason(linkage.error),
        )
    elif torch is not None and other:
        installed = f"{torch.version} {torch.cuda}"
        yield this.warn(
            f"{subject} was built against torch {_words(built)}, and torch {_words(installed)} is installed; "
            "it finds its symbols there, and may still read torch's classes wrongly.",
            subject=subject,
            evidence=(
                Evidence("built with torch", built, "splatfix.json in its metadata folder"),
                Evidence("torch", installed, context.environment.torch.found_via),
            ),
            remedy=_rebuild(context, item),
        )
    elif linkage.torch_symbols:
        symbols = f"{linkage.torch_symbols} imported from torch"
        yield this.ok(
            f"{subject}: torch exports all {counted(linkage.torch_symbols, 'symbol')} it imports.",
            subject=subject,
            evidence=Evidence(item.path, symbols, "hash tables of torch's libraries"),
        )


@check("cxx11-abi-mismatch", "Extensions and torch agree on the C++ ABI")
def cxx11_abi_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    """libstdc++ has two std::string. A torch wheel up to 2.6 mostly uses the old one, every wheel from 2.7 on the new one
    (conda's torch differs again). An extension of the other kind ends in an undefined symbol with "Ss" or "cxx11" in its
    name. The installed torch is asked by the name under which libc10 exports its error function."""
    torch = context.torch
    for item, linkage in _linked(context) if torch else ():
        if torch is None or not other_cxx11_abi(torch, linkage):
            continue
        own, of_torch = _ABIS[bool(linkage.cxx11_abi)], _ABIS[bool(torch.cxx11_abi)]
        symbols = few(linkage.torch_missing, 3) or "names of its imports"
        yield this.fail(
            f"{_name(item)} was compiled for {own}, torch {torch.version} for {of_torch}.",
            subject=_name(item),
            evidence=(
                Evidence(item.path, symbols, "its dynamic symbol table"),
                Evidence("torch", f"{torch.version} in {torch.folder}", "exports of libc10"),
            ),
            remedy=_rebuild(context, item),
        )


@check("ext-link-incomplete", "Extensions contain all of their own code")
def ext_link_incomplete(context: Context, this: Check) -> Iterator[Finding]:
    """A .cu file that was left out of the build, or a build folder with objects of two versions, gives a module that
    links but misses its own functions: the import ends in an undefined symbol that is not torch's."""
    for item, linkage in _linked(context):
        if linkage.own_missing and not linkage.torch_missing and _is_module(item):
            symbols = "imports " + few(linkage.own_missing, 3)
            yield this.fail(
                f"{_name(item)} lacks {_count(linkage.own_missing)} that no library it needs has: "
                f"{few(linkage.own_missing, 1)}.",
                subject=_name(item),
                evidence=Evidence(item.path, symbols, "its dynamic symbol table"),
                remedy=(
                    "Remove its build folder, then rebuild the right commit from its source folder.",
                    *_rebuild(context, item),
                ),
            )


@check("shared-lib-not-found", "Libraries that extensions need can be found")
def shared_lib_not_found(context: Context, this: Check) -> Iterator[Finding]:
    """Every library named in an extension's dynamic section is looked for where the loader would look: its RPATH or
    RUNPATH, LD_LIBRARY_PATH, the libraries that torch has loaded by then, conda's lib folder, ld.so.conf, the system
    folders. A missing one ends the import with "cannot open shared object file"."""
    for item, linkage in _linked(context):
        if not _is_module(item):
            continue
        missing = [name for name in linkage.unresolved if not _reported_elsewhere(context, item, name)]
        if missing:
            yield this.fail(
                f"{_name(item)} needs {', '.join(missing)}, found nowhere.",
                subject=_name(item),
                evidence=Evidence(item.path, "needs " + ", ".join(item.needed), "its dynamic section"),
                remedy=(
                    f"Install the package that brings {missing[0]}, or rebuild against what is here:",
                    *_rebuild(context, item),
                ),
            )


def _reported_elsewhere(context: Context, item: Extension, library: str) -> bool:
    """Tell whether another check says why a library is missing."""
    if _DRIVER_LIBRARY.match(library):
        return True
    if not context.environment.torch_installed.value and TORCH_LIBRARY.match(library):
        return True  # torch-missing
    cuda = context.torch_cuda
    of_torch = cuda is not None and item.links_torch and library.startswith("libcudart.")
    return of_torch and release(library)[:1] != (cuda or ())[:1]  # cuda-runtime-mismatch


@check("glibcxx-missing", "libstdc++ is new enough for the extensions")
def glibcxx_missing(context: Context, this: Check) -> Iterator[Finding]:
    """An extension built with a newer compiler than the libstdc++ that Python loads ends in "version `GLIBCXX_3.4.32' not
    found". In a conda environment that library is conda's own, which is often older than the system's."""
    remedy = say("Upgrade the system's libstdc++6, or rebuild the extension with this machine's g++.")
    python = context.interpreter
    if python is not None and python.kind == "conda":
        remedy = run("conda", "install", "-p", python.prefix, "-c", "conda-forge", "libstdcxx-ng>=13")
    yield from _runtime(context, this, ("GLIBCXX", "CXXABI"), "libstdc++.so.6", remedy)


@check("glibc-too-old", "glibc is new enough for the extensions")
def glibc_too_old(context: Context, this: Check) -> Iterator[Finding]:
    """A module that was compiled on a newer distribution wants a GLIBC version that this one lacks. glibc cannot be
    upgraded apart from the distribution; the module has to be built here, or in a container of the right age."""
    remedy = (
        "Rebuild it on this machine from its source folder, or use a container with a newer distribution."
    )
    yield from _runtime(context, this, ("GLIBC",), "libc.so.6", say(remedy))


@check("duplicate-runtimes", "One copy of torch's and CUDA's runtime in the environment")
def duplicate_runtimes(context: Context, this: Check) -> Iterator[Finding]:
    """A wheel that was repaired after linking torch brings its own hash-renamed libc10 or libcudart. Two libc10 in one
    process do not know each other's types and allocators: tensors passed between them crash or are refused. torch's own
    bundled libraries do not count."""
    copies = context.environment.runtime_copies
    by_owner: dict[str, list[RuntimeCopy]] = {}
    for copy in copies.value or ():
        if copy.bundled and not copy.path.startswith(("torch/", "nvidia/")):
            by_owner.setdefault(copy.path.split("/")[0].removesuffix(".libs"), []).append(copy)
    for owner, own_copies in by_owner.items():
        libraries = " and ".join(sorted({copy.library for copy in own_copies}))
        yield this.warn(
            f"{owner} brings its own {libraries} beside torch's.",
            subject=owner,
            evidence=[Evidence(copy.library, copy.path, copies.found_via) for copy in own_copies],
            remedy=f"Build {owner}'s extensions from source against the installed torch instead of its wheel.",
        )


def _words(torch: str) -> str:
    version, _, cuda = torch.partition(" ")
    # the local part of a version (2.9.1+cu128) tells the CUDA already
    if not cuda or "+" in version:
        return version
    return f"{version} of CUDA {cuda}"


def _binary_interface(torch: str) -> tuple[tuple[int, ...], str]:
    version, _, cuda = torch.partition(" ")
    return release(version.partition("+")[0])[:2], cuda


def _linked(context: Context) -> Iterator[tuple[Extension, Linkage]]:
    # torch-companions-mismatch tells of them
    told = {pin.owner.name.lower() for pin in context.companion_pins if pin.misfit in ("release", "build")}
    for item in context.extensions:
        # copies of torch's own libraries that a wheel bundles are told by duplicate-runtimes
        bundled = re.match(r"lib(c10|torch)", item.path.rpartition("/")[2])
        if item.linkage is not None and not (bundled or item.optional or item.distribution in told):
            yield item, item.linkage


def _is_module(item: Extension) -> bool:
    """Tell a module that is imported by its name from a library, which may be one of several for different machines
    (torchcodec brings one for each FFmpeg), of which its package loads the one that fits."""
    return item.importable and not item.path.rpartition("/")[2].startswith("lib")


def other_cxx11_abi(torch: Torch, linkage: Linkage) -> bool:
    """Tell whether it was compiled for the other of libstdc++'s two ABIs; False where either is not known."""
    known = torch.cxx11_abi is not None and linkage.cxx11_abi is not None
    return known and torch.cxx11_abi != linkage.cxx11_abi


def _runtime(
    context: Context, this: Check, families: tuple[str, ...], library: str, remedy: Step
) -> Iterator[Finding]:
    """Yield the extensions that want a version of a runtime library (``GLIBCXX_3.4.32``) that is newer than the one here."""
    libraries = {item.name: item for item in reversed(context.environment.runtime_libraries.value or ())}
    here = libraries.get(library)
    newest = {text.partition("_")[0]: text for text in here.versions} if here else {}
    for item, linkage in _linked(context):
        versions = [text for _, text in linkage.versions if text.partition("_")[0] in families]
        if not versions:
            continue
        evidence = [Evidence(item.path, "wants " + ", ".join(versions), "its version table")]
        if here is None:
            yield this.unknown(
                f"Whether {library} has the versions {_name(item)} wants is not known.",
                subject=_name(item),
                evidence=evidence,
            )
            continue
        lacking: dict[str, str] = {}
        for text in versions:
            limit = newest.get(text.partition("_")[0])
            if limit and release(text) > release(limit):
                lacking[text] = limit
        if lacking:
            evidence.append(Evidence(here.path, ", ".join(here.versions), "its version definitions"))
            yield this.fail(
                f"{_name(item)} wants {', '.join(lacking)}; {here.path} ends at {', '.join(lacking.values())}.",
                subject=_name(item),
                evidence=evidence,
                remedy=remedy,
            )


def _name(item: Extension) -> str:
    """Name its package; the distribution's name where that says the same or the file lies by itself."""
    folder, _, file = item.path.rpartition("/")
    if "/" in folder:
        return folder.replace("/", ".")
    return item.distribution or folder or file.split(".")[0]


def _rebuild(context: Context, item: Extension) -> tuple[Step, ...]:
    if (item.distribution or "").lower() in ("torchvision", "torchaudio"):
        return (say(f"Install the {item.distribution} that belongs to this torch, from the same index."),)
    return (context.reinstall(item.distribution, text=f"Rebuild {_name(item)} from its source folder"),)


def _count(symbols: tuple[str, ...]) -> str:
    # the probe stops at twenty
    if len(symbols) >= 20:
        return "20 or more symbols"
    return counted(len(symbols), "symbol")
