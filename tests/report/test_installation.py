"""What a person sees of a plan before the question whether to go ahead."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from splatfix.app.install import shown
from splatfix.core.errors import Exit
from splatfix.install.outcome import Restored, RevertOutcome
from splatfix.plan import BuildWheel, InstallPlan, OptionKind
from splatfix.plan.steps import Reason
from splatfix.report.installation import show_plan, show_revert
from tests.archs import request_for
from tests.plan.machines import cuda_source, machine, make_plan
from tests.plan.test_parts import mcmc_source, package, with_rasterizer


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (
            Restored("dgr", "0.0.0", "0.0.0", removed_origin="built from /a", restored_origin="drop-in v1"),
            "dgr 0.0.0 (built from /a) removed; dgr 0.0.0 (drop-in v1) was restored",
        ),
        (
            Restored("dgr", "0.0.0", "0.0.0", removed_origin="built from /a"),
            "dgr 0.0.0 (built from /a) removed; dgr 0.0.0 (not by splatfix) was restored",
        ),
        (
            Restored("dgr", "1.0", "0.9", removed_origin="built from /a", restored_origin="built from /b"),
            "dgr 1.0 removed; dgr 0.9 was restored",
        ),
        (Restored("dgr", "1.0", ""), "dgr 1.0 removed; it was not installed before"),
    ],
)
def test_two_builds_of_one_version_differ_in_words(item: Restored, said: str) -> None:
    stream = io.StringIO()
    show_revert(Console(file=stream, width=300, color_system=None), RevertOutcome("0001", "/env", (item,)))
    assert stream.getvalue().splitlines()[1].strip() == said


def test_no_line_names_hundreds_of_files(tmp_path: Path) -> None:
    source = cuda_source(tmp_path / "big")
    for number in range(90):
        (source / f"a_long_name_of_a_kernel_{number}.cu").write_text("float x = FLT_MAX;")
    plan = make_plan(request_for((str(source),), ("sm_120",)), machine())
    (build,) = (step for step in plan.steps if isinstance(step, BuildWheel))
    assert max(len(edit.files) for edit in build.edits) >= 90
    stream = io.StringIO()
    show_plan(Console(file=stream, width=1 << 16, color_system=None), plan, why=True)
    assert "and 85 more" in stream.getvalue()
    assert max(map(len, stream.getvalue().splitlines())) < 500


def test_plan_shows_a_replaced_rasterizer_of_other_stack(tmp_path: Path) -> None:
    source = mcmc_source(tmp_path / "dgr")
    for variant, said in (("mip", True), ("mcmc", False)):
        stream = io.StringIO()
        plan = make_plan(request_for((str(source),), ("sm_120",)), with_rasterizer(package(variant)))
        show_plan(Console(file=stream, width=300, color_system=None), plan)
        words = "Note: the installed diff_gaussian_rasterization is that of Mip-Splatting"
        assert (words in stream.getvalue()) is said, stream.getvalue()


def test_a_plan_without_steps_says_why_nothing_is_to_do() -> None:
    """``--backend auto`` where what is installed serves, and nothing can be built."""
    kind = OptionKind.KEEP
    plan = InstallPlan(
        kind, kind.title(), steps=(), reasons=(Reason("it serves"),), python="p", prefix="/env"
    )
    stream = io.StringIO()
    result = shown(plan)
    result.text(Console(file=stream, width=300, color_system=None))
    assert stream.getvalue().splitlines()[0] == "✓ Nothing to install in /env: keep what is installed"
    assert "because it serves" in stream.getvalue() and result.exit_code is Exit.OK
    document = result.data()
    assert document["plan"]["kind"] == "keep" and document["outcome"] is None
