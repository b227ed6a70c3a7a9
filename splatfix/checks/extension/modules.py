"""Checks of native modules of installed packages: whether this GPU can run and this Python load them."""

import re
from collections.abc import Iterator

from splatfix.checks.evidence import reason, torch_cuda
from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.context.coverage import code_words
from splatfix.core.proof import RungName
from splatfix.core.versions import dotted, release
from splatfix.knowledge import Arch
from splatfix.knowledge.drivers import cuda_of_ptx_isa
from splatfix.knowledge.wheel_tags import extension_file_fits, python_of_file
from splatfix.model import Evidence, Extension, Finding

check = checks_of("extension")

_CUDART = re.compile(r"libcudart\.so\.(\d+)|cudart64_(\d{2})\d?\.dll", re.IGNORECASE)


@check("no-kernel-image", bears_on=RungName.BUILT, gpu_code=True)
def no_kernel_image(context: Context, this: Check) -> Iterator[Finding]:
    extensions = context.environment.extensions
    if extensions.absent:
        return  # no environment at all
    if extensions.value is None:
        yield this.unknown(evidence=reason(extensions.error))
        return
    for item in context.extensions:
        if not item.code or not (item.links_torch or item.importable):
            continue
        name, code = _name(item), code_words(item.code)
        evidence = Evidence(item.path, code, extensions.found_via)
        if not context.targets:
            yield this.skip("no-gpu", subject=name, evidence=evidence, name=name, code=code)
        # _C_cutlass_90a.abi3.so of torchao is one of several, of which its package loads the one that fits
        match = re.search(r"_(?:sm_?)?(\d{2,3}[af]?)$", item.path.rpartition("/")[2].split(".")[0])
        for target in context.targets:
            verdict = context.judge(item.code, target.arch)
            # ptx-newer-than-driver tells of PTX that is all there is
            if verdict.too_new_ptx and not verdict.missing:
                continue
            named = Arch.parse(f"sm_{match[1]}") if match else target.arch
            report, case = this.fail, ""
            if verdict.usable:
                report = this.ok
                # for a GPU elsewhere its driver stays open by nature; for one of this machine that is a gap
                if verdict.runs is None and not context.goal.targets:
                    report, case = this.unknown, "pass"
            elif item.optional or not item.links_torch:
                report = this.skip
            elif named.plain != target.arch.plain:
                report, case = this.skip, "for-another"
            yield report(
                case,
                subject=f"{name} on {target.label}",
                evidence=evidence,
                name=name,
                item=item,
                target=target,
                verdict=verdict,
                named=named,
                rebuild=context.reinstall(item.distribution, text="Rebuild it from its source folder"),
            )
    # the CUDA code that a drop-in brings; what it does not bring torch's NVRTC compiles at the first call
    for dropin in context.distributions:
        code = dropin.code_error or code_words(dropin.code)
        evidence = Evidence(f"{dropin.name} {dropin.version}", code, "its cubins, read as bytes")
        again = context.install(dropin.dropin, "--backend", "nvrtc", text="Install it anew")
        if dropin.code_error:
            yield this.fail(
                "drop-in-damaged", subject=dropin.name, evidence=evidence, remedy=again, dropin=dropin
            )
        for target in context.targets if dropin.code else ():
            verdict = context.judge(dropin.code, target.arch)
            report, remedy = this.ok, None
            if not verdict.usable:
                report, remedy = this.warn, again
            yield report(
                subject=f"{dropin.name} on {target.label}",
                evidence=evidence,
                remedy=remedy,
                name=dropin.name,
                target=target,
                verdict=verdict,
            )


@check("ptx-newer-than-driver", bears_on=RungName.BUILT, gpu_code=True)
def ptx_newer_than_driver(context: Context, this: Check) -> Iterator[Finding]:
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
            limit = context.driver_level(target.arch)
            own = f"{driver.value.version} (CUDA {limit})" if driver.value else "none"
            yield this.fail(
                subject=f"{_name(item)} on {target.label}",
                evidence=(
                    Evidence(item.path, code_words(item.code), context.environment.extensions.found_via),
                    Evidence("driver", own, driver.found_via),
                ),
                name=_name(item),
                cuda=dotted(level) if level else f"PTX {dotted(newest)}",
                target=target,
                limit=limit,
                rebuild=context.reinstall(item.distribution, text="Rebuild it with machine code"),
            )


@check("cuda-runtime-mismatch", gpu_code=True)
def cuda_runtime_mismatch(context: Context, this: Check) -> Iterator[Finding]:
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
        needs = Evidence(item.path, f"needs {runtime.group(0)}", "its dynamic section")
        yield this.fail(
            subject=_name(item),
            evidence=(needs, torch_cuda(context)),
            remedy=context.reinstall(item.distribution, text=f"Rebuild {_name(item)} from its source folder"),
            name=_name(item),
            major=major,
            torch=torch,
        )
    for distribution in context.distributions:
        built, name = distribution.built, distribution.name
        if built is None or not built.cuda_mismatch or name in reported:
            continue
        manifest = "splatfix.json in its metadata folder"
        differs = Evidence(f"{name} {distribution.version}", built.cuda_mismatch, manifest)
        yield this.warn(
            subject=name,
            evidence=(differs, torch_cuda(context)),
            remedy=context.reinstall(name, text=f"Rebuild {name} with a toolkit of CUDA {cuda[0]}"),
            name=name,
            built=built,
        )


@check("extension-python-mismatch")
def extension_python_mismatch(context: Context, this: Check) -> Iterator[Finding]:
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
            subject=_name(item),
            evidence=(
                Evidence("file name", item.path, context.environment.extensions.found_via),
                Evidence("this Python looks for", f".{interpreter.abi_tag}", interpreter.executable),
            ),
            remedy=context.reinstall(item.distribution, text=f"Rebuild {_name(item)} with this Python"),
            item=item,
            build=f"{build} {dotted(python)}",
            python=interpreter,
        )


@check("extension-damaged")
def extension_damaged(context: Context, this: Check) -> Iterator[Finding]:
    for item in context.extensions:
        if item.error:
            evidence = Evidence(item.path, item.error, "its bytes")
            yield this.fail(subject=_name(item), evidence=evidence, item=item, name=_name(item))


@check("extension-import-fails")
def extension_import_fails(context: Context, this: Check) -> Iterator[Finding]:
    left_out = {item.module for item in context.environment.extensions.value or ()}
    left_out -= {item.module for item in context.extensions}
    owners: dict[str, str | None] = {}
    for item in context.extensions:
        owners.setdefault(item.module.split(".")[0], item.distribution)
    for probe in context.environment.imports:
        if probe.module == "torch" or probe.module in left_out:
            continue
        report = this.fail
        if probe.ok:
            report = this.ok
        owner = owners.get(probe.module.partition(".")[0])
        yield report(
            subject=probe.module,
            evidence=Evidence(f"import {probe.module}", probe.detail or probe.outcome, "child process"),
            probe=probe,
            rebuild=context.reinstall(owner, text="Rebuild it against this torch"),
        )


def _name(item: Extension) -> str:
    return item.distribution or item.path.split("/", 1)[0].split(".")[0]
