"""Checks of the native extensions in the environment: can this GPU run what they carry, and can this Python load them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from splatfix.checks.model import Evidence, Outcome, Status, fail, ok, outcome, skip, unknown, warn
from splatfix.checks.registry import check
from splatfix.context import Context, Target
from splatfix.context.coverage import Coverage, code_words, judge
from splatfix.core.step import run
from splatfix.core.versions import release
from splatfix.facts import Extension
from splatfix.knowledge import Arch
from splatfix.knowledge.drivers import cuda_of_ptx_isa
from splatfix.knowledge.wheel_tags import extension_file_fits, python_of_file

_CUDART = re.compile(r"libcudart\.so\.(\d+)|cudart64_(\d{2})\d?\.dll", re.IGNORECASE)


@check("no-kernel-image", family="extension", title="Extensions carry code for the GPU")
def no_kernel_image(context: Context) -> Iterator[Outcome]:
    """Reads the fat binaries of every native extension and judges every fatbin (one per .cu file) against each GPU.
    One fatbin without code for the GPU is enough: unchecked launches then fail silently, and the rasterizer answers
    with garbage such as "Tried to allocate 131060 GiB"."""
    extensions = context.environment.extensions
    if extensions.value is None:
        yield unknown(
            "The native extensions could not be looked at.", evidence=Evidence("reason", extensions.error)
        )
        return
    wanted = context.targets
    for item in extensions.value:
        if not item.code or not (item.links_torch or item.importable):
            continue
        evidence = (Evidence(item.path, code_words(item.code), extensions.found_via),)
        if not wanted:
            yield skip(
                f"{_name(item)} carries {code_words(item.code)}; "
                "no GPU here and no --target to judge it for.",
                subject=_name(item),
                evidence=evidence,
            )
        for target in wanted:
            if (verdict := _verdict(context, item, target)).too_new_ptx and not verdict.missing:
                continue  # ptx-newer-than-driver tells that
            finding = _judged(context, item, target, verdict, evidence)
            meant = _meant_for(item)
            if finding.status is Status.FAIL and meant is not None and meant.plain != target.arch.plain:
                finding = skip(
                    f"{item.path} is meant for {meant.sm} alone.", subject=finding.subject, evidence=evidence
                )
            yield finding


@check(
    "ptx-newer-than-driver",
    family="extension",
    title="The driver can compile the PTX that extensions lean on",
)
def ptx_newer_than_driver(context: Context) -> Iterator[Outcome]:
    """An extension without machine code for the GPU leans on its PTX, which the driver compiles at first use. A driver compiles
    the PTX of its own CUDA and older: "the provided PTX was compiled with an unsupported toolchain" (error 222), or, where
    launches are not checked, silence and garbage. Source: the PTX ISA's release table (knowledge/data/drivers.json)."""
    driver = context.machine.driver.value
    for item in context.environment.extensions.value or ():
        if not item.code or not (item.links_torch or item.importable):
            continue
        for target in context.targets:
            verdict = _verdict(context, item, target)
            if not verdict.too_new_ptx or verdict.missing:
                continue
            newest = max(
                entry.ptx_version for group in item.code for entry in group.entries if entry.ptx_version
            )
            level = cuda_of_ptx_isa(newest)
            cuda = ".".join(map(str, level)) if level else f"PTX {newest[0]}.{newest[1]}"
            yield fail(
                f"{_name(item)} leans on PTX of CUDA {cuda} for {target.label}; this driver compiles up to CUDA "
                f"{context.driver_level(target.arch)}.",
                subject=f"{_name(item)} on {target.label}",
                evidence=(
                    Evidence(item.path, code_words(item.code), context.environment.extensions.found_via),
                    Evidence(
                        "driver",
                        f"{driver.version} (CUDA {context.driver_level(target.arch)})" if driver else "none",
                        context.machine.driver.found_via,
                    ),
                ),
                remedy=(
                    context.install(text="Rebuild it with machine code"),
                    "Or upgrade the NVIDIA driver to that CUDA level, or build with a toolkit that is no newer.",
                ),
                link="https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
            )


@check("cuda-runtime-mismatch", family="extension", title="Extensions were built for torch's CUDA")
def cuda_runtime_mismatch(context: Context) -> Iterator[Outcome]:
    """An extension that needs libcudart.so.12 (cudart64_12.dll) beside a torch of CUDA 13 was built for another torch: the
    library it wants is not there ("DLL load failed while importing _C"), or two runtimes meet in one process. What was built
    with --force-cuda-mismatch says so in its own manifest, whatever its file shows, and stays a risk."""
    cuda, torch = context.torch_cuda, context.torch
    if cuda is None or torch is None:
        return
    told: set[str] = set()
    for item in context.environment.extensions.value or ():
        wants = [m for name in item.needed if (m := _CUDART.match(name))]
        if not item.links_torch or not wants or int(wants[0].group(1) or wants[0].group(2)) == cuda[0]:
            continue
        told.add(item.distribution or "")
        yield fail(
            f"{_name(item)} was built for CUDA {wants[0].group(1) or wants[0].group(2)}, torch is a CUDA {torch.cuda} build.",
            subject=_name(item),
            evidence=(
                Evidence(item.path, f"needs {wants[0].group(0)}", "its dynamic section"),
                Evidence("torch.version.cuda", str(torch.cuda), context.environment.torch.found_via),
            ),
            remedy=context.install(text=f"Rebuild {_name(item)} from its source folder"),
        )
    for one in context.environment.distributions.value or ():
        if one.built is None or not one.built.cuda_mismatch or one.name in told:
            continue
        yield warn(
            f"{one.name} was built with --force-cuda-mismatch: {one.built.cuda_mismatch}; it may crash or compute wrongly.",
            subject=one.name,
            evidence=(
                Evidence(
                    f"{one.name} {one.version}",
                    one.built.cuda_mismatch,
                    "splatfix.json in its metadata folder",
                ),
                Evidence("torch.version.cuda", str(torch.cuda), context.environment.torch.found_via),
            ),
            remedy=context.install(text=f"Rebuild {one.name} with a toolkit of CUDA {cuda[0]}"),
        )


@check("extension-python-mismatch", family="extension", title="Extensions were built for this Python")
def extension_python_mismatch(context: Context) -> Iterator[Outcome]:
    """A module named for cpython-310 is invisible to Python 3.11: the import fails with "No module named ..._C". A file that
    imports nothing of Python (torchao's, which torch.ops loads by its path) is no module, whatever its name says, and so
    is one whose package holds a module of the same name for this Python."""
    interpreter = context.environment.interpreter.value
    if interpreter is None or interpreter.implementation != "CPython":
        return
    for item in context.environment.extensions.value or ():
        name = item.path.rpartition("/")[2]
        python = python_of_file(name)
        if python is None or extension_file_fits(name, interpreter.abi_tag):
            continue
        if item.python_module is False or _twin(context, item, interpreter.abi_tag):
            continue
        same = python == tuple(release(interpreter.version)[:2])
        made_for = f"another build ({name.split('.')[1]}) of Python" if same else "Python"
        yield warn(
            f"{item.path} was built for {made_for} {python[0]}.{python[1]}; Python {interpreter.version} does not see it.",
            subject=_name(item),
            evidence=(
                Evidence("file name", item.path, context.environment.extensions.found_via),
                Evidence("this Python looks for", f".{interpreter.abi_tag}", interpreter.executable),
            ),
            remedy=context.install(text=f"Rebuild {_name(item)} with this Python"),
        )


@check("extension-damaged", family="extension", title="Extension files can be read")
def extension_damaged(context: Context) -> Iterator[Outcome]:
    """A native module that is truncated or no binary at all fails at import with "invalid ELF header" or "file too short"."""
    for item in context.environment.extensions.value or ():
        if item.error:
            yield fail(
                f"{item.path} cannot be read as a native module: {item.error}",
                subject=_name(item),
                evidence=Evidence(item.path, item.error, "its bytes"),
                remedy=f"Install {_name(item)} anew.",
            )


@check("extension-import-fails", family="extension", title="Extensions import in the target environment")
def extension_imports(context: Context) -> Iterator[Outcome]:
    """Done only with `--imports`: each module is imported after torch in a child process of the target interpreter."""
    for probe in context.environment.imports:
        if probe.module == "torch":
            continue
        evidence = (Evidence(f"import {probe.module}", probe.detail or probe.outcome, "child process"),)
        if probe.ok:
            yield ok(f"{probe.module} imports.", subject=probe.module, evidence=evidence)
        else:
            yield fail(
                f"Importing {probe.module} fails ({probe.outcome}): {probe.detail}",
                subject=probe.module,
                evidence=evidence,
                remedy=context.install(text="Rebuild it against this torch"),
            )


def _meant_for(item: Extension) -> Arch | None:
    """The architecture that a file names itself after (``_C_cutlass_90a.abi3.so`` of torchao): one of several, of which its
    package loads the one that fits. No splatting extension does it."""
    found = re.search(r"_(?:sm_?)?(\d{2,3}[af]?)$", item.path.rpartition("/")[2].split(".")[0])
    return Arch.parse(f"sm_{found.group(1)}") if found else None


def _verdict(context: Context, item: Extension, target: Target) -> Coverage:
    # each group as often as it occurs, so that the reason counts right
    fatbins = tuple(group for group in item.code for _ in range(group.count))
    return judge(
        fatbins, target.arch, driver_cuda=context.driver_level(target.arch), build_cuda=context.torch_cuda
    )


def _judged(
    context: Context, item: Extension, target: Target, verdict: Coverage, evidence: tuple[Evidence, ...]
) -> Outcome:
    if verdict.usable:
        # for a GPU elsewhere its driver stays open by nature; for one of this machine that is a gap
        status = Status.UNKNOWN if verdict.ptx_unsure and not context.goal.targets else Status.PASS
        return outcome(
            status,
            f"{_name(item)} {verdict.reason}.",
            subject=f"{_name(item)} on {target.label}",
            evidence=evidence,
        )
    return fail(
        f"{_name(item)} cannot run on {target.label}: {verdict.reason}.",
        subject=f"{_name(item)} on {target.label}",
        evidence=evidence,
        remedy=(
            context.install(text="Rebuild it from its source folder"),
            run("splatfix", "inspect", f"{item.folder}/{item.path}", "--target", target.arch.sm),
        ),
        link="https://docs.nvidia.com/cuda/blackwell-compatibility-guide",
    )


def _twin(context: Context, item: Extension, abi_tag: str) -> bool:
    """The same module lies beside it, under a name that this Python imports."""
    folder, _, name = item.path.rpartition("/")
    module = name.partition(".")[0]
    for one in context.environment.extensions.value or ():
        place, _, other = one.path.rpartition("/")
        if (place, other.partition(".")[0]) == (folder, module) and extension_file_fits(other, abi_tag):
            return True
    return False


def _name(item: Extension) -> str:
    return item.distribution or item.path.split("/", 1)[0].split(".")[0]
