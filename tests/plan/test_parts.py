"""What is installed is kept only where it can be used: not another stack's variant, not what a check found unusable."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.checks import run_checks, select
from splatfix.context import Goal, make_context
from splatfix.knowledge.stacks import variant
from splatfix.model import Checkout, Distribution, Extension, Fact, Facts, Linkage, RenderCall, SplatPackage
from splatfix.model.steps import BuildWheel
from splatfix.plan import OptionKind, Options, summarise
from splatfix.plan.checkout import variants_of_source
from splatfix.plan.parts import other_variant
from tests.archs import goal, request_for
from tests.checks.test_packages import package
from tests.files import put
from tests.plan.machines import (
    SITE,
    code,
    extensions,
    find_options,
    healthy,
    installing,
    kinds,
    make_plan,
    plan,
    rasterizer_source,
    step_of,
    why_not,
)
from tests.tables import data

NAME = "diff_gaussian_rasterization"


def with_rasterizer(shown: SplatPackage, *, linkage: Linkage | None = None, dropin: bool = False) -> Facts:
    """A healthy RTX 5080 with this rasterizer: compiled for it, or one of splatfix's drop-ins."""
    if dropin:
        made = Distribution(NAME, "0.0.0", SITE, made_by_splatfix="drop-in")
        return installing(healthy(), made, package=shown)
    file = Extension(f"{NAME}/_C.so", SITE, NAME, code("sm_120"), (), True, True, 1, linkage=linkage)
    return installing(healthy(), Distribution(NAME, "0.0.0", SITE), package=shown, file=file)


def calling(key: str, unpacks: int) -> Facts:
    """A checkout that takes so many results of a variant's rasterizer, which is installed."""
    row = variant(key)
    assert row and row.settings and row.forward
    arguments = {"settings": row.settings, "settings_positional": 0, "forward": row.forward}
    call = RenderCall("r.py", 1, "render", NAME, unpacks=unpacks, **arguments)  # type: ignore[arg-type]
    facts = with_rasterizer(package(key))
    return replace(facts, checkout=Fact(Checkout("/src", (), calls=(call,)), "test"))


def options_for(keys: Sequence[str], facts: Facts) -> Options:
    """The options where the rasterizer that is meant can be of these variants."""
    return find_options(Goal(), facts, sources=extensions(**{NAME: keys}))


@pytest.mark.parametrize("dropin", [False, True])
def test_another_stacks_variant_is_not_kept_but_rebuilt(dropin: bool) -> None:
    options = options_for(["mcmc"], with_rasterizer(package("mip"), dropin=dropin))
    assert "the variant mip, and mcmc is meant" in why_not(options, OptionKind.KEEP)
    rebuild = plan(options, OptionKind.REBUILD)
    assert step_of(rebuild, BuildWheel).subjects == (NAME,)
    assert any("that of Mip-Splatting" in r.text for r in rebuild.reasons)


def test_twins_of_one_interface_are_no_other_variant() -> None:
    """A drop-in has no compiled part and classes of its own, so that not all its traits are those of the variant."""
    assert other_variant(package("inria-v1"), ("sugar",)) == ("", "")
    assert other_variant(package("inria-v1"), ("inria-2024-dr_aa",)) != ("", "")
    assert other_variant(package("inria-v1"), ("simple-knn-86710c2",)) == ("", ""), "that is no rasterizer"
    bare = package("mip", exports=(), classes=("GaussianRasterizer", "Other"), forward=("anything",))
    assert other_variant(bare, ("mip",)) == ("", "")
    objection, conflict = other_variant(bare, ("mcmc",))
    assert "mcmc is meant" in objection and "that of Mip-Splatting" in conflict


def test_the_checkouts_call_decides_over_the_variant() -> None:
    assert kinds(options_for(["mip"], with_rasterizer(package("mip"))))[0] is OptionKind.KEEP, "no call"
    assert kinds(options_for(["scaffold"], calling("inria-v1", 2)))[0] is OptionKind.KEEP, "the call fits"
    for keys in (["inria-v1"], []):
        options = options_for(keys, calling("inria-v1", 3))
        assert "does not fit the installed diff_gaussian_rasterization" in why_not(options, OptionKind.KEEP)
        assert kinds(options)[0] is OptionKind.REBUILD


@pytest.mark.parametrize(
    ("code", "facts"),
    [
        ("torch-abi-mismatch", with_rasterizer(package("mip"), linkage=Linkage(torch_missing=("_ZN3c10",)))),
        ("ext-link-incomplete", with_rasterizer(package("mip"), linkage=Linkage(own_missing=("_Zown",)))),
        ("compiled-part-mismatch", with_rasterizer(package("mip", exports_missing=("f",)))),
        ("compiled-part-missing", with_rasterizer(package("mip", native_missing=(f"{NAME}._C",)))),
    ],
)
def test_whatever_check_fails_an_installed_part_it_is_not_kept(code: str, facts: Facts) -> None:
    """Not a list of checks: every failure that names the part, by its subject or by the files it stands on."""
    (finding,) = run_checks(make_context(facts), select((code,), ()))
    options = options_for(["mip"], facts)
    assert finding.summary.rstrip(".") in why_not(options, OptionKind.KEEP)
    assert step_of(plan(options, OptionKind.REBUILD), BuildWheel).subjects == (NAME,)


@pytest.mark.parametrize("case", data(__file__)["unknown"])
def test_what_an_unknown_source_built_is_found(tmp_path: Path, case: dict[str, str]) -> None:
    """Right after it was installed, "keep" said that it is not installed."""
    setup = f"setup(name={case['name']}, ext_modules=[{case['module']}])\n"
    imports = "from setuptools import Extension, setup\nfrom torch.utils.cpp_extension import CUDAExtension\n"
    put(tmp_path, {"setup.py": imports + setup, "a.cu": "", "a.cpp": ""})
    owner, path = case["distribution"], case["path"]
    file = Extension(path, SITE, owner or None, code("sm_120"), (), True, True, 1)
    made = Distribution(owner or "a", "1.0", SITE, origin=case["origin"].format(folder=tmp_path))
    facts = installing(healthy(), made, file=file if path else None)
    sources = summarise((str(tmp_path),))
    before = find_options(goal("sm_120"), healthy(), sources=sources)
    assert "is not installed" in why_not(before, OptionKind.KEEP)
    assert kinds(find_options(goal("sm_120"), facts, sources=sources))[0] is OptionKind.KEEP


def test_the_source_tells_its_variant_and_the_conflict(tmp_path: Path) -> None:
    folder = rasterizer_source(tmp_path / "dgr", "mcmc")
    assert "mcmc" in variants_of_source(str(folder))
    request, facts = request_for((str(folder),), ("sm_120",)), with_rasterizer(package("mip"))
    options = find_options(goal("sm_120"), facts, sources=summarise(request.sources))
    assert "mcmc" in why_not(options, OptionKind.KEEP)
    for backend in ("native", "pure"):
        notes = make_plan(replace(request, backend=backend), facts).notes
        assert "the installed diff_gaussian_rasterization is that of Mip-Splatting" in "".join(notes)
    own = with_rasterizer(package("mcmc"))
    assert "no longer run" not in "".join(make_plan(request, own).notes)
