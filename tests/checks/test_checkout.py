"""Checkouts: complete or not, calls that fit what is installed, COLMAP."""

from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.checks import Status
from splatfix.core.step import commands
from splatfix.facts import (
    Checkout,
    CheckoutSource,
    CodeMatch,
    Fact,
    Facts,
    GuardedImport,
    Linkage,
    NativeModule,
    RenderCall,
    Source,
    SplatPackage,
    Submodule,
)
from splatfix.knowledge import stacks

from .conftest import Changer, cuda, extension, loud, of, only, sass
from .test_packages import package, packages

INRIA = stacks.stack("inria-v1")
assert INRIA is not None


def with_checkout(facts: Facts, **values: Any) -> Facts:
    found = Checkout(
        **{"folder": "/home/u/gs", "paths": INRIA.recognise, "commit": "472689c" + "0" * 33, **values}
    )
    return replace(facts, checkout=Fact(found, "text"))


def source(name: str = "simple_knn", flags: tuple[str, ...] = (), **values: Any) -> CheckoutSource:
    own = ("reads", "sets", "imports", "missing_folders", "requires", "error", "submodules")
    inner = {key: values.pop(key) for key in own if key in values}
    folder, modules = f"/home/u/gs/submodules/{name}", (NativeModule(f"{name}._C"),)
    made = (folder, ("setup.py",), name, "0.0.0", (name,), modules, True, True)
    return CheckoutSource(f"submodules/{name}", Source(*made, nvcc_flags=flags, **inner), **values)


# --- what it is


def test_a_known_stack(rtx_5080: Facts) -> None:
    (finding,) = of(with_checkout(rtx_5080), "checkout-stack-unknown")
    assert finding.status is Status.PASS
    assert "commit 472689c" in finding.summary
    assert not loud(with_checkout(rtx_5080))


# --- is it complete


def test_submodules(rtx_5080: Facts) -> None:
    there = Submodule("submodules/simple-knn", "https://example.org/knn", False)
    viewer = Submodule("SIBR_viewers", "https://example.org/sibr", True)
    assert not loud(with_checkout(rtx_5080, submodules=(there, viewer)))
    empty = replace(there, empty=True)
    finding, note = of(with_checkout(rtx_5080, submodules=(empty, viewer)), "submodules-missing")
    assert (finding.status, note.status) == (Status.FAIL, Status.SKIP)
    by_git, by_splatfix = (command.argv for command in commands(finding.remedy))
    assert by_git == ("git", "-C", "/home/u/gs", "submodule", "update", "--init", "--recursive")
    assert by_splatfix[:3] == ("splatfix", "install", "/home/u/gs")
    assert by_splatfix[-1] == "--fetch-submodules"
    unzipped = with_checkout(rtx_5080, submodules=(empty,), commit=None)
    clone = ("git", "clone", "--recursive", empty.url, "/home/u/gs/submodules/simple-knn")
    assert commands(only(unzipped, "submodules-missing").remedy)[0].argv == clone


@pytest.mark.parametrize(
    ("path", "more", "why"),
    [
        ("thirdparty/tiny-cuda-nn", {"named_in": ("setup_it.py",)}, "setup_it.py needs it"),
        ("ext/simple-knn", {}, "an extension"),
        ("deps/knn/third_party/glm", {}, "dgr needs it"),
        ("SIBR_viewers", {}, ""),
    ],
)
def test_who_needs_a_submodule(rtx_5080: Facts, path: str, more: dict[str, Any], why: str) -> None:
    empty = Submodule(path, "https://example.org/a", True, **more)
    item = replace(source("dgr", missing_folders=("third_party/glm",)), path="deps/knn")
    facts = with_checkout(rtx_5080, submodules=(empty,), imports=("simple_knn",), sources=(item,))
    (found,) = of(facts, "submodules-missing")
    assert found.status is (Status.FAIL if why else Status.SKIP)
    assert why in found.summary and path in found.summary
    told_twice = of(facts, "glm-missing")
    assert bool(told_twice) is ("glm" not in path)


@pytest.mark.parametrize(("path", "offered"), [("submodules/knn", True), ("trellis/flexicubes", False)])
def test_install_fetches_only_where_it_builds(rtx_5080: Facts, path: str, offered: bool) -> None:
    """TRELLIS: once it was fetched, install said that there is nothing to build."""
    empty = Submodule(path, "https://example.org/a", True, named_in=("a.py",))
    (found,) = of(with_checkout(rtx_5080, submodules=(empty,)), "submodules-missing")
    said = [" ".join(step.command.argv) for step in found.remedy if step.command]
    assert any("--fetch-submodules" in line for line in said) is offered and said[0].startswith("git")


def test_empty_submodule_of_installed_extension_is_no_alarm(changed: Changer) -> None:
    empty = Submodule("submodules/fused-ssim", "https://example.org/ssim", True)
    assert not loud(with_checkout(changed(packages=packages(ssim())), submodules=(empty,)))
    assert loud(with_checkout(changed(packages=packages()), submodules=(empty,)))


def test_glm(rtx_5080: Facts) -> None:
    facts = with_checkout(rtx_5080, sources=(source("dgr", missing_folders=("third_party/glm",)),))
    found = only(facts, "glm-missing")
    assert "third_party/glm" in found.summary and not commands(found.remedy)
    glm = Submodule("third_party/glm", "git@github.com:g/glm.git", True)
    known = source("dgr", missing_folders=("third_party/glm",), submodules=(glm,))
    (command,) = commands(only(with_checkout(rtx_5080, sources=(known,)), "glm-missing").remedy)
    place = f"{known.source.folder}/third_party/glm"
    assert command.argv == ("git", "clone", "--recursive", "https://github.com/g/glm.git", place)


# --- does it call what is installed

BASE = (
    *("image_height", "image_width", "tanfovx", "tanfovy", "bg", "scale_modifier"),
    *("viewmatrix", "projmatrix", "sh_degree", "campos", "prefiltered", "debug"),
)
F = ("means3D", "means2D", "shs", "colors_precomp", "opacities", "scales", "rotations", "cov3D_precomp")


def call(**values: Any) -> RenderCall:
    where = {"file": "gaussian_renderer/__init__.py", "line": 42, "function": "render", "module": RASTERIZER}
    return RenderCall(**{**where, "settings": BASE, "forward": F, "unpacks": 2, **values})


def calling(changed: Changer, installed: SplatPackage | str, *calls: RenderCall) -> Facts:
    """A checkout with these calls, beside an installed rasterizer."""
    item = package(installed) if isinstance(installed, str) else installed
    return with_checkout(changed(packages=packages(item)), calls=calls)


RASTERIZER = "diff_gaussian_rasterization"


def dropin(key: str, name: str) -> SplatPackage:
    """One of splatfix's drop-ins as its source shows it: no compiled part, no autograd function of its own."""
    return package(key, native=(), exports=("mark_visible",), returns=None, dropin=f"{RASTERIZER}@{name}")


def test_a_drop_in_is_judged_by_its_manifest(changed: Changer) -> None:
    """It was an unknown variant, and of a wrong number of results nothing was said."""
    facts = calling(changed, dropin("inria-v1", "v1"), call())
    assert not loud(facts)
    for code in ("rasterizer-api-mismatch", "splat-variant-unknown"):
        (found,) = of(facts, code)
        assert found.status is Status.PASS and f"splatfix's drop-in {RASTERIZER}@v1" in found.summary
    wrong = calling(changed, dropin("mcmc", "mcmc"), call())
    assert "2 results, 3 come back" in only(wrong, "rasterizer-api-mismatch").summary


def test_what_is_not_installed(changed: Changer) -> None:
    have = changed(packages=packages(package("inria-v1")))
    facts = with_checkout(have, imports=("diff_gaussian_rasterization", "simple_knn"), sources=(source(),))
    finding = only(facts, "ext-not-installed")
    assert finding.subject == "simple_knn"
    assert finding.remedy[1].line() == (
        "splatfix install /home/u/gs/submodules/simple_knn --python /env/bin/python --target sm_120"
    )


GUARD = GuardedImport("train.py", 21, "fused_ssim", ("fused_ssim",), "everything")


def ssim(**values: Any) -> Any:
    return package("fused-ssim", native=("fused_ssim_cuda",), **values)


def test_a_fallback_from_a_broken_extension(changed: Changer) -> None:
    linkage = Linkage(torch_missing=("_ZN3c104goneEv",))
    item = replace(extension("fused_ssim", sass("sm_120")), linkage=linkage)
    facts = with_checkout(changed(packages=packages(ssim()), extensions=Fact((item,), "")), guarded=(GUARD,))
    assert set(loud(facts)) == {"silent-fallback", "torch-abi-mismatch"}


def test_an_import_elsewhere_without_a_guard_is_told_once(changed: Changer) -> None:
    facts = with_checkout(changed(packages=packages()), guarded=(GUARD,), imports=("fused_ssim",))
    assert set(loud(facts)) == {"ext-not-installed"}


# --- does it compile here


def match_of(kind: str) -> CheckoutSource:
    return source(matches=(CodeMatch(kind, "simple_knn.cu", 90, "the line"),))


def test_what_is_already_built_is_not_judged_as_a_source(changed: Changer) -> None:
    built = changed(extensions=Fact((extension("simple_knn", sass("sm_120")),), ""), **cuda("12.9.86"))
    assert not loud(with_checkout(built, sources=(match_of("cfloat"),)))
