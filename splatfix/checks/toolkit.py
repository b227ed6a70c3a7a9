"""Checks of the CUDA toolkits: the one torch would use, whether it fits torch and the GPU, and whether it is complete."""

from collections.abc import Iterator

from splatfix.checks.evidence import lack_for_builds, reason, torch_cuda
from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.context.commands import conda_toolkit
from splatfix.core.step import Step, prepend_variable, set_variable
from splatfix.core.versions import dotted, release
from splatfix.knowledge.archs import Arch, arch_info, newest_serving, ptx_runs_on
from splatfix.knowledge.cpp_extension import ArchList
from splatfix.model import Evidence, Finding, Toolkit

check = checks_of("toolkit")


@check("cuda-toolkit-missing")
def cuda_toolkit_missing(context: Context, this: Check) -> Iterator[Finding]:
    toolkits = context.machine.toolkits
    for toolkit in context.toolkits:
        yield this.ok(
            subject=toolkit.root,
            evidence=(
                Evidence("found via", "; ".join(toolkit.found_via), toolkits.found_via),
                Evidence("compiles for", " ".join(toolkit.archs), "nvcc --list-gpu-code"),
            ),
            toolkit=toolkit,
        )
    if context.toolkits or context.torch_cuda is None:
        return
    if toolkits.value is None:
        yield this.unknown(evidence=reason(toolkits.error))
        return
    evidence = [Evidence("searched", toolkits.found_via)]
    for toolkit in toolkits.value:
        evidence.append(Evidence(toolkit.root, toolkit.error or f"missing {', '.join(toolkit.missing)}"))
    python, version = context.interpreter, (context.torch and context.torch.cuda) or ""
    remedy = None
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
    yield this.finding(lack_for_builds(context), "missing", evidence=evidence, remedy=remedy, version=version)


@check("cuda-home-wrong")
def cuda_home_wrong(context: Context, this: Check) -> Iterator[Finding]:
    fact, torch = context.environment.toolkit_choice, context.torch
    choice = fact.value
    if choice is None or choice.root is None:
        # A CPU build of torch sets no CUDA_HOME; a CUDA build installed later would stumble over the wrapper.
        would_stumble = torch is not None and torch.cuda is None and not context.variables.get("CUDA_HOME")
        wrapped = [toolkit for toolkit in context.toolkits if toolkit.wrapper and would_stumble]
        for toolkit in wrapped[:1]:
            yield this.warn(
                "wrapper-on-path",
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
        yield this.ok(evidence=evidence, choice=choice)
        return
    # of no consequence to an image that was made to run
    report = this.skip if context.made_to_run else this.fail
    best = context.best_toolkit(context.torch_cuda)
    case, home = "no-headers", best and best.root
    if choice.real_root:
        case, home = "wrapper", choice.real_root
        evidence.append(Evidence("nvcc's own root", choice.real_root, "nvcc --dryrun (TOP)"))
    if choice.has_headers:
        report, case = this.warn, ""
    remedy = None
    if home:
        remedy = set_variable("CUDA_HOME", home)
    yield report(case, evidence=evidence, remedy=remedy, choice=choice, root=choice.root or "(empty)")


@check("cuda-torch-mismatch")
def cuda_torch_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    cuda, torch = context.torch_cuda, context.torch
    if cuda is None or torch is None or not context.toolkits:
        return
    fitting = context.best_toolkit(cuda)
    toolkit = context.cuda_home or fitting or context.toolkits[0]
    choice, nvcc = context.environment.toolkit_choice.value, f"{toolkit.version} in {toolkit.root}"
    # torch would take the folder of a wrapper script, which has no headers
    if choice and choice.root and choice.real_root == toolkit.root and not choice.has_headers:
        nvcc += f" (behind {choice.nvcc})"
    major, minor = release(toolkit.version)[:2]
    report, case, remedy = this.fail, "", None
    if major == cuda[0]:
        report, case = this.ok, "" if minor == cuda[1] else "other-minor"
    elif fitting:
        remedy = set_variable("CUDA_HOME", fitting.root)
    yield report(
        case,
        evidence=(Evidence("nvcc", nvcc, "nvcc --version"), torch_cuda(context)),
        remedy=remedy,
        toolkit=toolkit,
        torch=torch,
        major=major,
        wanted=cuda[0],
    )


@check("toolkit-arch-unsupported")
def toolkit_arch_unsupported(context: Context, this: Check) -> Iterator[Finding]:
    toolkit = context.build_toolkit
    if toolkit is None or not toolkit.archs:
        return
    # without a list torch would have this nvcc compile for what it chooses itself, known to it or not
    asked_for = context.own_arch_list.cubins if isinstance(context.own_arch_list, ArchList) else ()
    asks_for_more = any(arch.plain.sm not in toolkit.archs for arch in asked_for)
    for target in context.targets:
        older = newest_serving(Arch.known_among(toolkit.archs), target.arch)
        others = [other for other in context.toolkits if target.arch.plain.sm in other.archs]
        info, span, remedy = arch_info(target.arch), "", None
        if info and info.first_toolkit:
            span = f"from {dotted(info.first_toolkit)}"
            if info.last_toolkit:
                span += f" up to {dotted(info.last_toolkit)}"
        report, case = this.fail, "" if span else "not-in-the-tables"
        if target.arch.plain.sm in toolkit.archs:
            report, case = this.ok, ""
        elif older is not None:
            report, case = this.skip, ""
            remedy = set_variable("TORCH_CUDA_ARCH_LIST", older.cc)
            if asks_for_more and not context.goal.targets:
                report = this.warn
        elif others:
            remedy = set_variable("CUDA_HOME", others[0].root)
        yield report(
            case,
            subject=target.label,
            evidence=Evidence(f"nvcc {toolkit.version}", " ".join(toolkit.archs), "nvcc --list-gpu-code"),
            remedy=remedy,
            toolkit=toolkit,
            target=target,
            older=older,
            info=info,
            span=span,
            by_ptx=_by_ptx(context, toolkit, target.arch),
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


@check("cuda-headers-missing")
def cuda_headers_missing(context: Context, this: Check) -> Iterator[Finding]:
    toolkit = context.build_toolkit
    if context.torch_cuda is None or toolkit is None:
        return
    evidence = [Evidence(toolkit.root, ", ".join(toolkit.missing) or "complete", "files looked for")]
    if not toolkit.missing:
        yield this.ok(evidence=evidence, toolkit=toolkit)
        return
    for header, folder in toolkit.elsewhere.items():
        evidence.append(Evidence(header, folder, "the environment's own NVIDIA packages"))
    # headers that the environment's packages hold go into CPATH by an exact command; the rest must be installed
    missing = [part for part in toolkit.missing if part.removeprefix("include/") not in toolkit.elsewhere]
    folders, lend = list(dict.fromkeys(toolkit.elsewhere.values())), list[Step]()
    if folders:
        name, separator = "CPATH", ":"
        # cl reads INCLUDE, not CPATH
        if context.windows:
            name, separator = "INCLUDE", ";"
        lend.append(prepend_variable(name, separator.join(folders)))
    yield this.warn(
        "" if missing or not folders else "elsewhere",
        evidence=evidence,
        toolkit=toolkit,
        names=", ".join(part.rpartition("/")[2] for part in toolkit.missing),
        lend=lend,
        listed=", ".join(missing),
    )
