"""Checks of native modules of installed packages: whether this GPU can run and this Python load them."""

import re
from collections.abc import Iterator

from splatfix.checks.evidence import reason, torch_cuda
from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.context.coverage import code_words
from splatfix.core.proof import RungName
from splatfix.core.step import run
from splatfix.core.versions import dotted, release
from splatfix.knowledge import Arch
from splatfix.knowledge.drivers import cuda_of_ptx_isa
from splatfix.knowledge.wheel_tags import extension_file_fits, python_of_file
from splatfix.model import Evidence, Extension, Finding

check = checks_of("extension")

_CUDART = re.compile(r"libcudart\.so\.(\d+)|cudart64_(\d{2})\d?\.dll", re.IGNORECASE)


@check("no-kernel-image", "Extensions carry code for the GPU", bears_on=RungName.BUILT, gpu_code=True)
def no_kernel_image(context: Context, this: Check) -> Iterator[Finding]:
    """Reads the fat binaries of every native extension and judges every fatbin (one per .cu file) against each GPU.
    One fatbin without code for the GPU is enough: unchecked launches then fail silently, and the rasterizer answers
    with garbage such as "Tried to allocate 131060 GiB". GPU code of a library that has nothing to do with torch, or that
    importing its package does not load (both are open3d's), is a note: splatting does not call it."""
    extensions = context.environment.extensions
    if extensions.absent:
        return  # no environment at all
    if extensions.value is None:
        yield this.unknown("The native extensions could not be looked at.", evidence=reason(extensions.error))
        return
    for item in context.extensions:
        if not item.code or not (item.links_torch or item.importable):
            continue
        code = code_words(item.code)
        evidence = Evidence(item.path, code, extensions.found_via)
        if not context.targets:
            yield this.skip(
                f"{_name(item)} carries {code}; no GPU here and no --target to judge it for.",
                subject=_name(item),
                evidence=evidence,
            )
        for target in context.targets:
            verdict = context.judge(item.code, target.arch)
            # ptx-newer-than-driver tells of PTX that is all there is
            if verdict.too_new_ptx and not verdict.missing:
                continue
            subject = f"{_name(item)} on {target.label}"
            if verdict.usable:
                report = this.ok
                # for a GPU elsewhere its driver stays open by nature; for one of this machine that is a gap
                if verdict.runs is None and not context.goal.targets:
                    report = this.unknown
                yield report(f"{_name(item)} {verdict.reason}.", subject=subject, evidence=evidence)
                continue
            # _C_cutlass_90a.abi3.so of torchao is one of several, of which its package loads the one that fits
            match = re.search(r"_(?:sm_?)?(\d{2,3}[af]?)$", item.path.rpartition("/")[2].split(".")[0])
            named = Arch.parse(f"sm_{match[1]}") if match else target.arch
            if item.optional or not item.links_torch:
                yield this.skip(
                    f"{_name(item)}'s own GPU functions cannot run on {target.label}: {verdict.reason}. "
                    "No stack that splatfix knows calls them.",
                    subject=subject,
                    evidence=evidence,
                )
            elif named.plain != target.arch.plain:
                summary = f"{item.path} is meant for {named.sm} alone."
                yield this.skip(summary, subject=subject, evidence=evidence)
            else:
                yield this.fail(
                    f"{_name(item)} cannot run on {target.label}: {verdict.reason}.",
                    subject=subject,
                    evidence=evidence,
                    remedy=(
                        context.reinstall(item.distribution, text="Rebuild it from its source folder"),
                        run("splatfix", "inspect", f"{item.folder}/{item.path}", "--target", target.arch.sm),
                    ),
                    link="https://docs.nvidia.com/cuda/blackwell-compatibility-guide",
                )
    # the CUDA code that a drop-in brings; what it does not bring torch's NVRTC compiles at the first call
    for dropin in context.distributions:
        code = dropin.code_error or code_words(dropin.code)
        evidence = Evidence(f"{dropin.name} {dropin.version}", code, "its cubins, read as bytes")
        remedy = context.install(dropin.dropin, "--backend", "nvrtc", text="Install it anew")
        if dropin.code_error:
            yield this.fail(
                f"CUDA code of the drop-in {dropin.name} is damaged: {dropin.code_error}.",
                subject=dropin.name,
                evidence=evidence,
                remedy=remedy,
            )
        for target in context.targets if dropin.code else ():
            verdict = context.judge(dropin.code, target.arch)
            subject = f"{dropin.name} on {target.label}"
            if verdict.usable:
                yield this.ok(f"{dropin.name} {verdict.reason}.", subject=subject, evidence=evidence)
            else:
                yield this.warn(
                    f"{dropin.name} carries no code for {target.label}: NVRTC compiles it at the first call.",
                    subject=subject,
                    evidence=evidence,
                    remedy=remedy,
                )


@check(
    "ptx-newer-than-driver",
    "The driver can compile the PTX of the extensions",
    bears_on=RungName.BUILT,
    gpu_code=True,
)
def ptx_newer_than_driver(context: Context, this: Check) -> Iterator[Finding]:
    """An extension without machine code for the GPU depends on its PTX, which the driver compiles at first use. A driver compiles
    the PTX of its own CUDA and older: "the provided PTX was compiled with an unsupported toolchain" (error 222), or, where
    launches are not checked, silence and garbage. Source: the PTX ISA's release table (knowledge/data/drivers.json)."""
    driver = context.machine.driver
    for item in context.extensions:
        if not item.code or not item.links_torch or item.optional:
            continue
        for target in context.targets:
            verdict = context.judge(item.code, target.arch)
            if verdict.missing or not verdict.too_new_ptx:
                continue
            entries = [entry for group in item.code for entry in group.entries]
            newest = max(entry.ptx_version for entry in entries if entry.ptx_version)
            level = cuda_of_ptx_isa(newest)
            cuda = dotted(level) if level else f"PTX {newest[0]}.{newest[1]}"
            limit = context.driver_level(target.arch)
            own = f"{driver.value.version} (CUDA {limit})" if driver.value else "none"
            yield this.fail(
                f"{_name(item)} needs PTX of CUDA {cuda} on {target.label}; this driver compiles up to CUDA {limit}.",
                subject=f"{_name(item)} on {target.label}",
                evidence=(
                    Evidence(item.path, code_words(item.code), context.environment.extensions.found_via),
                    Evidence("driver", own, driver.found_via),
                ),
                remedy=(
                    context.reinstall(item.distribution, text="Rebuild it with machine code"),
                    "Or upgrade the NVIDIA driver to that CUDA level, or build with a toolkit that is no newer.",
                ),
                link="https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
            )


@check("cuda-runtime-mismatch", "Extensions were built for torch's CUDA", gpu_code=True)
def cuda_runtime_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    """An extension that needs libcudart.so.12 (cudart64_12.dll) beside a torch of CUDA 13 was built for another torch: the
    library it wants is not there ("DLL load failed while importing _C"), or two runtimes meet in one process. What was built
    with --force-cuda-mismatch says so in its own manifest, whatever its file shows, and stays a risk."""
    cuda, torch = context.torch_cuda, context.torch
    if cuda is None or torch is None:
        return
    reported: set[str] = set()
    for item in context.extensions:
        if not item.links_torch or item.optional:
            continue
        runtime = next((match for name in item.needed if (match := _CUDART.match(name))), None)
        major = runtime and (runtime.group(1) or runtime.group(2))
        if not runtime or not major or int(major) == cuda[0]:
            continue
        reported.add(item.distribution or "")
        yield this.fail(
            f"{_name(item)} was built for CUDA {major}, torch is a CUDA {torch.cuda} build.",
            subject=_name(item),
            evidence=(
                Evidence(item.path, f"needs {runtime.group(0)}", "its dynamic section"),
                torch_cuda(context),
            ),
            remedy=context.reinstall(item.distribution, text=f"Rebuild {_name(item)} from its source folder"),
        )
    for distribution in context.distributions:
        built, name = distribution.built, distribution.name
        if built is None or not built.cuda_mismatch or name in reported:
            continue
        manifest = "splatfix.json in its metadata folder"
        yield this.warn(
            f"{name} was built with --force-cuda-mismatch: {built.cuda_mismatch}; it may crash or compute wrongly.",
            subject=name,
            evidence=(
                Evidence(f"{name} {distribution.version}", built.cuda_mismatch, manifest),
                torch_cuda(context),
            ),
            remedy=context.reinstall(name, text=f"Rebuild {name} with a toolkit of CUDA {cuda[0]}"),
        )


@check("extension-python-mismatch", "Extensions were built for this Python")
def extension_python_mismatch(context: Context, this: Check) -> Iterator[Finding]:
    """A module named for cpython-310 is invisible to Python 3.11: the import fails with "No module named ..._C". A file that
    imports nothing of Python (torchao's, which torch.ops loads by its path) is no module, whatever its name says, and so
    is one whose package holds a module of the same name for this Python."""
    interpreter = context.interpreter
    if interpreter is None or interpreter.implementation != "CPython":
        return
    for item in context.extensions:
        name = item.path.rpartition("/")[2]
        python = python_of_file(name)
        if python is None or extension_file_fits(name, interpreter.abi_tag):
            continue
        # the same module lies beside it, under a name that this Python imports
        beside = [
            other.path.rpartition("/")[2] for other in context.extensions if other.module == item.module
        ]
        twin = any(extension_file_fits(file, interpreter.abi_tag) for file in beside)
        if item.python_module is False or twin:
            continue
        build = "Python"
        if python == tuple(release(interpreter.version)[:2]):
            build = f"another build ({name.split('.')[1]}) of Python"
        yield this.warn(
            f"{item.path} was built for {build} {python[0]}.{python[1]}; Python {interpreter.version} does not see it.",
            subject=_name(item),
            evidence=(
                Evidence("file name", item.path, context.environment.extensions.found_via),
                Evidence("this Python looks for", f".{interpreter.abi_tag}", interpreter.executable),
            ),
            remedy=context.reinstall(item.distribution, text=f"Rebuild {_name(item)} with this Python"),
        )


@check("extension-damaged", "Extension files can be read")
def extension_damaged(context: Context, this: Check) -> Iterator[Finding]:
    """A native module that is truncated or no binary at all fails at import with "invalid ELF header" or "file too short"."""
    for item in context.extensions:
        if item.error:
            yield this.fail(
                f"{item.path} cannot be read as a native module: {item.error}",
                subject=_name(item),
                evidence=Evidence(item.path, item.error, "its bytes"),
                remedy=f"Reinstall {_name(item)}.",
            )


@check("extension-import-fails", "Extensions import in the target environment")
def extension_imports(context: Context, this: Check) -> Iterator[Finding]:
    """Done only with `--imports`: each module is imported after torch in a child process of the target interpreter."""
    left_out = {item.module for item in context.environment.extensions.value or ()}
    left_out -= {item.module for item in context.extensions}
    owners: dict[str, str | None] = {}
    for item in context.extensions:
        owners.setdefault(item.module.split(".")[0], item.distribution)
    for probe in context.environment.imports:
        if probe.module == "torch" or probe.module in left_out:
            continue
        evidence = Evidence(f"import {probe.module}", probe.detail or probe.outcome, "child process")
        if probe.ok:
            yield this.ok(f"{probe.module} imports.", subject=probe.module, evidence=evidence)
        else:
            owner = owners.get(probe.module.partition(".")[0])
            yield this.fail(
                f"Importing {probe.module} fails ({probe.outcome}): {probe.detail}",
                subject=probe.module,
                evidence=evidence,
                remedy=context.reinstall(owner, text="Rebuild it against this torch"),
            )


def _name(item: Extension) -> str:
    return item.distribution or item.path.split("/", 1)[0].split(".")[0]
