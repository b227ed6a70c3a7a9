"""The drop-in for gsplat's compiled module: which gsplat it is put beside, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.core.proof import RungName
from splatfix.model import Distribution, Extension, Fact, Facts, SplatPackage
from splatfix.model.steps import InstallDependencies, InstallWheel, MakeDropin
from splatfix.plan import OptionKind
from tests.archs import goal, request_for
from tests.files import put
from tests.plan.test_gpu_kernels import BARE
from tests.tables import data

from .machines import (
    RTX_5080,
    SITE,
    TORCH,
    argv,
    changed,
    find_options,
    installing,
    kinds,
    make_plan,
    plan,
    refused,
    why_not,
)

CPU = changed(BARE, torch=Fact(replace(TORCH, cuda=None), "test"))


def beside(facts: Facts, version: str, file: Extension | None = None, **of_gsplat: object) -> Facts:
    gsplat = replace(Distribution("gsplat", version, SITE), **of_gsplat)  # type: ignore[arg-type]
    # gsplat imports it, and does not ask for it
    facts = installing(facts, Distribution("packaging", "26.4", SITE))
    return installing(facts, gsplat, file=file)


CSRC = Extension("gsplat/csrc.so", SITE, "gsplat.csrc", (), (), True, True, 1)


@pytest.mark.parametrize(
    ("facts", "code", "todo"),
    [
        (BARE, "host-not-installed", "gsplat==1.5.3"),
        (beside(BARE, "1.6.0"), "host-release-not-served", "gsplat==1.5.3"),
        (beside(BARE, "1.5.2"), "host-release-not-served", "splatfix install gsplat==1.5.2"),
        (beside(BARE, "0.1.11"), "host-release-not-served", "gsplat==1.4.0"),
        (beside(BARE, "1.5.3", location="/usr/lib/python3/dist-packages"), "host-elsewhere", "gsplat==1.5.3"),
        (beside(BARE, "1.5.3", editable=True, origin="/src/gsplat"), "host-elsewhere", "gsplat==1.5.3"),
        (beside(BARE, "1.4.0+pt24cu124", CSRC), "host-compiled", "uninstall gsplat"),
    ],
)
def test_what_it_is_not_put_beside(facts: Facts, code: str, todo: str) -> None:
    for backend in ("nvrtc", "pure"):
        problem = refused(make_plan, request_for(["gsplat"], ("sm_90",), backend=backend), facts)
        assert problem.code == code
        assert todo in " | ".join(step.line() for step in problem.todo)


@pytest.mark.parametrize("version", ["1.4.0", "1.5.3", "1.5.3+pt27cu128"])
@pytest.mark.parametrize(("facts", "backend"), [(BARE, "nvrtc"), (CPU, "pure")])
def test_what_it_is_made_for(version: str, facts: Facts, backend: str) -> None:
    for asked in (backend, "auto"):
        request = request_for(["gsplat"], ("sm_75", "sm_90", "sm_120"), backend=asked)
        made = make_plan(request, beside(facts, version))
        (step,) = (step for step in made.steps if isinstance(step, MakeDropin))
        told = (step.subject, step.module, step.backend)
        assert told == ("splatfix-gsplat-csrc", "gsplat.csrc", backend)
        replaced = {step.subject for step in made.steps if isinstance(step, InstallWheel)}
        assert replaced == {"splatfix-gsplat-csrc"}, "gsplat itself is left alone"


def test_what_gsplat_imports_and_does_not_ask_for() -> None:
    facts = installing(CPU, Distribution("gsplat", "1.5.3", SITE))
    for backend in ("pure", "auto"):
        request = request_for(["gsplat"], ("sm_90",), backend=backend)
        problem = refused(make_plan, request, facts)
        assert problem.code == "host-import-missing" and "install packaging" in problem.todo[0].line()
        first, *_ = make_plan(replace(request, with_dependencies=True), facts).steps
        assert isinstance(first, InstallDependencies) and first.requirements == ("packaging",)


@pytest.mark.parametrize(
    ("release", "code"),
    [("1.5.3", ""), ("1.4.0", "host-release-not-served"), ("1.3.0", "nothing-replaces-it")],
)
def test_a_release_is_that_which_is_installed(release: str, code: str, tmp_path: Path) -> None:
    """`gsplat==1.4.0` is a source distribution by then, whose setup.py computes its version."""
    setup = data(__file__)["setup"]
    info = f"Metadata-Version: 2.1\nName: gsplat\nVersion: {release}\n"
    put(tmp_path, {"setup.py": setup, "PKG-INFO": info, "gsplat/ext.cu": "// kernels"})
    facts = beside(CPU, "1.5.3")
    request = request_for([str(tmp_path)], ("sm_90",), backend="pure")
    if code:
        assert refused(make_plan, request, facts).code == code
        return
    made = [step.module for step in make_plan(request, facts).steps if isinstance(step, MakeDropin)]
    assert made == ["gsplat.csrc"]
    checkout = put(tmp_path / "of", {"train.py": "import gsplat\n", "submodules/gsplat/setup.py": setup})
    request = request_for([str(checkout)], backend="pure")
    assert "has its own in" in refused(make_plan, request, facts).what
    address = "https://github.com/nerfstudio-project/gsplat.git"
    put(checkout, {".gitmodules": f'[submodule "a"]\n\tpath = submodules/gsplat\n\turl = {address}\n'})
    assert [step.module for step in make_plan(request, facts).steps if isinstance(step, MakeDropin)] == made


def test_options_offer_it_for_a_gsplat_without_kernels_that_it_serves() -> None:
    def of(version: str) -> Facts:
        package = SplatPackage("gsplat", f"{SITE}/gsplat", ("gsplat",), ("gsplat._C",))
        return installing(BARE, Distribution("gsplat", version, SITE), package=package)

    options = find_options(goal("sm_90"), of("1.5.3"))
    assert OptionKind.NVRTC in kinds(options)
    for gpus in ((), (RTX_5080,)):
        facts = changed(of("1.5.3"), gpus=Fact(gpus, "test"))
        proved = plan(find_options(goal("sm_120"), facts), OptionKind.NVRTC).proves
        assert RungName.BUILT in proved and (RungName.COMPUTES in proved) == bool(gpus)
    commands = [argv(step) for step in plan(options, OptionKind.NVRTC).steps if step.command]
    assert commands[0][:5] == ("splatfix", "install", "gsplat", "--backend", "nvrtc")
    assert any(words[1] == "certify" and "gsplat" in words for words in commands), "it trains with gsplat"
    assert "1.6.0 is installed" in why_not(find_options(goal("sm_90"), of("1.6.0")), OptionKind.NVRTC)
