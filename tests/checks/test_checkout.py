"""Checkouts: what git and splatfix are told to fetch."""

import dataclasses
from typing import Any

import pytest

from splatfix.checks import Status
from splatfix.core.step import commands
from splatfix.facts import (
    Checkout,
    CheckoutSource,
    Fact,
    Facts,
    NativeModule,
    RenderCall,
    Source,
    Submodule,
)
from splatfix.knowledge import stacks

from .conftest import loud, of, only

INRIA = stacks.stack("inria-v1")
assert INRIA is not None


def with_checkout(facts: Facts, **values: Any) -> Facts:
    found = Checkout(
        **{"folder": "/home/u/gs", "paths": INRIA.recognise, "commit": "472689c" + "0" * 33, **values}
    )
    return dataclasses.replace(facts, checkout=Fact(found, "text"))


def source(name: str = "simple_knn", flags: tuple[str, ...] = (), **values: Any) -> CheckoutSource:
    own = ("reads", "sets", "imports", "missing_folders", "requires", "error", "submodules")
    inner = {key: values.pop(key) for key in own if key in values}
    folder, modules = f"/home/u/gs/submodules/{name}", (NativeModule(f"{name}._C"),)
    made = (folder, ("setup.py",), name, "0.0.0", (name,), modules, True, True)
    return CheckoutSource(f"submodules/{name}", Source(*made, nvcc_flags=flags, **inner), **values)


def test_submodules(rtx_5080: Facts) -> None:
    there = Submodule("submodules/simple-knn", "https://example.org/knn", False)
    viewer = Submodule("SIBR_viewers", "https://example.org/sibr", True)
    assert not loud(with_checkout(rtx_5080, submodules=(there, viewer)))
    empty = dataclasses.replace(there, empty=True)
    finding, note = of(with_checkout(rtx_5080, submodules=(empty, viewer)), "submodules-missing")
    assert (finding.status, note.status) == (Status.FAIL, Status.SKIP)
    by_git, by_splatfix = (command.argv for command in commands(finding.remedy))
    assert by_git == ("git", "-C", "/home/u/gs", "submodule", "update", "--init", "--recursive")
    assert by_splatfix[:3] == ("splatfix", "install", "/home/u/gs")
    assert by_splatfix[-1] == "--fetch-submodules"
    unzipped = with_checkout(rtx_5080, submodules=(empty,), commit=None)
    clone = ("git", "clone", "--recursive", empty.url, "/home/u/gs/submodules/simple-knn")
    assert commands(only(unzipped, "submodules-missing").remedy)[0].argv == clone


@pytest.mark.parametrize(("path", "offered"), [("submodules/knn", True), ("trellis/flexicubes", False)])
def test_install_fetches_only_where_it_builds(rtx_5080: Facts, path: str, offered: bool) -> None:
    """TRELLIS: once it was fetched, install said that there is nothing to build."""
    empty = Submodule(path, "https://example.org/a", True, named_in=("a.py",))
    (found,) = of(with_checkout(rtx_5080, submodules=(empty,)), "submodules-missing")
    said = [" ".join(step.command.argv) for step in found.remedy if step.command]
    assert any("--fetch-submodules" in line for line in said) is offered and said[0].startswith("git")


def test_glm(rtx_5080: Facts) -> None:
    facts = with_checkout(rtx_5080, sources=(source("dgr", missing_folders=("third_party/glm",)),))
    found = only(facts, "glm-missing")
    assert "third_party/glm" in found.summary and not commands(found.remedy)
    glm = Submodule("third_party/glm", "git@github.com:g/glm.git", True)
    known = source("dgr", missing_folders=("third_party/glm",), submodules=(glm,))
    (command,) = commands(only(with_checkout(rtx_5080, sources=(known,)), "glm-missing").remedy)
    place = f"{known.source.folder}/third_party/glm"
    assert command.argv == ("git", "clone", "--recursive", "https://github.com/g/glm.git", place)


BASE = (
    *("image_height", "image_width", "tanfovx", "tanfovy", "bg", "scale_modifier"),
    *("viewmatrix", "projmatrix", "sh_degree", "campos", "prefiltered", "debug"),
)
F = ("means3D", "means2D", "shs", "colors_precomp", "opacities", "scales", "rotations", "cov3D_precomp")


def call(**values: Any) -> RenderCall:
    where = {
        "file": "gaussian_renderer/__init__.py",
        "line": 42,
        "function": "render",
        "module": "diff_gaussian_rasterization",
    }
    return RenderCall(**{**where, "settings": BASE, "forward": F, "unpacks": 2, **values})
