"""Checks of torch's cache of extensions that were compiled at first use: stale, locked, or built for another GPU."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from splatfix.checks._common import (
    code_words,
    compiling_toolkits,
    driver_level,
    remove_command,
    targets,
    torch_cuda,
    torch_of,
)
from splatfix.checks.coverage import judge
from splatfix.checks.model import Evidence, Finding, Goal, Status
from splatfix.checks.registry import check
from splatfix.core.step import Step, say
from splatfix.facts import Facts, JitCache

# The longest build of a splatting extension at first use (gsplat, all of it, on one core) ends well before.
_LONGEST_BUILD = datetime.timedelta(hours=2)


@check("stale-jit-cache", "extension", "Extensions compiled at first use fit the installed torch")
def stale_jit_cache(facts: Facts, goal: Goal) -> Iterator[Finding]:
    """gsplat's wheel and others compile their CUDA code at the first import and keep it in torch's cache
    (`~/.cache/torch_extensions`, or TORCH_EXTENSIONS_DIR). A library that was left there by another torch is loaded
    again as it is, and fails with an undefined symbol. Only the cache folder of this Python and CUDA is judged."""
    torch = torch_of(facts)
    for item in _current(facts):
        missing = item.linkage.torch_missing
        abi = item.linkage.cxx11_abi
        other_abi = torch is not None and None not in (abi, torch.cxx11_abi) and abi != torch.cxx11_abi
        if item.error:
            yield _stale(facts, item, f"its library cannot be read ({item.error})")
        elif torch is not None and (missing or other_abi):
            yield _stale(facts, item, f"it was compiled against another torch than {torch.version}")
        elif item.linkage.error:
            yield Finding(
                "stale-jit-cache",
                Status.UNKNOWN,
                f"Whether the cached {item.name} fits torch is not known.",
                subject=item.name,
                evidence=(Evidence("reason", item.linkage.error),),
            )
        elif item.library is not None:
            yield Finding(
                "stale-jit-cache",
                Status.PASS,
                f"The cached {item.name} fits the installed torch.",
                subject=item.name,
                evidence=(Evidence(item.folder, f"built {item.built}", "torch's extension cache"),),
            )


@check("jit-cache-arch", "extension", "Extensions compiled at first use carry code for the GPU")
def jit_cache_arch(facts: Facts, goal: Goal) -> Iterator[Finding]:
    """The cache does not know for which GPU a library was compiled. After a change of the graphics card the old library
    is loaded again, and the first kernel ends in "no kernel image is available for execution on the device"."""
    for item in _current(facts):
        if not item.code:
            continue
        for target in targets(facts, goal):
            verdict = judge(
                item.code,
                target.arch,
                driver_cuda=driver_level(facts, target.arch),
                build_cuda=torch_cuda(facts),
            )
            if not verdict.usable:
                yield Finding(
                    "jit-cache-arch",
                    Status.FAIL,
                    f"The cached {item.name} cannot run on {target.label}: {verdict.reason}.",
                    subject=f"{item.name} on {target.label}",
                    evidence=(
                        Evidence(item.folder, code_words(item.code), "fat binaries read as bytes"),
                        *(Evidence("build.ninja", flag) for flag in item.gencode[:8]),
                    ),
                    remedy=_remove(facts, item),
                )


@check("jit-cache-locked", "extension", "No build at first use was left locked")
def jit_cache_locked(facts: Facts, goal: Goal) -> Iterator[Finding]:
    """While torch compiles an extension at first use it holds a file called `lock`. A build that was killed leaves the file
    behind, and every later import waits for it without a word. A lock younger than two hours may be a build at work."""
    for item in _current(facts):
        if item.locked is None:
            continue
        age = _age(item.locked, facts.gathered)
        evidence = (Evidence(f"{item.folder}/lock", f"written {item.locked}", "its time stamp"),)
        if age is None or age < _LONGEST_BUILD:
            yield Finding(
                "jit-cache-locked",
                Status.SKIP,
                f"{item.name} is being compiled, or its build was just ended.",
                subject=item.name,
                evidence=evidence,
            )
        else:
            yield Finding(
                "jit-cache-locked",
                Status.FAIL,
                f"A killed build left {item.name} locked; importing it waits for ever.",
                subject=item.name,
                evidence=evidence,
                remedy=(say("When no build is running:"), remove_command(facts, f"{item.folder}/lock")),
            )


@check("gsplat-without-kernels", "extension", "gsplat has its kernels, or what compiles them")
def gsplat_without_kernels(facts: Facts, goal: Goal) -> Iterator[Finding]:
    """gsplat's wheel on PyPI holds no compiled code; it compiles at the first import where it finds nvcc. Without a toolkit it
    prints "No CUDA toolkit found. gsplat will be disabled.", the import succeeds, and every call fails."""
    installed = next(
        (item for item in facts.environment.packages.value or () if item.module == "gsplat"), None
    )
    toolkits = facts.machine.toolkits
    if installed is None or torch_cuda(facts) is None:
        return
    compiled = [
        item.path for item in facts.environment.extensions.value or () if item.path.startswith("gsplat/")
    ]
    compiled += [item.folder for item in _current(facts) if item.name.startswith("gsplat") and item.library]
    if compiled:
        yield Finding(
            "gsplat-without-kernels",
            Status.PASS,
            "gsplat's kernels are compiled.",
            evidence=(Evidence("compiled", compiled[0], facts.environment.extensions.found_via),),
        )
    elif toolkits.value is None:
        yield Finding(
            "gsplat-without-kernels",
            Status.UNKNOWN,
            "Whether gsplat can compile its kernels is not known.",
            evidence=(Evidence("reason", toolkits.error),),
        )
    elif not compiling_toolkits(facts):
        yield Finding(
            "gsplat-without-kernels",
            Status.FAIL,
            "gsplat has no compiled kernels, and there is no nvcc to compile them.",
            evidence=(
                Evidence(installed.folder, "no compiled module", facts.environment.extensions.found_via),
                Evidence("toolkits", "none", toolkits.found_via),
            ),
            remedy=(
                say(
                    "Install a CUDA toolkit of torch's major version, or a compiled wheel from gsplat's own index."
                ),
            ),
        )
    else:
        yield Finding(
            "gsplat-without-kernels",
            Status.SKIP,
            "gsplat compiles its kernels at the first import (minutes).",
            evidence=(
                Evidence(
                    installed.folder, "no compiled module yet", "native files and torch's extension cache"
                ),
            ),
        )


def _current(facts: Facts) -> Iterator[JitCache]:
    for item in facts.environment.jit_caches.value or ():
        if item.current:
            yield item


def _stale(facts: Facts, item: JitCache, why: str) -> Finding:
    evidence = [Evidence(item.folder, f"built {item.built}", "torch's extension cache")]
    if item.linkage.torch_missing:
        evidence.append(
            Evidence(
                "not in torch", ", ".join(item.linkage.torch_missing[:3]), "hash tables of torch's libraries"
            )
        )
    if item.torch_folder:
        evidence.append(Evidence("built with", item.torch_folder, "build.ninja"))
    return Finding(
        "stale-jit-cache",
        Status.FAIL,
        f"The cached {item.name} is stale: {why}.",
        subject=item.name,
        evidence=tuple(evidence),
        remedy=_remove(facts, item),
    )


def _remove(facts: Facts, item: JitCache) -> tuple[Step, ...]:
    return (
        say("Remove it; the next import compiles it anew:"),
        remove_command(facts, item.folder, folder=True),
    )


def _age(then: str, now: str) -> datetime.timedelta | None:
    try:
        return datetime.datetime.fromisoformat(now) - datetime.datetime.fromisoformat(then)
    except (ValueError, TypeError):
        return None
