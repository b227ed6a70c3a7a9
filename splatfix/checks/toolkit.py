"""Checks of the CUDA toolkits: the one torch would take, whether it fits torch and the GPU, whether it is whole."""

from __future__ import annotations

from collections.abc import Iterator

from splatfix.checks._common import (
    best_toolkit,
    build_toolkit,
    chosen_toolkit,
    compiling_toolkits,
    numbers,
    set_variable,
    targets,
    torch_cuda,
    torch_of,
    wrapper_choice,
)
from splatfix.checks.model import Evidence, Finding, Goal, Remedy, Status, prose
from splatfix.checks.registry import check
from splatfix.facts import Facts, Toolkit
from splatfix.knowledge.archs import Arch, arch_info


@check("cuda-toolkit-missing", "toolkit", "A CUDA toolkit that can compile")
def cuda_toolkit_missing(facts: Facts, goal: Goal) -> Iterator[Finding]:
    """Building an extension needs nvcc with its headers; the driver, conda's cudatoolkit and torch's own runtime wheels
    do not bring it. Without one, only prebuilt wheels and pure-PyTorch parts can be used."""
    toolkits = facts.machine.toolkits
    found = compiling_toolkits(facts)
    for toolkit in found:
        yield Finding(
            "cuda-toolkit-missing", Status.PASS, f"CUDA toolkit {toolkit.version} at {toolkit.root}", subject=toolkit.root,
            evidence=(Evidence("found via", "; ".join(toolkit.found_via), toolkits.found_via),
                      Evidence("compiles for", " ".join(toolkit.archs), "nvcc --list-gpu-code")),
        )  # fmt: skip
    if found or torch_cuda(facts) is None:
        return
    if toolkits.value is None:
        yield Finding("cuda-toolkit-missing", Status.UNKNOWN, "Which CUDA toolkits are here is not known.",
                      evidence=(Evidence("reason", toolkits.error or "the facts do not say"),))  # fmt: skip
        return
    cuda = torch_of(facts)
    version = cuda.cuda if cuda and cuda.cuda else ""
    yield Finding(
        "cuda-toolkit-missing", Status.WARN, "No CUDA toolkit with a working nvcc was found: extensions cannot be built here.",
        evidence=(Evidence("searched", toolkits.found_via),
                  *(Evidence(item.root, item.error or f"missing {', '.join(item.missing)}") for item in toolkits.value or ())),
        remedy=_a_toolkit(facts, version),
    )  # fmt: skip


def conda_toolkit(prefix: str, cuda: str) -> str:
    """The command that puts a toolkit (``12.1``) into a conda environment, from NVIDIA's channel of that release alone."""
    return f'conda install -p "{prefix}" -c "nvidia/label/cuda-{cuda}.0" cuda-toolkit'


def _a_toolkit(facts: Facts, version: str) -> tuple[Remedy, ...]:
    """A conda environment can take a toolkit without administrator rights; NVIDIA labels its channel by release."""
    python = facts.environment.interpreter.value
    step = prose(f"Install the CUDA toolkit {version} (not only the driver) and set CUDA_HOME to its folder.")
    if python is None or python.kind != "conda" or not version:
        return (step,)
    # on Windows conda keeps what is no Python in Library
    home = f"{python.prefix}\\Library" if facts.machine.system == "windows" else python.prefix
    return (
        prose(f"Into this conda environment: {conda_toolkit(python.prefix, version)}"),
        prose(f"Then: {set_variable(facts, 'CUDA_HOME', home).text}"),
    )


@check("cuda-home-wrong", "toolkit", "The CUDA_HOME torch would take is the toolkit's own root")
def cuda_home_wrong(facts: Facts, goal: Goal) -> Iterator[Finding]:
    """When CUDA_HOME is not set, torch takes the folder above the one in which the first `nvcc` on PATH lies. It follows
    neither links nor wrapper scripts, so an nvcc in /usr/local/bin makes it look for headers in /usr/local/include.
    A CUDA_HOME that names a folder without a toolkit is the same illness."""
    choice = facts.environment.toolkit_choice.value
    torch = torch_of(facts)
    if choice is not None and choice.root is not None:
        evidence: tuple[Evidence, ...] = (
            Evidence(
                "torch's CUDA_HOME",
                f"{choice.root}, by {choice.rule}",
                facts.environment.toolkit_choice.found_via,
            ),
            Evidence("headers there", {True: "yes", False: "no", None: "not looked at"}[choice.has_headers]),
        )
        if choice.has_headers and choice.real_root is None:
            yield Finding(
                "cuda-home-wrong",
                Status.PASS,
                f"torch would take CUDA_HOME={choice.root}.",
                evidence=evidence,
            )
            return
        best = choice.real_root or getattr(best_toolkit(facts, torch_cuda(facts)), "root", None)
        if choice.real_root:
            evidence += (Evidence("nvcc's own root", choice.real_root, "nvcc --dryrun (TOP)"),)
        remedy = (
            (set_variable(facts, "CUDA_HOME", best),)
            if best
            else (prose("Install a CUDA toolkit and set CUDA_HOME."),)
        )
        if choice.has_headers:
            summary = f"CUDA_HOME would be {choice.root}, but its nvcc belongs to {choice.real_root}."
            yield Finding("cuda-home-wrong", Status.WARN, summary, evidence=evidence, remedy=remedy)
            return
        why = "its nvcc is a wrapper script or link" if choice.real_root else "no CUDA headers are there"
        yield Finding(
            "cuda-home-wrong", Status.FAIL,
            f"torch would take CUDA_HOME={choice.root or '(empty)'}, which is not the toolkit: {why}.",
            evidence=evidence, remedy=remedy,
        )  # fmt: skip
        return
    # A CPU build of torch sets no CUDA_HOME; a CUDA build installed later would stumble over the wrapper.
    if torch is not None and torch.cuda is None and not facts.machine.variables.get("CUDA_HOME"):
        for toolkit in compiling_toolkits(facts):
            for via in toolkit.found_via:
                if "wrapper script" in via:
                    yield Finding(
                        "cuda-home-wrong", Status.WARN,
                        "nvcc on PATH is a wrapper script: a CUDA build of torch would take the wrong CUDA_HOME.",
                        evidence=(Evidence("nvcc", via, facts.machine.toolkits.found_via),
                                  Evidence("nvcc's own root", toolkit.root, "nvcc --dryrun (TOP)")),
                        remedy=(set_variable(facts, "CUDA_HOME", toolkit.root),),
                    )  # fmt: skip
                    return


@check("cuda-torch-mismatch", "toolkit", "The toolkit's CUDA major is torch's")
def cuda_torch_mismatch(facts: Facts, goal: Goal) -> Iterator[Finding]:
    """torch refuses to build an extension when nvcc's CUDA major differs from its own (`_check_cuda_version`). A different
    minor is only warned about and works: 12.9 beside 12.8 is fine."""
    cuda, torch = torch_cuda(facts), torch_of(facts)
    toolkit = chosen_toolkit(facts)
    if cuda is None or torch is None or not compiling_toolkits(facts):
        return
    fitting = best_toolkit(facts, cuda)
    if toolkit is None:
        toolkit = fitting
    if toolkit is not None and numbers(toolkit.version)[0] == cuda[0]:
        minor = "" if numbers(toolkit.version)[1] == cuda[1] else " (the minors differ, which works)"
        yield Finding(
            "cuda-torch-mismatch", Status.PASS, f"Toolkit {toolkit.version} fits torch's CUDA {torch.cuda}{minor}.",
            evidence=_mismatch_evidence(facts, toolkit),
        )  # fmt: skip
        return
    shown = toolkit or compiling_toolkits(facts)[0]
    remedy = (
        (set_variable(facts, "CUDA_HOME", fitting.root),)
        if fitting
        else (
            prose(
                f"Install a CUDA {cuda[0]}.x toolkit and set CUDA_HOME to it, or a torch build for CUDA "
                f"{numbers(shown.version)[0]}."
            ),
        )
    )
    yield Finding(
        "cuda-torch-mismatch", Status.FAIL,
        f"The toolkit is CUDA {shown.version}, torch was built for {torch.cuda}: torch refuses to build with it.",
        evidence=_mismatch_evidence(facts, shown), remedy=remedy,
    )  # fmt: skip


@check("toolkit-arch", "toolkit", "The toolkit can compile for the GPU")
def toolkit_arch(facts: Facts, goal: Goal) -> Iterator[Finding]:
    """nvcc knows an architecture only from some release on (sm_120 from 12.8) and drops old ones (below sm_75 in 13.0)."""
    toolkit = build_toolkit(facts)
    if toolkit is None or not toolkit.archs:
        return
    evidence = (Evidence(f"nvcc {toolkit.version}", " ".join(toolkit.archs), "nvcc --list-gpu-code"),)
    for target in targets(facts, goal):
        if target.arch.plain.sm in toolkit.archs:
            yield Finding("toolkit-arch", Status.PASS, f"Toolkit {toolkit.version} compiles for {target.label}.",
                          subject=target.label, evidence=evidence)  # fmt: skip
            continue
        others = [t for t in compiling_toolkits(facts) if target.arch.plain.sm in t.archs]
        remedy = (
            (set_variable(facts, "CUDA_HOME", others[0].root),)
            if others
            else (prose(_which_toolkit(target.arch)),)
        )
        yield Finding(
            "toolkit-arch", Status.FAIL, f"Toolkit {toolkit.version} cannot compile for {target.label}.",
            subject=target.label, evidence=evidence, remedy=remedy,
        )  # fmt: skip


@check("cuda-headers-missing", "toolkit", "The toolkit has the headers and libraries extensions need")
def cuda_headers_missing(facts: Facts, goal: Goal) -> Iterator[Finding]:
    """`ATen/cuda/CUDAContext.h` includes cuBLAS, cuSPARSE and cuSOLVER headers; a partial toolkit (conda, apt, PyPI wheels)
    compiles simple kernels and then dies on them. Each missing part is named."""
    if torch_cuda(facts) is None:
        return
    toolkit = build_toolkit(facts)
    if toolkit is None:
        return
    evidence = (Evidence(toolkit.root, ", ".join(toolkit.missing) or "complete", "files looked for"),)
    if not toolkit.missing:
        yield Finding(
            "cuda-headers-missing",
            Status.PASS,
            f"The toolkit at {toolkit.root} is complete.",
            evidence=evidence,
        )
        return
    yield Finding(
        "cuda-headers-missing", Status.WARN,
        f"The toolkit at {toolkit.root} lacks {len(toolkit.missing)} part(s) that extensions may need: "
        + ", ".join(part.rpartition("/")[2] for part in toolkit.missing) + ".",
        evidence=(*evidence, *(Evidence(header, folder, "the environment's own NVIDIA packages")
                               for header, folder in toolkit.elsewhere.items())),
        remedy=_missing_parts(facts, toolkit),
    )  # fmt: skip


def _missing_parts(facts: Facts, toolkit: Toolkit) -> tuple[Remedy, ...]:
    """The headers that the environment's packages hold go into CPATH by an exact command; the rest must be installed."""
    left = [part for part in toolkit.missing if part.removeprefix("include/") not in toolkit.elsewhere]
    whole = prose(
        f"Install the whole toolkit with its development packages: {', '.join(left)} lies nowhere here."
    )
    folders = list(dict.fromkeys(toolkit.elsewhere.values()))
    if not folders:
        return (whole,)
    if facts.machine.system == "windows":  # cl reads INCLUDE, not CPATH
        command = f'set "INCLUDE={";".join(folders)};%INCLUDE%"'
    else:
        command = f'export CPATH="{":".join(folders)}${{CPATH:+:$CPATH}}"'
    return (Remedy(command), whole) if left else (Remedy(command),)


def _mismatch_evidence(facts: Facts, toolkit: Toolkit) -> tuple[Evidence, ...]:
    torch = torch_of(facts)
    wrapped = wrapper_choice(facts)
    note = f" (behind {wrapped.nvcc})" if wrapped and wrapped.real_root == toolkit.root else ""
    return (
        Evidence("nvcc", f"{toolkit.version} in {toolkit.root}{note}", "nvcc --version"),
        Evidence("torch.version.cuda", str(torch.cuda if torch else None), facts.environment.torch.found_via),
    )


def _which_toolkit(arch: Arch) -> str:
    info = arch_info(arch)
    if info is None or info.first_toolkit is None:
        return f"splatfix's tables do not know which toolkit compiles for {arch.sm}."
    first = ".".join(map(str, info.first_toolkit))
    last = f" and up to {'.'.join(map(str, info.last_toolkit))}" if info.last_toolkit else ""
    return f"{arch.sm} ({info.name}) needs a CUDA toolkit from {first}{last}."
