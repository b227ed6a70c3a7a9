"""Checks of how a checkout's sources are going to be built: pip's isolation, headers that are not included, Windows' traps."""

from __future__ import annotations

from collections.abc import Iterator

from splatfix.checks.model import Evidence, Outcome, ok, warn
from splatfix.checks.registry import check
from splatfix.context import Context
from splatfix.core.step import run, set_variable
from splatfix.core.versions import release
from splatfix.facts import CheckoutSource
from splatfix.knowledge.breakages import breakage


@check("build-isolation-enabled", family="checkout", title="pip builds the sources where torch is")
def build_isolation(context: Context) -> Iterator[Outcome]:
    """The setup.py of a splatting extension imports torch. pip builds in a fresh environment that has none ("No module named
    'torch'"), or, where pyproject.toml names torch, another torch than the one installed, so that the extension does not
    fit it. pip before 25.3 did so only for sources with a pyproject.toml, or where setuptools or (from 23.1 on) wheel is
    missing; pip 25.3 and uv do it always. Source: pip's changelog, 25.3 ("--use-pep517 is now always on"), and its
    `load_pyproject_toml` before."""
    torch, kind = context.torch, _who_isolates(context)
    if torch is None or context.torch_cuda is None or not kind:
        return
    waiting = [item for item in context.sources_to_build if item.source.uses_torch_builder]
    wrong = [
        item
        for item in waiting
        if _isolated(item, kind, context) and not _pins_this_torch(item, torch.version)
    ]
    if not wrong:
        if waiting:
            yield ok(
                f"{kind} builds {len(waiting)} source(s) where torch is.",
                evidence=Evidence("build with", kind, context.environment.distributions.found_via),
            )
        return
    names = ", ".join(item.source.label for item in wrong)
    yield warn(
        f"{kind} builds {names} apart from this environment, where torch {torch.version} is not.",
        evidence=(
            Evidence("build with", kind, context.environment.distributions.found_via),
            *(
                Evidence(
                    "pyproject.toml" if item.path == "." else f"{item.path}/pyproject.toml",
                    " ".join(item.source.build_requires) or "not there",
                    "build-system.requires",
                )
                for item in wrong
            ),
        ),
        remedy=tuple(context.pip("install", "--no-build-isolation", item.source.folder) for item in wrong),
    )


@check("msvc-std-ambiguous", family="checkout", title="Visual Studio reads torch's headers in CUDA files")
def msvc_std_ambiguous(context: Context) -> Iterator[Outcome]:
    """On Windows nvcc and Visual Studio stumble over torch/csrc/dynamo/compiled_autograd.h: "error C2872: 'std': ambiguous
    symbol". torch has a way around it that only works with USE_CUDA defined. Source: pytorch#144707, pytorch#188952,
    cubvh#31; seen with torch 2.9 to 2.11."""
    torch, known = context.torch, breakage("msvc-std-ambiguous").when
    if torch is None or context.build_toolkit is None:
        return
    if not known.holds({"torch": release(torch.version)[:2]}, context.machine.system):
        return
    for item in context.sources_to_build:
        if item.source.uses_torch_builder and not any("USE_CUDA" in flag for flag in item.source.nvcc_flags):
            yield warn(
                f"{item.source.label} may end in C2872 ('std': ambiguous symbol) with torch {torch.version}.",
                subject=item.path,
                evidence=(
                    Evidence("torch", torch.version, context.environment.torch.found_via),
                    Evidence(f"{item.path}/setup.py", " ".join(item.source.nvcc_flags) or "no nvcc flags"),
                ),
                remedy=set_variable("NVCC_APPEND_FLAGS", "-DUSE_CUDA"),
            )


@check("submodule-over-ssh", family="checkout", title="Submodules can be fetched without a key")
def submodule_over_ssh(context: Context) -> Iterator[Outcome]:
    """A .gitmodules that names git@github.com:... needs a key that GitHub knows; without one git ends in "Permission denied
    (publickey)", and the folder stays empty. The same repository is there over https. Said only of folders that are empty."""
    found = context.checkout
    for item in found.submodules if found else ():
        host, _, _ = item.url.removeprefix("ssh://").removeprefix("git@").replace(":", "/").partition("/")
        if found is None or not item.empty or not item.url.startswith(("git@", "ssh://")):
            continue
        written = (f"git@{host}:", f"ssh://git@{host}/")
        over_https = [word for start in written for word in ("-c", f"url.https://{host}/.insteadOf={start}")]
        yield warn(
            f"{item.path} is empty, and its address needs an SSH key.",
            subject=item.path,
            evidence=Evidence(".gitmodules", item.url),
            remedy=run(
                "git", "-C", found.folder, *over_https, "submodule", "update", "--init", "--recursive"
            ),
        )


def _who_isolates(context: Context) -> str:
    """``pip 25.3``, ``uv``, or "" where it is not known who builds here."""
    for item in context.environment.distributions.value or ():
        if item.name.lower() == "pip":
            return f"pip {item.version}"
    python = context.environment.interpreter.value
    return "uv" if python and python.kind == "uv" else ""


def _isolated(item: CheckoutSource, kind: str, context: Context) -> bool:
    """pip's own condition (``load_pyproject_toml``): since 23.1 it isolates where wheel is missing as well."""
    have = {one.name.lower() for one in context.environment.distributions.value or ()}
    return (
        kind == "uv"
        or release(kind)[:2] >= (25, 3)
        or "pyproject.toml" in item.source.build_files
        or "setuptools" not in have
        or (release(kind)[:2] >= (23, 1) and "wheel" not in have)
    )


def _pins_this_torch(item: CheckoutSource, version: str) -> bool:
    return any(
        text.replace(" ", "") == f"torch=={version.partition('+')[0]}" for text in item.source.build_requires
    )
