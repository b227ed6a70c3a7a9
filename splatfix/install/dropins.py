"""Makes drop-in wheels: our kernels under the name, module and signatures of a CUDA extension.

The templates hold what stands beside the copied kernels: the original's names, signatures and errors. CUDA kernels are
compiled in the target environment, by torch's NVRTC, and it is proven for which GPUs their code is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.version import Version

from splatfix import __version__
from splatfix.binaries import BinaryError, read_binary
from splatfix.context.coverage import judge
from splatfix.core.codec import json_object
from splatfix.core.errors import SplatfixError
from splatfix.core.proof import Rung, RungName
from splatfix.core.resources import KERNELS
from splatfix.core.scratch import temporary_folder
from splatfix.core.toml import table_beside
from splatfix.install.environment import Environment
from splatfix.install.wheels import add_manifest, write_wheel
from splatfix.knowledge import Arch
from splatfix.knowledge.dropins import Dropin
from splatfix.knowledge.faces import ARGUMENTS, BASE_SETTINGS, SETTINGS, SUMS, instead_of
from splatfix.knowledge.stacks import variant

_HEAD = '"""{name} {how}: a drop-in by splatfix {version} for the CUDA extension."""\n'
_HOW = {"pure": "in plain PyTorch", "nvrtc": "with CUDA kernels through NVRTC"}

_TIMEOUT = 300.0
"""Seconds for all kernels and targets; one module for one GPU takes NVRTC one to three."""

KERNEL_VARIANTS = table_beside(__file__, "kernel_variants.toml")


def _source(name: str, **values: object) -> str:
    """Return a source that stands beside the copied kernels."""
    import jinja2  # only where a drop-in is made

    templates = jinja2.Environment(  # nosec B701
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("dropin_templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return templates.get_template(f"{name}.py.j2").render(values)


def make_dropin_wheel(
    dropin: Dropin, version: str, folder: Path, compiled: Mapping[str, bytes] | None = None
) -> Path:
    """Write the wheel of a drop-in into ``folder``; raises ``splatfix-incomplete`` where splatfix itself lacks a kernel.

    ``compiled`` is the code of its CUDA kernels by file name, which it then carries with their sources; None for pure PyTorch.
    """
    folder.mkdir(parents=True, exist_ok=True)
    backend = "pure" if compiled is None else "nvrtc"
    # the version is in the file itself: who finds it in site-packages years later knows where it came from
    head = _HEAD.format(name=dropin.name, how=_HOW[backend], version=__version__)
    # the source of what stands beside kernels and manifest, by path, without the first docstring
    if dropin.distribution in ("fused-ssim", "simple-knn"):
        sources = {dropin.api: _source(dropin.distribution)}
    elif dropin.host:
        served = json.dumps(dict(dropin.host_releases))
        sources = {dropin.api: _source("hosted", dropin=dropin, releases=served)}
    elif dropin.declared:
        face = dropin.declared
        settings = {SETTINGS.get(name, ""): name for name in face.settings}
        arguments = {ARGUMENTS[name]: name for name in face.forward}
        options = [name for name in face.settings if name in BASE_SETTINGS or SETTINGS.get(name) == "option"]
        words = {"face": face, "settings": settings, "arguments": arguments, "options": options}
        words |= {"role_of": ARGUMENTS.get, "sums": SUMS}
        words["option"], words["instead"] = instead_of(face.settings)
        sources = {dropin.api: _source("declared", **words)}
        sources[f"{dropin.module}/_C.py"] = _source("compiled-half", module=dropin.module, exports=())
    else:
        row = variant(dropin.serves[0])
        assert row is not None
        # the variants that drop-ins serve have settings, forward and returns; tests/knowledge holds it
        sources = {dropin.api: _source("rasterizer", row=row)}
        sources[f"{dropin.module}/_C.py"] = _source("compiled-half", module=row.module, exports=row.exports)
    files = {path: (head + text).encode() for path, text in sources.items()}
    files.setdefault(f"{dropin.folder}/__init__.py", head.encode())
    for kernel in dropin.kernels:
        files[f"{dropin.folder}/_{kernel}"] = _kernel(kernel)
    if compiled is not None:
        for kernel in dropin.cuda:
            name = kernel if kernel.startswith("cuda/") else f"_{kernel}"
            files[f"{dropin.folder}/{name}"] = _kernel(kernel)
        files |= {f"{dropin.folder}/cuda/{name}": code for name, code in compiled.items()}
    summary = f"Drop-in for {dropin.name} {_HOW[backend]}, by splatfix"
    requires: tuple[str, ...] = ()
    if dropin.host:  # so that pip names it where its host is upgraded
        releases = sorted(dropin.host_releases, key=Version)
        requires = (f"{dropin.host}>={releases[0]},<={releases[-1]}",)
    path = write_wheel(folder, dropin.distribution, version, files, summary, requires=requires)
    made_so = {
        "replaces": dropin.host or dropin.module,
        "variant": dropin.variant,
        "backend": backend,
        "note": "",
    }
    if backend == "pure":
        made_so["note"] = dropin.note  # it speaks of the speed and limits of plain PyTorch
    add_manifest(path, "drop-in", made_so)
    return path


def _kernel(name: str) -> bytes:
    path = KERNELS / name
    try:
        # in the wheel a kernel's neighbors have the names that they have there
        return path.read_bytes().replace(b"from splatfix.kernels.", b"from ._")
    except OSError as error:
        reason = error.strerror or error
        raise SplatfixError.of("install.splatfix-incomplete", path=path, reason=reason) from error


def variants_of(dropin: Dropin, source: str) -> list[dict[str, object]]:
    """Return the definitions that a source of a drop-in is compiled with, once each."""
    more: list[dict[str, object]] = []
    if source == "blending.cu" and dropin.gives_used:
        more = [{"COLORS": 3, "EXTRAS": 3, "ABSOLUTE": 0, "USED": 1}]
    return [*KERNEL_VARIANTS.get(source, [{}]), *more]


def compile_cuda_kernels(
    dropin: Dropin, targets: Sequence[Arch], environment: Environment, log: Path
) -> tuple[dict[str, bytes], Rung]:
    """Return the code of our own kernels by file name, and what was shown of it.

    Raises ``nvrtc-failed`` with its words, ``wrong-gpu-code`` for code that is not for the target.
    """
    jobs: list[list[object]] = []
    for name in (Path(name).name for name in dropin.cuda if name.endswith(".cu")):  # the others are headers
        jobs += [[name, options, arch.number] for options in variants_of(dropin, name) for arch in targets]
    with temporary_folder() as scratch:
        # in the target environment: its torch brings the NVRTC that will compile there too
        program = str(KERNELS / "nvrtc.py")
        completed = environment.run(program, str(scratch), json.dumps(jobs), timeout=_TIMEOUT)
        log.write_text(completed.stdout + completed.stderr, encoding="utf-8")
        # its last line is a JSON object, where it came so far
        answer = json_object(completed.stdout.rpartition("\n")[2])
        if not completed.ok or "files" not in answer:
            reason = answer.get("error") or completed.why()
            details = {"log": str(log)}
            raise SplatfixError.of("install.nvrtc-failed", name=dropin.name, reason=reason, details=details)
        code: dict[str, bytes] = {}
        proofs: dict[str, None] = {}
        for name, source, number in answer["files"]:
            file = Path(scratch, name)
            code[name] = file.read_bytes()
            target = next(arch for arch in targets if arch.number == number)
            # what it holds is read from itself and not from its name
            try:
                coverage = judge(read_binary(file).fatbins, target)
            except BinaryError as error:
                raise SplatfixError.of("install.unreadable-gpu-code", source=source, error=error) from error
            if not coverage.usable:
                raise SplatfixError.of(
                    "install.wrong-gpu-code", source=source, sm=target.sm, reason=coverage.reason
                )
            means = {"sass": "native code"}.get(coverage.via, "PTX, which the driver compiles")
            proofs[f"{source} for {target.sm} ({means})"] = None
    return code, Rung(RungName.BUILT, True, f"compiled by NVRTC {answer['nvrtc']}: {'; '.join(proofs)}")
