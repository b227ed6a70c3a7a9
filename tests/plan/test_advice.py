"""A failing diagnosis ends with what cures its failures, and never with a option that leaves them as they are."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.checks import run_checks, select
from splatfix.context import make_context
from splatfix.core.step import PlainStep, Step, run, say, set_variable
from splatfix.facts.checkout import with_checkout
from splatfix.model import Distribution, Fact, Facts, Status, ToolkitChoice
from splatfix.model.option import Advice
from splatfix.model.steps import BuildWheel
from splatfix.plan import OptionKind, Options, summarise
from tests.archs import goal
from tests.checks.test_packages import package
from tests.files import put
from tests.machines import NAMES, facts_of
from tests.plan.machines import (
    CUDA_12,
    CUDA_13,
    advised_options,
    argv,
    changed,
    cuda_source,
    find_options,
    healthy,
    installing,
    machine,
    plan,
    step_of,
    with_submodules,
)
from tests.plan.test_build_environment import NO_SWITCH
from tests.plan.test_parts import calling, with_rasterizer
from tests.tables import data

WRAPPED = ToolkitChoice(
    "/usr/local", "the folder above nvcc", "/usr/local/bin/nvcc", real_root=CUDA_13.root, has_headers=False
)


def diagnosed(facts: Facts, *targets: str) -> Options:
    context = make_context(facts, goal(*targets))
    findings = run_checks(context)
    assert any(item.status is Status.FAIL for item in findings)
    return advised_options(findings, context)


def advised_for(folder: Path, facts: Facts, *codes: str, lacking: tuple[Step, ...] = ()) -> Advice:
    """The advice for a source folder that answers these checks, and a failure more with this remedy."""
    context = make_context(with_checkout(wrapped(facts), folder, ()), goal("sm_120"))
    findings = [*run_checks(context, select(codes))]
    if lacking:
        findings.append(replace(findings[0], code="imports-missing", status=Status.FAIL, remedy=lacking))
    sources = summarise((str(folder),), context, named=("HERE",))
    advice = advised_options(findings, context, sources=sources).advice
    assert advice
    return advice


def wrapped(facts: Facts) -> Facts:
    """torch would take the folder of a wrapper script for its toolkit; nothing but torch can be imported."""
    return changed(facts, toolkit_choice=Fact(WRAPPED, "test"), modules=Fact(("torch",), "test"))


def test_cuda_home_matters_only_when_building() -> None:
    findings = run_checks(make_context(wrapped(with_rasterizer(package("mip"))), goal()))
    assert not any(item.status is Status.FAIL for item in findings)
    assert [item.status for item in findings if item.code == "cuda-home-wrong"] == [Status.SKIP]


def test_a_rebuild_cures_a_wrong_cuda_home() -> None:
    """Where nothing is to be built yet, it is a problem: who builds without splatfix meets it."""
    for facts, mended in ((wrapped(healthy()), ()), (wrapped(calling("mip", 3)), ("cuda-home-wrong",))):
        advice = diagnosed(facts).advice
        assert advice and advice.option and advice.option.kind is OptionKind.REBUILD
        assert advice.also_needed == () and advice.mended == mended


def test_warnings_that_ask_for_what_install_does_are_mended_too() -> None:
    context = make_context(wrapped(calling("mip", 3)), goal())
    findings = list(run_checks(context))
    wrong = next(item for item in findings if item.code == "cuda-home-wrong")

    def mended(*steps: Step, code: str = "no-gpu-at-build") -> bool:
        warned = replace(wrong, code=code, status=Status.WARN, remedy=steps)
        others = [item for item in findings if item.code != warned.code]
        advice = advised_options([*others, warned], context).advice
        assert advice
        return warned.code in advice.mended

    arch_list, preload = set_variable("TORCH_CUDA_ARCH_LIST", "12.0"), set_variable("LD_PRELOAD", "x.so")
    assert mended(arch_list) and mended(run("pip", "install", "."), code="build-isolation-enabled")
    assert (
        not mended(arch_list, preload)
        and not mended(arch_list, run("apt", "install", "gcc"))
        and not mended()
    )


def test_what_is_missing_to_build_is_no_problem_of_what_is_installed() -> None:
    facts = changed(with_rasterizer(package("mip")), toolkits=Fact((CUDA_12,), "test"))
    advice = diagnosed(facts).advice
    assert advice and advice.option is None
    assert advice.also_needed == () and advice.mended == ("cuda-torch-mismatch",)


def test_the_rest_gets_its_own_remedy() -> None:
    vision = Distribution("torchvision", "0.22.0", "/x", pins=("torch==2.7.0",))
    options = diagnosed(installing(with_rasterizer(package("mip")), vision))
    assert options.advice and options.advice.option is None
    (said,) = options.advice.also_needed
    assert said.code == "torch-companions-mismatch" and said.steps
    assert OptionKind.KEEP not in [item.kind for item in options.available], (
        "an import of torchvision fails there"
    )


@pytest.mark.parametrize("name", NAMES)
def test_keep_is_advised_only_after_a_repair(name: str) -> None:
    context = make_context(facts_of(name))
    findings = run_checks(context)
    options = advised_options(findings, context)
    advice = options.advice
    fails = any(item.status is Status.FAIL for item in findings)
    assert advice and bool(advice.option or advice.also_needed) is fails
    # the document ranks them as the text does
    assert not advice.option or options.available[0] == advice.option
    if advice.option and advice.option.kind is OptionKind.KEEP:
        assert type(advice.option.steps[0]) is PlainStep and "manual step" in advice.option.title
    remedies = [tuple(step.text for step in item.steps) for item in advice.also_needed if item.steps]
    assert len(remedies) == len(set(remedies)), "one remedy is said once"


@pytest.mark.parametrize("files", data(__file__)["fetched_first"])
def test_submodules_that_a_build_needs_are_fetched_first(tmp_path: Path, files: dict[str, str]) -> None:
    """They were asked for again after it; and FRNN's build stood first, and asked its module of the README."""
    put(
        with_submodules(tmp_path, "ext/cutlass"), {".git/HEAD": "a" * 40, "ext/a.cu": "", "a.cu": "", **files}
    )
    advice = advised_for(tmp_path, healthy(), "submodules-missing", "imports-missing", "cuda-home-wrong")
    assert advice.option and "missing or empty: ext/cutlass" in advice.option.steps[0].text
    assert argv(advice.option.steps[0])[0] == "git"
    assert advice.also_needed == () and advice.mended == ("cuda-home-wrong",)


def test_what_an_edit_of_the_copy_mends_is_no_problem(tmp_path: Path) -> None:
    """permutohedral_encoding: its C++14 and its own variable were said beside the build that edits and sets both."""
    cuda_source(tmp_path, flags="*flags", before=data(__file__)["own_variable"])
    codes = ("cxx-standard-forced", "arch-list-ignored")
    clone = run("git", "clone", "https://example.org/scatter", kind="clone")
    build = make_context(machine()).install("./scatter")
    advice = advised_for(tmp_path, machine(), *codes, lacking=(clone, build))
    assert [item.code for item in advice.also_needed] == ["imports-missing"]
    advice = advised_for(tmp_path, machine(), *codes)
    assert advice.option and advice.also_needed == () and set(advice.mended) == set(codes)


def test_after_a_refusal_nothing_is_asked_for_that_install_sets(tmp_path: Path) -> None:
    """KNN_CUDA, which no machine without a GPU builds: CUDA_HOME came back as a problem and as what else is needed."""
    cuda_source(tmp_path, before=NO_SWITCH + "cc = torch.cuda.get_device_capability()\n")
    advice = advised_for(tmp_path, machine(), "cuda-home-wrong")
    assert [item.code for item in advice.also_needed] == ["gpu-needed-to-build"]
    assert advice.mended == ("cuda-home-wrong",)


def test_what_the_checkout_does_not_import_is_not_advised_first(tmp_path: Path) -> None:
    """3DGRUT, which needs fused_ssim, was advised to compile an installed gsplat."""
    put(tmp_path, {"train.py": "import fused_ssim\n"})
    facts = with_checkout(with_rasterizer(package("mip")), tmp_path, ())
    context = make_context(facts, goal("sm_90"))
    findings = run_checks(context)
    assert any(item.family == "extension" and item.status is Status.FAIL for item in findings)
    options = advised_options(findings, context)
    assert options.advice and options.subjects == () and options.advice.option is None
    codes = [item.code for item in options.advice.also_needed]
    assert codes.index("ext-not-installed") < codes.index("no-kernel-image")


def test_what_splatfix_fetches_is_one_command(tmp_path: Path) -> None:
    """``--fetch-submodules`` was ignored in the options."""
    with_submodules(tmp_path, "submodules/simple-knn")
    sources = summarise((str(tmp_path),), named=("HERE",), fetch=(say("fetch it from x"),))
    options = find_options(goal("sm_120"), healthy(), sources=sources)
    option = plan(options, OptionKind.REBUILD)
    assert option.steps[0].text == "fetch it from x" and option.steps[0].command is None
    assert "--fetch-submodules" in argv(step_of(option, BuildWheel))
