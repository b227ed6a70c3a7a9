"""Checks of what extensions compile at first use: whether torch's cache fits this torch and this GPU."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator

from splatfix.checks.evidence import reason
from splatfix.checks.extension.linkage import other_cxx11_abi
from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.context.commands import pip, remove_command
from splatfix.context.coverage import code_words
from splatfix.context.hosts import compiled_module, imported_by_host, other_releases, release_served
from splatfix.core.step import Step
from splatfix.knowledge.dropins import DROPINS, dropin_named
from splatfix.model import Evidence, Finding, JitCache

check = checks_of("extension")

# The longest build of a splatting extension at first use (gsplat, all of it, on one core) ends well before.
_LONGEST_BUILD = datetime.timedelta(hours=2)


@check("stale-jit-cache", "Extensions compiled at first use fit the installed torch")
def stale_jit_cache(context: Context, this: Check) -> Iterator[Finding]:
    """gsplat's wheel and others compile their CUDA code at the first import and keep it in torch's cache
    (`~/.cache/torch_extensions`, or TORCH_EXTENSIONS_DIR). A library that was left there by another torch is loaded
    again as it is, and fails with an undefined symbol. Only the cache folder of this Python and CUDA is judged."""
    torch = context.torch
    for item in context.jit_caches:
        linkage = item.linkage
        if item.error:
            yield _stale(context, this, item, f"its library cannot be read ({item.error})")
        elif torch is not None and (linkage.torch_missing or other_cxx11_abi(torch, linkage)):
            obstacle = f"it was compiled against another torch than {torch.version}"
            yield _stale(context, this, item, obstacle)
        elif linkage.error:
            yield this.unknown(
                f"Whether the cached {item.name} fits torch is not known.",
                subject=item.name,
                evidence=reason(linkage.error),
            )
        elif item.library is not None:
            yield this.ok(
                f"The cached {item.name} fits the installed torch.",
                subject=item.name,
                evidence=Evidence(item.folder, f"built {item.built}", "torch's extension cache"),
            )


@check("jit-cache-arch", "Extensions compiled at first use carry code for the GPU", gpu_code=True)
def jit_cache_arch(context: Context, this: Check) -> Iterator[Finding]:
    """The cache does not know for which GPU a library was compiled. After a change of the graphics card the old library
    is loaded again, and the first kernel ends in "no kernel image is available for execution on the device"."""
    for item in context.jit_caches:
        # without code nothing can be judged: a library for the CPU, or one that could not be read
        for target in context.targets if item.code else ():
            verdict = context.judge(item.code, target.arch)
            if verdict.usable:
                continue
            flags = [Evidence("build.ninja", flag) for flag in item.gencode[:8]]
            yield this.fail(
                f"The cached {item.name} cannot run on {target.label}: {verdict.reason}.",
                subject=f"{item.name} on {target.label}",
                evidence=(Evidence(item.folder, code_words(item.code), "fat binaries read as bytes"), *flags),
                remedy=_remove(context, item),
            )


@check("jit-cache-locked", "No build at first use was left locked")
def jit_cache_locked(context: Context, this: Check) -> Iterator[Finding]:
    """While torch compiles an extension at first use it holds a file called `lock`. A build that was killed leaves the file
    behind, and every later import waits for it without a word. A lock younger than two hours may be a build at work."""
    for item in context.jit_caches:
        if item.locked is None:
            continue
        age = datetime.timedelta()
        # facts that somebody changed by hand may hold no times
        with contextlib.suppress(ValueError, TypeError):
            then, now = map(datetime.datetime.fromisoformat, (item.locked, context.facts.gathered))
            age = now - then
        evidence = Evidence(f"{item.folder}/lock", f"written {item.locked}", "its time stamp")
        if age < _LONGEST_BUILD:
            yield this.skip(
                f"{item.name} is being compiled, or its build was just ended.",
                subject=item.name,
                evidence=evidence,
            )
        else:
            yield this.fail(
                f"A killed build left {item.name} locked; importing it waits for ever.",
                subject=item.name,
                evidence=evidence,
                remedy=("When no build is running:", remove_command(context.facts, f"{item.folder}/lock")),
            )


@check("gsplat-without-kernels", "gsplat has its kernels, or what compiles them")
def gsplat_without_kernels(context: Context, this: Check) -> Iterator[Finding]:
    """gsplat's wheel on PyPI holds no compiled code; it compiles at the first import where it finds nvcc, which takes minutes on
    many cores and has taken one to three hours on few. Without a toolkit it prints "No CUDA toolkit found. gsplat will be
    disabled.", the import succeeds, and every call fails. splatfix's drop-in for its compiled module needs neither."""
    gsplat = next((package for package in context.packages if package.module == "gsplat"), None)
    toolkits, via = context.machine.toolkits, context.environment.extensions.found_via
    if gsplat is None or gsplat.dropin:
        return
    compiled = [item.path for item in context.extensions if item.path.startswith("gsplat/")]
    for item in context.jit_caches:
        if item.name.startswith("gsplat") and item.library:
            compiled.append(item.folder)
    without_compiler = context.install("gsplat", "--backend", "nvrtc", text="Without a compiler, in seconds")
    if compiled:
        yield this.ok("gsplat's kernels are compiled.", evidence=Evidence("compiled", compiled[0], via))
    elif context.torch is None:
        return
    elif context.torch_cuda is None:
        yield this.skip(
            "gsplat has no compiled kernels, and this build of torch compiles none: gsplat draws nothing here.",
            evidence=Evidence(gsplat.folder, "no compiled module", via),
            remedy=context.install("gsplat", "--backend", "pure", text="On the CPU, for small scenes"),
        )
    elif toolkits.value is None:
        yield this.unknown(
            "Whether gsplat can compile its kernels is not known.", evidence=reason(toolkits.error)
        )
    elif not context.toolkits:
        yield this.fail(
            "gsplat has no compiled kernels, and there is no nvcc to compile them.",
            evidence=(
                Evidence(gsplat.folder, "no compiled module", via),
                Evidence("toolkits", "none", toolkits.found_via),
            ),
            remedy=(
                without_compiler,
                "Or install a CUDA toolkit of torch's major version, or a compiled wheel from gsplat's own index.",
            ),
        )
    else:
        yield this.skip(
            "gsplat compiles its kernels at the first import (minutes on many cores, hours on few).",
            evidence=Evidence(gsplat.folder, "no compiled module, none in torch's cache", via),
            remedy=without_compiler,
        )


@check("gsplat-import-missing", "What gsplat imports is installed")
def gsplat_import_missing(context: Context, this: Check) -> Iterator[Finding]:
    """gsplat imports packaging when something is first drawn, and its wheel does not ask pip for it: `import gsplat` succeeds
    without it, and every training fails (gsplat 1.5.3, gsplat/cuda/_backend.py; 1.4.0 does not import it)."""
    dropin = next(dropin for dropin in DROPINS if dropin.host == "gsplat")
    for name in imported_by_host(dropin, context.version_of("gsplat")):
        if context.version_of(name):
            yield this.ok(f"{name}, which gsplat imports, is installed.")
            continue
        yield this.fail(
            f"gsplat imports {name}, which is not installed and which its wheel does not ask for.",
            subject=name,
            evidence=Evidence(name, "not installed", "pip's list"),
            remedy=pip(context.facts, "install", name),
        )


@check("drop-in-without-host", "A drop-in for a compiled module is beside the package that it was made for")
def dropin_without_host(context: Context, this: Check) -> Iterator[Finding]:
    """splatfix's drop-in for gsplat is its compiled module alone. Another release of gsplat, installed later, calls other
    functions: the drop-in then stops the import with an error. Where gsplat came compiled, its own module is used and the
    drop-in beside it does nothing."""
    for item in context.distributions:
        dropin = dropin_named(item.dropin)
        if dropin is None or not dropin.host:
            continue
        host, version = dropin.host, context.version_of(dropin.host)
        evidence = Evidence(
            f"{dropin.distribution} {item.version}", f"beside {host} {version}".strip(), "pip's list"
        )
        remove = pip(context.facts, "uninstall", dropin.distribution, text="Remove the drop-in")
        if not version:
            yield this.fail(
                f"{dropin.distribution} is the compiled module of {host}, which is not installed.",
                subject=host,
                evidence=evidence,
                remedy=(*other_releases(context, dropin), remove),
            )
        elif compiled := compiled_module(context, dropin):
            yield this.warn(
                f"{host} {version} has its own compiled module, which is used; {dropin.distribution} beside it is not.",
                subject=host,
                evidence=(evidence, Evidence(compiled, "compiled", "its folder")),
                remedy=remove,
            )
        elif release_served(dropin, version):
            yield this.ok(
                f"{host} {version} has splatfix's drop-in as its compiled module.",
                subject=host,
                evidence=evidence,
            )
        else:
            releases = " and ".join(dropin.host_releases)
            yield this.fail(
                f"{host} {version} does not run with {dropin.distribution}, which was made for {releases}.",
                subject=host,
                evidence=evidence,
                remedy=(*other_releases(context, dropin), remove),
            )


def _stale(context: Context, this: Check, item: JitCache, obstacle: str) -> Finding:
    evidence = [Evidence(item.folder, f"built {item.built}", "torch's extension cache")]
    if item.linkage.torch_missing:
        symbols = ", ".join(item.linkage.torch_missing[:3])
        evidence.append(Evidence("not in torch", symbols, "hash tables of torch's libraries"))
    if item.torch_folder:
        evidence.append(Evidence("built with", item.torch_folder, "build.ninja"))
    remedy = _remove(context, item)
    if item.name.startswith("gsplat"):  # its drop-in needs no cache and no compiler
        without = context.install("gsplat", "--backend", "nvrtc", text="Or without compiling it again")
        remedy = (*remedy, without)
    return this.fail(
        f"The cached {item.name} is stale: {obstacle}.",
        subject=item.name,
        evidence=evidence,
        remedy=remedy,
    )


def _remove(context: Context, item: JitCache) -> tuple[str | Step, ...]:
    return (
        "Remove it; the next import recompiles it:",
        remove_command(context.facts, item.folder, folder=True),
    )
