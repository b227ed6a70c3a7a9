"""Checks of the CUDA toolkits: the one torch would use, whether it fits torch and the GPU, and whether it is complete."""

from collections.abc import Iterator

from splatfix.checks.evidence import lack_for_builds, reason, torch_cuda
from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.context.commands import conda_toolkit
from splatfix.core.step import Step, prepend_variable, say, set_variable
from splatfix.core.versions import dotted, release
from splatfix.knowledge.archs import Arch, arch_info, newest_serving, ptx_runs_on
from splatfix.knowledge.cpp_extension import ArchList
from splatfix.model import Evidence, Finding, Toolkit

check = checks_of("toolkit")


@check("cuda-toolkit-missing", "A CUDA toolkit with a working nvcc is installed")
def cuda_toolkit_missing(context: Context, this: Check) -> Iterator[Finding]:
    """Building an extension needs nvcc with its headers; the driver, conda's cudatoolkit and torch's own runtime wheels
    do not bring it. Without one, only prebuilt wheels and pure-PyTorch parts can be used."""
    toolkits = context.machine.toolkits
    for toolkit in context.toolkits:
        yield this.ok(
            f"CUDA toolkit {toolkit.version} at {toolkit.root}",
            subject=toolkit.root,
            evidence=(
                Evidence("found via", "; ".join(toolkit.found_via), toolkits.found_via),
                Evidence("compiles for", " ".join(toolkit.archs), "nvcc --list-gpu-code"),
            ),
        )
    if context.toolkits or context.torch_cuda is None:
        return
    if toolkits.value is None:
        yield this.unknown(
            "The CUDA toolkits of this machine could not be determined.", evidence=reason(toolkits.error)
        )
        return
    evidence = [Evidence("searched", toolkits.found_via)]
    for toolkit in toolkits.value:
        evidence.append(Evidence(toolkit.root, toolkit.error or f"missing {', '.join(toolkit.missing)}"))
    python, version = context.interpreter, (context.torch and context.torch.cuda) or ""
    remedy = [
        say(f"Install the CUDA toolkit {version} (not only the driver) and set CUDA_HOME to its folder.")
    ]
    # a conda environment can take one without administrator rights; NVIDIA labels its channel by release
    if python is not None and python.kind == "conda" and version:
        home = python.prefix
        # on Windows conda keeps what is no Python in Library
        if context.windows:
            home += r"\Library"
        remedy = [
            conda_toolkit(python.prefix, version, "Install it into this conda environment"),
            set_variable("CUDA_HOME", home, "Then point CUDA_HOME to it"),
        ]
    yield this.finding(
        lack_for_builds(context),
        "No CUDA toolkit with a working nvcc was found: extensions cannot be built here.",
        evidence=evidence,
        remedy=remedy,
    )


@check("cuda-home-wrong", "torch finds the right CUDA_HOME")
def cuda_home_wrong(context: Context, this: Check) -> Iterator[Finding]:
    """When CUDA_HOME is not set, torch takes the folder above the one in which the first `nvcc` on PATH lies. It follows
    neither links nor wrapper scripts, so an nvcc in /usr/local/bin makes it look for headers in /usr/local/include.
    A CUDA_HOME that names a folder without a toolkit fails in the same way."""
    fact, torch = context.environment.toolkit_choice, context.torch
    choice = fact.value
    if choice is None or choice.root is None:
        # A CPU build of torch sets no CUDA_HOME; a CUDA build installed later would stumble over the wrapper.
        would_stumble = torch is not None and torch.cuda is None and not context.variables.get("CUDA_HOME")
        wrapped = [toolkit for toolkit in context.toolkits if toolkit.wrapper and would_stumble]
        for toolkit in wrapped[:1]:
            yield this.warn(
                "nvcc on PATH is a wrapper script: a CUDA build of torch would take the wrong CUDA_HOME.",
                evidence=(
                    Evidence("nvcc", str(toolkit.wrapper), context.machine.toolkits.found_via),
                    Evidence("nvcc's own root", toolkit.root, "nvcc --dryrun (TOP)"),
                ),
                remedy=set_variable("CUDA_HOME", toolkit.root),
            )
        return
    headers = {True: "yes", False: "no", None: "not looked at"}[choice.has_headers]
    evidence = [
        Evidence("torch's CUDA_HOME", f"{choice.root}, by {choice.rule}", fact.found_via),
        Evidence("headers there", headers),
    ]
    if choice.has_headers and choice.real_root is None:
        yield this.ok(f"torch would take CUDA_HOME={choice.root}.", evidence=evidence)
        return
    best = context.best_toolkit(context.torch_cuda)
    remedy: Step | str = "Install a CUDA toolkit and set CUDA_HOME."
    obstacle = "no CUDA headers are there"
    if choice.real_root:
        evidence.append(Evidence("nvcc's own root", choice.real_root, "nvcc --dryrun (TOP)"))
        remedy = set_variable("CUDA_HOME", choice.real_root)
        obstacle = "its nvcc is a wrapper script or link"
    elif best:
        remedy = set_variable("CUDA_HOME", best.root)
    # of no consequence to an image that was made to run
    report = this.skip if context.made_to_run else this.fail
    summary = f"torch would take CUDA_HOME={choice.root or '(empty)'}, which is not the toolkit: {obstacle}."
    if choice.has_headers:
        report = this.warn
        summary = f"CUDA_HOME would be {choice.root}, but its nvcc belongs to {choice.real_root}."
    yield report(summary, evidence=evidence, remedy=remedy)


@check("cuda-torch-mismatch", "The toolkit and torch have the same CUDA major version")
def cuda_torch_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    """torch refuses to build an extension when nvcc's CUDA major differs from its own (`_check_cuda_version`). A different
    minor is only warned about and works: 12.9 beside 12.8 is fine."""
    cuda, torch = context.torch_cuda, context.torch
    if cuda is None or torch is None or not context.toolkits:
        return
    fitting = context.best_toolkit(cuda)
    toolkit = context.cuda_home or fitting or context.toolkits[0]
    choice, nvcc = context.environment.toolkit_choice.value, f"{toolkit.version} in {toolkit.root}"
    # torch would take the folder of a wrapper script, which has no headers
    if choice and choice.root and choice.real_root == toolkit.root and not choice.has_headers:
        nvcc += f" (behind {choice.nvcc})"
    evidence = (Evidence("nvcc", nvcc, "nvcc --version"), torch_cuda(context))
    if release(toolkit.version)[0] == cuda[0]:
        minor = ""
        if release(toolkit.version)[1] != cuda[1]:
            minor = " (the minors differ, which works)"
        yield this.ok(f"Toolkit {toolkit.version} fits torch's CUDA {torch.cuda}{minor}.", evidence=evidence)
        return
    remedy: Step | str = (
        f"Install a CUDA {cuda[0]}.x toolkit and set CUDA_HOME to it, or a torch build for CUDA "
        f"{release(toolkit.version)[0]}."
    )
    if fitting:
        remedy = set_variable("CUDA_HOME", fitting.root)
    yield this.fail(
        f"The toolkit is CUDA {toolkit.version}, torch was built for {torch.cuda}: torch refuses to build with it.",
        evidence=evidence,
        remedy=remedy,
    )


@check("toolkit-arch-unsupported", "The toolkit supports the GPU")
def toolkit_arch(context: Context, this: Check) -> Iterator[Finding]:
    """nvcc knows an architecture only from some release on (sm_120 from 12.8) and drops old ones (below sm_75 in 13.0). One
    that does not know the GPU's own number may know an older one of the same major, whose code runs as it is: CUDA 11.7
    compiles 8.6 for an RTX 4090. Of an older major only PTX serves, which the driver compiles at first use."""
    toolkit = context.build_toolkit
    if toolkit is None or not toolkit.archs:
        return
    evidence = Evidence(f"nvcc {toolkit.version}", " ".join(toolkit.archs), "nvcc --list-gpu-code")
    # without a list torch would have this nvcc compile for what it chooses itself, known to it or not
    asked_for = context.own_arch_list.cubins if isinstance(context.own_arch_list, ArchList) else ()
    asks_for_more = any(arch.plain.sm not in toolkit.archs for arch in asked_for)
    for target in context.targets:
        if target.arch.plain.sm in toolkit.archs:
            yield this.ok(
                f"Toolkit {toolkit.version} compiles for {target.label}.",
                subject=target.label,
                evidence=evidence,
            )
            continue
        older = newest_serving(Arch.known_among(toolkit.archs), target.arch)
        if older is not None:
            report, consequence = this.skip, ""
            if asks_for_more and not context.goal.targets:
                report, consequence = this.warn, ", for which torch would compile"
            yield report(
                f"Toolkit {toolkit.version} does not support {target.arch.cc}{consequence}; "
                f"{older.cc} is what to build, and runs on {target.label}.",
                subject=target.label,
                evidence=evidence,
                remedy=set_variable("TORCH_CUDA_ARCH_LIST", older.cc),
            )
            continue
        others = [other for other in context.toolkits if target.arch.plain.sm in other.archs]
        info = arch_info(target.arch)
        which = f"splatfix's tables do not know which toolkit compiles for {target.arch.sm}."
        if info and info.first_toolkit:
            span = f"from {dotted(info.first_toolkit)}"
            if info.last_toolkit:
                span += f" up to {dotted(info.last_toolkit)}"
            which = f"{target.arch.sm} ({info.name}) needs a CUDA toolkit {span}."
        remedy = [say(which), *_by_ptx(context, toolkit, target.arch)]
        if others:
            remedy = [set_variable("CUDA_HOME", others[0].root)]
        yield this.fail(
            f"Toolkit {toolkit.version} cannot compile for {target.label}.",
            subject=target.label,
            evidence=evidence,
            remedy=remedy,
        )


def _by_ptx(context: Context, toolkit: Toolkit, arch: Arch) -> tuple[Step, ...]:
    """Build the newest PTX of this nvcc, where neither the driver nor torch is known to refuse it."""
    torch = context.torch
    plain = [one for one in Arch.known_among(toolkit.archs) if not one.variant]
    older = max((one for one in plain if ptx_runs_on(one, arch)), default=None)
    if older is None or context.compiles_ptx(toolkit.version, arch) is False:
        return ()
    if torch and torch.knows_archs and older.cc not in torch.knows_archs:
        return ()
    text = "Or build PTX of an older one, which the driver compiles at first use (minutes, once)"
    return (set_variable("TORCH_CUDA_ARCH_LIST", f"{older.cc}+PTX", text),)


@check("cuda-headers-missing", "The toolkit is complete")
def cuda_headers_missing(context: Context, this: Check) -> Iterator[Finding]:
    """`ATen/cuda/CUDAContext.h` includes cuBLAS, cuSPARSE and cuSOLVER headers; a partial toolkit (conda, apt, PyPI wheels)
    compiles simple kernels and then dies on them. Each missing part is named."""
    toolkit = context.build_toolkit
    if context.torch_cuda is None or toolkit is None:
        return
    evidence = [Evidence(toolkit.root, ", ".join(toolkit.missing) or "complete", "files looked for")]
    if not toolkit.missing:
        yield this.ok(f"The toolkit at {toolkit.root} is complete.", evidence=evidence)
        return
    for header, folder in toolkit.elsewhere.items():
        evidence.append(Evidence(header, folder, "the environment's own NVIDIA packages"))
    # headers that the environment's packages hold go into CPATH by an exact command; the rest must be installed
    missing = [part for part in toolkit.missing if part.removeprefix("include/") not in toolkit.elsewhere]
    folders = list(dict.fromkeys(toolkit.elsewhere.values()))
    remedy: list[Step] = []
    if folders:
        name, separator = "CPATH", ":"
        # cl reads INCLUDE, not CPATH
        if context.windows:
            name, separator = "INCLUDE", ";"
        remedy.append(prepend_variable(name, separator.join(folders)))
    if missing or not folders:
        listed = ", ".join(missing)
        remedy.append(say(f"Install the whole toolkit with its development packages: {listed} not found."))
    names = ", ".join(part.rpartition("/")[2] for part in toolkit.missing)
    yield this.warn(
        f"The toolkit at {toolkit.root} lacks header files that extensions may need: {names}.",
        evidence=evidence,
        remedy=remedy,
    )
