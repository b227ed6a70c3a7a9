"""Sixty machines and indexes in the conventions of the field: the right wheel, or the right reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from splatfix.core.toml import parse_toml
from splatfix.facts.checkout import read_source
from splatfix.knowledge.wheel_indexes import WheelIndex, built_for
from splatfix.wheels.search import wanted_by_name, wanted_by_source
from tests.plan.machines import rasterizer_source

from .forge import SYMBOL, Server, context_of, search, serving, torch_in, write_page, write_wheel

TABLE = parse_toml((Path(__file__).parent / "combinations.toml").read_text("utf-8"))
CASES = TABLE["case"]


@pytest.mark.parametrize("case", CASES, ids=[case["what"].replace(" ", "-") for case in CASES])
def test_the_right_wheel_or_the_right_reason(case: Mapping[str, Any], tmp_path: Path) -> None:
    served = tmp_path / "served"
    number = case.get("python", "3.11").rstrip("t").replace(".", "")
    suffix = case.get("suffix", f"cpython-{number}-x86_64-linux-gnu.so")
    for wheel, code, *more in case["wheels"]:
        said = dict(more[0]) if more else {}
        written = write_wheel(served / "files", said.pop("as", wheel), code, suffix=suffix, **said)
        written.rename(served / "files" / wheel)
    torch = torch_in(tmp_path / "torch", case.get("torch", "2.8.0+cu128"), (SYMBOL,))
    options = {name: case[name] for name in ("python", "platform", "libc") if name in case}
    context = context_of(torch, *case.get("target", "sm_120").split(), **options)
    ask = case.get("ask", "fused-ssim")
    if ask.startswith("source:"):
        source = rasterizer_source(tmp_path / "source", ask.partition(":")[2])
        wanted = wanted_by_source(read_source(source))
    else:
        wanted = wanted_by_name(ask)
    with serving(served) as server:
        index = _write_index(case, served, server)
        answer = search(wanted, index, context)
    assert not answer.unanswered
    if "chosen" in case:
        assert answer.best and answer.best.link.wheel == case["chosen"], answer
        assert answer.exit_code == 0 and answer.best.evidence
    else:
        assert [item.rejected.code for item in answer.candidates if item.rejected] == case["refused"], answer
        assert answer.best is None


def _write_index(case: Mapping[str, Any], served: Path, server: Server) -> WheelIndex:
    if case["layout"] == "local":
        return WheelIndex("here", str(served))
    page, address = TABLE["layouts"][case["layout"]]
    pages: dict[str, list[str]] = {}
    for wheel, *_ in case["wheels"]:
        built = built_for(wheel.partition("+")[2].partition("-")[0])
        named = {
            "name": wheel.partition("-")[0].replace("_", "-"),
            "cuda": "cu" + "".join(map(str, built.cuda)),
            "torch": "torch" + ".".join(map(str, built.torch[:2])),
            "tag": "pt" + "".join(map(str, built.torch)),
            "folder": case.get("folder"),
        }
        pages.setdefault(page.format(**named), []).append(wheel)
    for folder, wheels in pages.items():
        up = "../" * len(folder.split("/"))
        links = {wheel: f"{up}files/{wheel}" for wheel in wheels}
        yanked = wheels if case["layout"] == "yanked" else []
        write_page(served / folder / "index.html", links, digests="sha256", yanked=yanked)
    for place in (served / "whl", *sorted(served.rglob("whl/**/"))):
        if not (place / "index.html").exists():
            below = {path.name: f"{path.name}/" for path in place.iterdir() if path.is_dir()}
            write_page(place / "index.html", below)
    return WheelIndex("served", f"{server.address}/whl{address.replace('{folder}', str(case.get('folder')))}")
