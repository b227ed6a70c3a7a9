"""A drop-in stands in only where it answers the checkout's own calls; what is offered is what install takes."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.core.proof import RungName
from splatfix.facts.checkout import read_checkout
from splatfix.knowledge.dropins import DROPINS
from splatfix.knowledge.stacks import Variant, variant
from splatfix.model import Checkout
from splatfix.model.steps import MakeDropin
from splatfix.plan import NO_SOURCES, OptionKind, summarise
from splatfix.plan.dropins import choose_dropins, replacement_for
from tests.archs import goal, request_for
from tests.files import put
from tests.plan.machines import healthy, plan, why_not
from tests.tables import data

from .machines import argv, cuda_source, find_options, machine, make_plan, rasterizer_source, refused, step_of
from .test_recipes import checkout_of

NAME = "diff_gaussian_rasterization"


def row_of(key: str) -> Variant:
    row = variant(key)
    assert row and row.settings and row.forward and row.returns
    return row


def rendering(
    settings: Sequence[str],
    forward: Sequence[str],
    results: Sequence[str],
    module: str = NAME,
    after: str = "",
) -> str:
    """A trainer's render function, as these trainers write it."""
    return f"""
from {module} import GaussianRasterizationSettings, GaussianRasterizer

def render(camera, pc):
    raster_settings = GaussianRasterizationSettings({", ".join(f"{name}=camera" for name in settings)})
    rasterizer = GaussianRasterizer(raster_settings=raster_settings)
    {", ".join(results)} = rasterizer({", ".join(f"{name}=pc" for name in forward)})
{after}
    return {results[0]}
"""


def of_variant(row: Variant, after: str = "") -> str:
    assert row.settings and row.forward and row.returns
    return rendering(row.settings, row.forward, row.returns, row.module, after)


def checkout(
    folder: Path,
    text: str,
    *,
    row: Variant | None = None,
    submodules: Sequence[str] = ("diff-gaussian-rasterization", "simple-knn"),
    train: str = "",
    url: str = "",
) -> Path:
    """A clone of a stack that nobody knows, with a rasterizer of this variant; None: its submodules are empty."""
    scene = "from simple_knn._C import distCUDA2\n\ndef make(x):\n    return distCUDA2(x)\n"
    address = f"\turl = {url}\n" if url else ""
    listed = [f'[submodule "{name}"]\n\tpath = submodules/{name}\n{address}' for name in submodules]
    put(folder, {"gaussian_renderer/__init__.py": text, "scene.py": scene, "train.py": train})
    put(folder, {".gitmodules": "".join(listed)})
    for place in (folder / "submodules" / name for name in submodules):
        place.mkdir(parents=True)
        if row and "raster" in place.name:
            rasterizer_source(place, row.key)
        elif row:
            cuda_source(place, place.name.replace("-", "_"))
    return folder


def read(folder: Path) -> Checkout:
    found = read_checkout(folder, ()).value
    assert found is not None
    return found


def names(folder: Path) -> list[str]:
    return sorted(item.name for item in replacement_for(read(folder)).dropins)


def why(folder: Path, module: str = NAME) -> str:
    """Why nothing replaces a module."""
    return next(item.reason for item in replacement_for(read(folder)).native if item.module == module)


AFTER: dict[str, str] = data(__file__)["after"]
"""What more a renderer calls, by the variant that has it."""


@pytest.mark.parametrize("fetched", [True, False])
@pytest.mark.parametrize("kind", [item.variant or item.module for item in DROPINS if "raster" in item.module])
def test_each_rasterizer_that_is_served(tmp_path: Path, kind: str, fetched: bool) -> None:
    """Also where nothing but the call tells which variant it is; simple_knn comes along."""
    dropin = next(item for item in DROPINS if kind in (item.variant, item.module))
    for key in dropin.serves:
        row = row_of(key)
        text, submodules = of_variant(row, AFTER.get(kind, "")), (dropin.distribution, "simple-knn")
        folder = checkout(tmp_path / key, text, row=row if fetched else None, submodules=submodules)
        assert names(folder) == [dropin.name, "simple_knn"]
        made = choose_dropins([str(folder)])
        assert not made.native
        assert sorted(item.name for item in made.dropins) == names(folder)


def test_a_call_with_an_argument_that_is_lacking(tmp_path: Path) -> None:
    """Speedy-Splat passes scores and takes three values: v1 was planned for it. And a field that nobody knows."""
    row = row_of("speedy")
    for number, fetched in enumerate((row, None)):
        folder = checkout(tmp_path / str(number), of_variant(row), row=fetched)
        assert names(folder) == ["simple_knn"]
        assert ("per-Gaussian scores" if fetched else "gives scores") in why(folder)
    row = row_of("inria-v1")
    folder = checkout(tmp_path / "gs", of_variant(row), row=row)
    file = folder / "submodules" / "diff-gaussian-rasterization" / NAME / "__init__.py"
    file.write_text(file.read_text().replace("    debug: int", "    debug: int\n    far_plane: int"))
    assert names(folder) == ["simple_knn"]
    assert "gives far_plane, of which nothing says what it means" in why(folder)


def test_a_third_value_of_another_meaning(tmp_path: Path) -> None:
    """4DGaussians takes depth where 3DGS-MCMC's rasterizer gives is_used; all else is alike."""
    row = row_of("mcmc")
    assert row.settings and row.forward
    for third, served in (("is_used", "mcmc"), ("_", "mcmc"), ("depth", "depth"), ("alpha", "alpha")):
        text = rendering(row.settings, row.forward, ("image", "radii", third))
        folder = checkout(tmp_path / third, text)
        assert f"{NAME}@{served}" in names(folder), third


@pytest.mark.parametrize("beside", ["setup.py", "submodules/Propagation"])
def test_what_is_served_is_not_held_up_by_the_rest(tmp_path: Path, beside: str) -> None:
    """GaussianPro: its Propagation must be built natively, and is named; a root setup.py hides nothing."""
    folder = checkout(tmp_path / "pro", of_variant(row_of("inria-v1")))
    if beside == "setup.py":
        put(folder, {beside: "from setuptools import setup\nsetup(name='fork')\n"})
    else:
        cuda_source(folder / beside, "gaussianpro")
    made = choose_dropins([str(folder)])
    assert sorted(item.name for item in made.dropins) == names(folder) == [f"{NAME}@v1", "simple_knn"]
    assert [item.module for item in made.native] == ["gaussianpro"] * (beside != "setup.py")


def test_extensions_below_a_name_of_their_own(tmp_path: Path) -> None:
    cuda_source(tmp_path, "gs.simple_knn")
    assert names(tmp_path) == [] and "part of gs" in why(tmp_path, "gs.simple_knn")
    assert refused(choose_dropins, [str(tmp_path)]).code == "nothing-replaces-it"


@pytest.mark.parametrize(("train", "served"), data(__file__)["fused_ssim"])
def test_fused_ssim_by_its_call(tmp_path: Path, train: str, served: bool) -> None:
    """FastGS's own has our signature. A guarded import without a submodule asks for nothing."""
    row = row_of("inria-v1")
    folder = checkout(tmp_path / "gs", of_variant(row), train=train)
    assert ("fused_ssim" in names(folder)) is (served and not train.startswith("try:"))
    (folder / "submodules" / "fused-ssim").mkdir()
    with (folder / ".gitmodules").open("a") as file:
        file.write('[submodule "f"]\n\tpath = submodules/fused-ssim\n')
    assert ("fused_ssim" in names(folder)) is served


@pytest.mark.parametrize("saved", [False, True], ids=["named", "from facts alone"])
@pytest.mark.parametrize("kind", ["empty", "fetched", "with another", "one import"])
def test_what_is_offered_is_taken(tmp_path: Path, kind: str, saved: bool) -> None:
    """The option of diagnose names what ``install --backend pure`` makes."""
    row = row_of("inria-v1")
    if kind == "one import":  # a trainer that is no extension and imports fused_ssim alone, as 3dgrut does
        folder = put(tmp_path / "rut", data(__file__)["one_import"])
    else:
        folder = checkout(tmp_path / "gs", of_variant(row), row=None if kind == "empty" else row)
    if kind == "with another":
        cuda_source(folder / "submodules" / "Propagation", "gaussianpro")
    request = request_for((str(folder),), ("sm_120",), backend="pure")
    facts = replace(healthy(), checkout=read_checkout(folder, ()))
    sources = NO_SOURCES if saved else summarise(request.sources, named=request.sources)
    option = plan(find_options(goal("sm_120"), facts, sources=sources), OptionKind.DROPIN)
    made = [step for step in make_plan(request, facts).steps if isinstance(step, MakeDropin)]
    offered = step_of(option, MakeDropin)
    assert list(offered.subjects) == ["@".join(filter(None, (step.module, step.variant))) for step in made]
    assert (RungName.TRAINS in option.proves) is (kind in ("empty", "fetched"))
    assert choose_dropins(argv(offered)[2:-4]).dropins == choose_dropins([str(folder)]).dropins


def test_a_refused_rasterizer_refuses_them_all(tmp_path: Path) -> None:
    """``--why`` said "not applicable", and --backend pure installed what is of no use without it; one judgement."""
    folder = checkout(tmp_path / "speedy", of_variant(row_of("speedy")))
    request = request_for((str(folder),), ("sm_120",), backend="pure")
    made = refused(make_plan, request, healthy())
    options = find_options(goal("sm_120"), healthy(), sources=summarise(request.sources))
    said = why_not(options, OptionKind.DROPIN)
    assert made.code == "nothing-replaces-it" and made.what.startswith(said)
    assert "gives scores" in said
    lines = [step.line() for step in made.todo]
    assert lines[0] == f"splatfix install {folder} --target sm_120"
    assert lines[1].endswith("splatfix install simple_knn --backend pure --target sm_120")
    alone = replace(healthy(), checkout=read_checkout(folder, ()))
    assert "of the others simple_knn can" in why_not(find_options(goal("sm_120"), alone), OptionKind.DROPIN)
    cpu = replace(request, backend="auto", targets=())
    assert refused(make_plan, cpu, machine(torch=None)).code != "nothing-to-replace"


def test_what_nothing_imports_is_not_offered(tmp_path: Path) -> None:
    """ever_training is Inria's trainer with a renderer of its own; Inria's rasterizer was offered for it."""
    folder = checkout_of("inria-2024", tmp_path)
    shutil.rmtree(folder / "submodules" / NAME.replace("_", "-"))
    put(folder, {"train.py": "from simple_knn._C import distCUDA2\nfrom ever.tracer import trace\n"})
    assert choose_dropins([str(folder)]).names == ("simple_knn",)
    put(folder, {"train.py": f"import simple_knn\nimport {NAME}\n"})
    assert len(choose_dropins([str(folder)]).names) == 2
    folder = checkout_of("nerfstudio", tmp_path / "nerfstudio")
    put(folder, {"model.py": "from gsplat.rendering import rasterization\nrasterization()\n"})
    assert choose_dropins([str(folder)]).names == ("gsplat",)


def test_a_checkout_without_extensions_and_one_that_nobody_made_a_drop_in_for(tmp_path: Path) -> None:
    put(tmp_path, {".git/HEAD": "", "train.py": "import torch\n"})
    assert refused(choose_dropins, [str(tmp_path)]).code == "nothing-to-replace"
    cuda_source(tmp_path / "nets", "nets")
    assert refused(choose_dropins, [str(tmp_path)]).what == "There is no drop-in for nets."
