"""What a person sees of a plan before the question whether to go ahead."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from splatfix.plan import Request
from splatfix.report.installation import show_plan
from tests.plan.machines import make_plan
from tests.plan.test_parts import mcmc_source, package, with_rasterizer


def test_plan_shows_a_replaced_rasterizer_of_other_stack(tmp_path: Path) -> None:
    source = mcmc_source(tmp_path / "dgr")
    for variant, said in (("mip", True), ("mcmc", False)):
        stream = io.StringIO()
        plan = make_plan(Request((str(source),), ("sm_120",)), with_rasterizer(package(variant)))
        show_plan(Console(file=stream, width=300, color_system=None), plan)
        words = "Note: the installed diff_gaussian_rasterization is that of Mip-Splatting; its trainer will no longer run"
        assert (words in stream.getvalue()) is said, stream.getvalue()
