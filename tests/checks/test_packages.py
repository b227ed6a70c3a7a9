"""Installed splatting packages: variants, clashes, lookalikes, one module for each CUDA; real wheels as well."""

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.context import make_context
from splatfix.facts import gather
from splatfix.knowledge import stacks
from splatfix.model import Extension, Fact, Facts, ImportProbe, Linkage, SplatPackage, Status
from tests.tables import data

from .conftest import Changer, TorchWith, extension, loud, of, sass

SITE = "/env/lib/python3.11/site-packages"


def package(key: str, **values: Any) -> SplatPackage:
    """An installed package as the source of one of the known variants would show it."""
    row = stacks.variant(key)
    assert row is not None
    shown = {
        "module": row.module,
        "folder": f"{SITE}/{row.module}",
        "distributions": (row.module,),
        "native": (row.extension,),
        "settings": row.settings,
        "classes": tuple(name for name in (row.rasterizer_class, *row.extra_classes) if name),
        "forward": row.forward,
        "forward_required": 3,
        "returns": len(row.returns) if row.returns else None,
        "exports": tuple(row.exports),
    }
    return SplatPackage(**(shown | values))


@pytest.mark.parametrize("row", [row for row in stacks.variants() if row.settings], ids=lambda row: row.key)
def test_every_known_variant_is_named(changed: Changer, row: stacks.Variant) -> None:
    facts = changed(packages=Fact((package(row.key),), "source text"))
    (finding,) = of(facts, "splat-variant-unknown")
    assert finding.status is Status.PASS and row.key in finding.summary


def unpacked(requirement: str, python: Path, site: Path, downloads: Path) -> Facts:
    """The facts of an environment that holds this wheel and sees the torch of this one."""
    torch = pytest.importorskip("torch")
    argv = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    argv += ["-d", str(downloads), requirement]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        pytest.skip(f"no wheel to download: {done.stderr.strip()[-200:]}")
    (wheel,) = downloads.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(site)
    (site / "torch.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    return gather(str(python))


@pytest.mark.slow
def test_the_classifier(empty_venv: Path, site_packages: Path, tmp_path: Path) -> None:
    facts = unpacked("simple-knn==2.0.1", empty_venv, site_packages, tmp_path)
    assert loud(facts, "sm_120")["lookalike-package"].status is Status.FAIL


@pytest.mark.slow
def test_the_repackaging(empty_venv: Path, site_packages: Path, tmp_path: Path) -> None:
    facts = unpacked("gaussian-splatting==2.11.0", empty_venv, site_packages, tmp_path)
    found = loud(facts, "sm_120")
    assert {found[code].status for code in ("lookalike-package", "duplicate-runtimes")} == {Status.WARN}
    modules = {item.module: item for item in facts.environment.packages.value or ()}
    rasterizer = modules["gaussian_splatting.diff_gaussian_rasterization"]
    assert rasterizer.native_missing == () and rasterizer.exports_missing == ()
    assert rasterizer.settings is not None and rasterizer.settings[-1] == "antialiasing"
    bundled = {item.library for item in facts.environment.runtime_copies.value or () if item.bundled}
    assert {"libc10", "libcudart"} <= bundled


def fat_wheel(*tags: str) -> tuple[Extension, ...]:
    """One module for each CUDA, as fussim's wheel brings them: the older ones know no sm_120."""
    return tuple(
        replace(
            extension("fussim", sass("sm_90") if tag < "cu128" else sass("sm_90", "sm_120")),
            path=f"fussim/_cuda_{tag}.cpython-311-x86_64-linux-gnu.so",
            linkage=Linkage(unresolved=(f"libcudart.so.{tag[2:4]}.0",) if tag != "cu128" else ()),
        )
        for tag in tags
    )


@pytest.mark.parametrize(("torch_cuda", "tags", "loaded"), data(__file__)["loaded"])
def test_of_a_fat_wheel_one_module_is_loaded(
    changed: Changer, torch_with: TorchWith, torch_cuda: str | None, tags: tuple[str, ...], loaded: str
) -> None:
    facts = changed(extensions=Fact(fat_wheel(*tags)), torch=torch_with(cuda=torch_cuda))
    assert [item.module for item in make_context(facts).extensions] == [f"fussim._cuda_{loaded}"]


def test_a_healthy_fat_wheel_is_healthy(changed: Changer) -> None:
    modules = fat_wheel("cu118", "cu124", "cu126", "cu128", "cu130")
    tried = tuple(
        ImportProbe(item.module, ok="cu128" in item.module, outcome="exception", detail="libcudart")
        for item in modules
    )
    assert loud(changed(extensions=Fact(modules), imports=tried)) == {}
