"""Checks of the target environment as a whole: does its Python answer, and what must be there to build."""

from __future__ import annotations

from collections.abc import Iterator

from splatfix.checks.model import Evidence, Outcome, Status, fail, ok, outcome
from splatfix.checks.registry import check
from splatfix.context import Context
from splatfix.context.readings import SETUPTOOLS_DROPPED
from splatfix.core.step import say
from splatfix.core.versions import release


@check("interpreter-answers", family="environment", title="The target Python describes itself")
def interpreter_answers(context: Context) -> Iterator[Outcome]:
    """splatfix touches the target environment only through a child process. If that process crashes, hangs or prints
    nonsense, the environment itself is broken, and everything below it stays unknown."""
    interpreter = context.environment.interpreter
    if interpreter.value is None:
        yield fail(
            "The target environment's Python does not work.",
            evidence=(Evidence("reason", interpreter.error),),
            remedy=(say("Make the environment anew, or give another interpreter with --python."),),
        )
        return
    found = interpreter.value
    yield ok(
        f"Python {found.version} ({found.kind}) at {found.prefix}",
        evidence=(Evidence("executable", found.executable, interpreter.found_via),),
    )


@check("build-tools", family="environment", title="setuptools, wheel and ninja in the target environment")
def build_tools(context: Context) -> Iterator[Outcome]:
    """Splatting extensions are built with `--no-build-isolation`, so what builds them must be in the environment itself:
    setuptools (and wheel before setuptools 70.1); ninja makes torch compile files side by side."""
    distributions = context.environment.distributions
    if distributions.value is None or context.torch_cuda is None:
        return
    have = {item.name.lower().replace("_", "-"): item.version for item in distributions.value}
    evidence = tuple(
        Evidence(name, have.get(name, "not installed"), distributions.found_via)
        for name in ("setuptools", "wheel", "ninja")
    )
    needs = ["setuptools"] if "setuptools" not in have else []
    if "wheel" not in have and release(have.get("setuptools", "0")) < (70, 1):
        needs.append("wheel")
    if "ninja" not in have and "ninja" not in context.machine.tools:
        needs.append("ninja")
    if needs:
        asked = [_as_torch_bears(name, context) for name in needs]
        yield outcome(
            Status.SKIP if context.made_to_run else Status.WARN,
            f"To build extensions here, {' and '.join(needs)} must be installed first.",
            evidence=evidence,
            remedy=(context.pip("install", *asked),),
        )
    else:
        yield ok("What builds an extension is in the environment.", evidence=evidence)


@check(
    "setuptools-incompatible", family="environment", title="setuptools still has what builders import of it"
)
def setuptools_incompatible(context: Context) -> Iterator[Outcome]:
    """torch.utils.cpp_extension of older releases imports pkg_resources, which setuptools 82 removed, or
    pkg_resources.packaging, which setuptools 70 removed. Every build of an extension then ends before it begins. The
    setup.py of tiny-cuda-nn imports pkg_resources itself, whatever torch does."""
    torch = context.torch
    distributions = context.environment.distributions
    setuptools = next((item for item in distributions.value or () if item.name.lower() == "setuptools"), None)
    if torch is None or setuptools is None:
        return
    asking = [(f"torch {torch.version}", "cpp_extension.py", torch.builder_imports)]
    asking += [
        (item.source.label, f"{item.path}/setup.py", item.source.imports) for item in context.sources_to_build
    ]
    for name, limit in SETUPTOOLS_DROPPED.items():
        wrong = [(who, file) for who, file, imports in asking if name in imports]
        if wrong and release(setuptools.version)[:1] >= (limit,):
            who, file = wrong[0]
            yield fail(
                f"{who} imports {name}; setuptools {setuptools.version} no longer has it.",
                evidence=(
                    Evidence("setuptools", setuptools.version, distributions.found_via),
                    Evidence(file, f"imports {name}", "its source text"),
                ),
                remedy=(context.pip("install", f"setuptools<{limit}"),),
            )
            return


def _as_torch_bears(name: str, context: Context) -> str:
    """setuptools below the release that dropped what this torch's builder imports of it."""
    torch = context.torch
    limits = [limit for gone, limit in SETUPTOOLS_DROPPED.items() if torch and gone in torch.builder_imports]
    return f"{name}<{min(limits)}" if name == "setuptools" and limits else name
