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


@check("torch-abi-mismatch")
def torch_abi_mismatch(context: Context, this: Check) -> Iterator[Finding]:
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
                "unused",
                subject=owner,
                evidence=Evidence(item.path, lacking, "its dynamic section and symbol table"),
                owner=owner,
                library=item.path.rpartition("/")[2],
                torch=torch,
            )
    for item, linkage in _linked(context):
        # cxx11-abi-mismatch tells of the other kind of std::string
        if item.links_torch and not (torch and other_cxx11_abi(torch, linkage)):
            yield from _symbols_of_torch(context, this, item, linkage)


def _symbols_of_torch(context: Context, this: Check, item: Extension, linkage: Linkage) -> Iterator[Finding]:
    torch, name = context.torch, _name(item)
    # what splatfix compiled it against, where it was splatfix: within a minor release torch keeps its classes
    owners = (one for one in context.distributions if one.name == item.distribution)
    built = next((owner.built.torch for owner in owners if owner.built), "")
    installed = f"{torch.version} {torch.cuda}" if torch else ""
    if linkage.torch_missing:
        symbols = "imports " + few(linkage.torch_missing, 3)
        yield this.fail(
            subject=name,
            evidence=(
                Evidence(item.path, symbols, "its dynamic symbol table"),
                Evidence("torch", torch.folder if torch else "", "hash tables of its libraries"),
            ),
            remedy=_rebuild(context, item),
            name=name,
            symbols=_count(linkage.torch_missing),
            torch=context.torch_version,
        )
    elif linkage.error:
        yield this.unknown(subject=name, evidence=reason(linkage.error), name=name)
    elif torch and built and _binary_interface(built) != _binary_interface(installed):
        yield this.warn(
            subject=name,
            evidence=(
                Evidence("built with torch", built, "splatfix.json in its metadata folder"),
                Evidence("torch", installed, context.environment.torch.found_via),
            ),
            remedy=_rebuild(context, item),
            name=name,
            built=_words(built),
            installed=_words(installed),
        )
    elif linkage.torch_symbols:
        symbols = f"{linkage.torch_symbols} imported from torch"
        yield this.ok(
            subject=name,
            evidence=Evidence(item.path, symbols, "hash tables of torch's libraries"),
            name=name,
            symbols=counted(linkage.torch_symbols, "symbol"),
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


@check("cxx11-abi-mismatch")
def cxx11_abi_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    torch = context.torch
    for item, linkage in _linked(context):
        if torch is None or not other_cxx11_abi(torch, linkage):
            continue
        symbols = few(linkage.torch_missing, 3) or "names of its imports"
        yield this.fail(
            subject=_name(item),
            evidence=(
                Evidence(item.path, symbols, "its dynamic symbol table"),
                Evidence("torch", f"{torch.version} in {torch.folder}", "exports of libc10"),
            ),
            remedy=_rebuild(context, item),
            name=_name(item),
            own=_ABIS[bool(linkage.cxx11_abi)],
            torch=torch,
            of_torch=_ABIS[bool(torch.cxx11_abi)],
        )


@check("ext-link-incomplete")
def ext_link_incomplete(context: Context, this: Check) -> Iterator[Finding]:
    for item, linkage in _linked(context):
        if linkage.own_missing and not linkage.torch_missing and _is_module(item):
            symbols = "imports " + few(linkage.own_missing, 3)
            yield this.fail(
                subject=_name(item),
                evidence=Evidence(item.path, symbols, "its dynamic symbol table"),
                name=_name(item),
                symbols=_count(linkage.own_missing),
                first=few(linkage.own_missing, 1),
                rebuild=_rebuild(context, item),
            )


@check("shared-lib-not-found")
def shared_lib_not_found(context: Context, this: Check) -> Iterator[Finding]:
    for item, linkage in _linked(context):
        missing = [name for name in linkage.unresolved if not _reported_elsewhere(context, item, name)]
        if missing and _is_module(item):
            yield this.fail(
                subject=_name(item),
                evidence=Evidence(item.path, "needs " + ", ".join(item.needed), "its dynamic section"),
                name=_name(item),
                missing=", ".join(missing),
                first=missing[0],
                rebuild=_rebuild(context, item),
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


@check("glibcxx-missing")
def glibcxx_missing(context: Context, this: Check) -> Iterator[Finding]:
    remedy, python = None, context.interpreter
    if python is not None and python.kind == "conda":
        remedy = run("conda", "install", "-p", python.prefix, "-c", "conda-forge", "libstdcxx-ng>=13")
    yield from _runtime(context, this, ("GLIBCXX", "CXXABI"), "libstdc++.so.6", remedy)


@check("glibc-too-old")
def glibc_too_old(context: Context, this: Check) -> Iterator[Finding]:
    yield from _runtime(context, this, ("GLIBC",), "libc.so.6")


def _runtime(
    context: Context, this: Check, families: tuple[str, ...], library: str, remedy: Step | None = None
) -> Iterator[Finding]:
    """Yield the extensions that want a version of a runtime library (``GLIBCXX_3.4.32``) that is newer than the one here."""
    libraries = {item.name: item for item in reversed(context.environment.runtime_libraries.value or ())}
    here = libraries.get(library)
    newest = {text.partition("_")[0]: text for text in here.versions} if here else {}
    for item, linkage in _linked(context):
        versions = [text for _, text in linkage.versions if text.partition("_")[0] in families]
        if not versions:
            continue
        name = _name(item)
        evidence = [Evidence(item.path, "wants " + ", ".join(versions), "its version table")]
        if here is None:
            yield this.unknown(subject=name, evidence=evidence, library=library, name=name)
            continue
        lacking: dict[str, str] = {}
        for text in versions:
            limit = newest.get(text.partition("_")[0])
            if limit and release(text) > release(limit):
                lacking[text] = limit
        if lacking:
            evidence.append(Evidence(here.path, ", ".join(here.versions), "its version definitions"))
            yield this.fail(
                subject=name,
                evidence=evidence,
                remedy=remedy,
                name=name,
                lacking=", ".join(lacking),
                here=here,
                limits=", ".join(lacking.values()),
            )


@check("duplicate-runtimes")
def duplicate_runtimes(context: Context, this: Check) -> Iterator[Finding]:
    copies = context.environment.runtime_copies
    by_owner: dict[str, list[RuntimeCopy]] = {}
    for copy in copies.value or ():
        if copy.bundled and not copy.path.startswith(("torch/", "nvidia/")):
            by_owner.setdefault(copy.path.split("/")[0].removesuffix(".libs"), []).append(copy)
    for owner, own_copies in by_owner.items():
        yield this.warn(
            subject=owner,
            evidence=[Evidence(copy.library, copy.path, copies.found_via) for copy in own_copies],
            owner=owner,
            libraries=" and ".join(sorted({copy.library for copy in own_copies})),
        )


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
