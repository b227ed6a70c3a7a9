"""Checks of what extensions compile at first use: whether torch's cache fits this torch and this GPU."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from splatfix.checks.evidence import reason
from splatfix.checks.extension.linkage import other_cxx11_abi
from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.context.commands import pip, remove_command
from splatfix.context.coverage import code_words
from splatfix.context.hosts import compiled_module, imported_by_host, other_releases, release_served
from splatfix.knowledge.dropins import DROPINS, dropin_named
from splatfix.model import Evidence, Finding

check = checks_of("extension")

# The longest build of a splatting extension at first use (gsplat, all of it, on one core) ends well before.
_LONGEST_BUILD = datetime.timedelta(hours=2)


@check("stale-jit-cache")
def stale_jit_cache(context: Context, this: Check) -> Iterator[Finding]:
    torch = context.torch
    for item in context.jit_caches:
        linkage = item.linkage
        evidence = [Evidence(item.folder, f"built {item.built}", "torch's extension cache")]
        other_torch = torch is not None and (linkage.torch_missing or other_cxx11_abi(torch, linkage))
        if item.error or other_torch:
            if linkage.torch_missing:
                symbols = ", ".join(linkage.torch_missing[:3])
                evidence.append(Evidence("not in torch", symbols, "hash tables of torch's libraries"))
            if item.torch_folder:
                evidence.append(Evidence("built with", item.torch_folder, "build.ninja"))
            instead = []
            if item.name.startswith("gsplat"):  # its drop-in needs no cache and no compiler
                text = "Or without compiling it again"
                instead = [context.install("gsplat", "--backend", "nvrtc", text=text)]
            yield this.fail(
                "unreadable" if item.error else "",
                subject=item.name,
                evidence=evidence,
                item=item,
                torch=torch,
                remove=remove_command(context.facts, item.folder, folder=True),
                instead=instead,
            )
        elif linkage.error:
            yield this.unknown(subject=item.name, evidence=reason(linkage.error), item=item)
        elif item.library is not None:
            yield this.ok(subject=item.name, evidence=evidence, item=item)


@check("jit-cache-arch", gpu_code=True)
def jit_cache_arch(context: Context, this: Check) -> Iterator[Finding]:
    for item in context.jit_caches:
        # without code nothing can be judged: a library for the CPU, or one that could not be read
        for target in context.targets if item.code else ():
            verdict = context.judge(item.code, target.arch)
            if verdict.usable:
                continue
            flags = [Evidence("build.ninja", flag) for flag in item.gencode[:8]]
            yield this.fail(
                subject=f"{item.name} on {target.label}",
                evidence=(Evidence(item.folder, code_words(item.code), "fat binaries read as bytes"), *flags),
                item=item,
                target=target,
                verdict=verdict,
                remove=remove_command(context.facts, item.folder, folder=True),
            )


@check("jit-cache-locked")
def jit_cache_locked(context: Context, this: Check) -> Iterator[Finding]:
    for item in context.jit_caches:
        if item.locked is None:
            continue
        then, now = map(datetime.datetime.fromisoformat, (item.locked, context.facts.gathered))
        report = this.skip if now - then < _LONGEST_BUILD else this.fail
        lock = f"{item.folder}/lock"
        yield report(
            subject=item.name,
            evidence=Evidence(lock, f"written {item.locked}", "its time stamp"),
            item=item,
            remove=remove_command(context.facts, lock),
        )


@check("gsplat-without-kernels")
def gsplat_without_kernels(context: Context, this: Check) -> Iterator[Finding]:
    gsplat = next((package for package in context.packages if package.module == "gsplat"), None)
    toolkits, via = context.machine.toolkits, context.environment.extensions.found_via
    if gsplat is None or gsplat.dropin:
        return
    compiled = [item.path for item in context.extensions if item.path.startswith("gsplat/")]
    for item in context.jit_caches:
        if item.name.startswith("gsplat") and item.library:
            compiled.append(item.folder)
    lacks = Evidence(gsplat.folder, "no compiled module", via)
    without = "Without a compiler, in seconds"
    without_compiler = context.install("gsplat", "--backend", "nvrtc", text=without)
    if compiled:
        yield this.ok(evidence=Evidence("compiled", compiled[0], via))
    elif context.torch is None:
        return
    elif context.torch_cuda is None:
        pure = context.install("gsplat", "--backend", "pure", text="On the CPU, for small scenes")
        yield this.skip("cpu", evidence=lacks, remedy=pure)
    elif toolkits.value is None:
        yield this.unknown(evidence=reason(toolkits.error))
    elif not context.toolkits:
        no_toolkit = Evidence("toolkits", "none", toolkits.found_via)
        yield this.fail(evidence=(lacks, no_toolkit), without_compiler=without_compiler)
    else:
        lacks = Evidence(gsplat.folder, "no compiled module, none in torch's cache", via)
        yield this.skip(evidence=lacks, remedy=without_compiler)


@check("gsplat-import-missing")
def gsplat_import_missing(context: Context, this: Check) -> Iterator[Finding]:
    dropin = next(dropin for dropin in DROPINS if dropin.host == "gsplat")
    for name in imported_by_host(dropin, context.version_of("gsplat")):
        if context.version_of(name):
            yield this.ok(name=name)
        else:
            yield this.fail(
                subject=name,
                evidence=Evidence(name, "not installed", "pip's list"),
                remedy=pip(context.facts, "install", name),
                name=name,
            )


@check("drop-in-without-host")
def drop_in_without_host(context: Context, this: Check) -> Iterator[Finding]:
    for item in context.distributions:
        dropin = dropin_named(item.dropin)
        if dropin is None or not dropin.host:
            continue
        host, version = dropin.host, context.version_of(dropin.host)
        evidence = [
            Evidence(
                f"{dropin.distribution} {item.version}", f"beside {host} {version}".strip(), "pip's list"
            )
        ]
        report, case, compiled = this.fail, "", compiled_module(context, dropin)
        if not version:
            case = "host-missing"
        elif compiled:
            report = this.warn
            evidence.append(Evidence(compiled, "compiled", "its folder"))
        elif release_served(dropin, version):
            report = this.ok
        yield report(
            case,
            subject=host,
            evidence=evidence,
            dropin=dropin,
            version=version,
            releases=" and ".join(dropin.host_releases),
            others=other_releases(context, dropin),
            remove=pip(context.facts, "uninstall", dropin.distribution, text="Remove the drop-in"),
        )
