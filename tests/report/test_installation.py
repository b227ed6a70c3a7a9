"""What a person sees of a plan before the question whether to go ahead."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from splatfix.app.install import shown as result_of
from splatfix.core.step import say
from splatfix.install.outcome import Restored, RevertOutcome
from splatfix.model.steps import Reason
from splatfix.plan import BuildWheel, OptionKind, Plan
from splatfix.report.installation import show_plan, show_revert
from tests.archs import request_for
from tests.checks.test_packages import package
from tests.plan.machines import cuda_source, machine, make_plan, rasterizer_source
from tests.plan.test_parts import with_rasterizer
from tests.screens import on_screen


def shown(draw: Callable[..., None], subject: object, **options: Any) -> str:
    return on_screen(draw, subject, width=1 << 16, **options)


def test_two_builds_of_one_version_differ_in_words() -> None:
    origins = {"removed_origin": "built from /a", "restored_origin": "drop-in v1"}
    items = (
        Restored("dgr", "0.0.0", "0.0.0", **origins),
        Restored("dgr", "0.0.0", "0.0.0", removed_origin="built from /a"),
        Restored("dgr", "1.0", "0.9", **origins),
        Restored("dgr", "1.0", ""),
    )
    assert shown(show_revert, RevertOutcome("0001", "/env", items)).splitlines()[1:] == [
        "  dgr 0.0.0 (built from /a) removed; dgr 0.0.0 (drop-in v1) was restored",
        "  dgr 0.0.0 (built from /a) removed; dgr 0.0.0 (not by splatfix) was restored",
        "  dgr 1.0 removed; dgr 0.9 was restored",
        "  dgr 1.0 removed; it was not installed before",
    ]


def test_no_line_names_hundreds_of_files(tmp_path: Path) -> None:
    source = cuda_source(tmp_path / "big")
    for number in range(90):
        (source / f"a_long_name_of_a_kernel_{number}.cu").write_text("float x = FLT_MAX;")
    plan = make_plan(request_for((str(source),), ("sm_120",)), machine())
    (build,) = (step for step in plan.steps if isinstance(step, BuildWheel))
    assert max(len(edit.files) for edit in build.edits) >= 90
    assert max(map(len, shown(show_plan, plan, why=True).splitlines())) < 500


def test_the_plan_of_many_extensions_says_each_thing_once(tmp_path: Path) -> None:
    """torch-ngp's five took 62 lines, with the same six variables under each."""
    folders = [cuda_source(tmp_path / name, name, '"-std=c++14"') for name in ("aa", "bb", "cc", "dd", "ee")]
    plan = make_plan(request_for(tuple(map(str, folders)), ("sm_120",)), machine())
    text = shown(show_plan, plan, next_step=say("Install it"))
    assert len(text.splitlines()) <= 20
    assert text.count("TORCH_CUDA_ARCH_LIST=") == text.count("CUDA_HOME=") == 1
    assert shown(show_plan, plan, verbose=True).count("TORCH_CUDA_ARCH_LIST=") == 5
    assert "aa/setup.py, bb/setup.py and 3 more" in text
    partly = replace(
        plan, steps=(*plan.steps, replace(plan.steps[0], subject="ff", variables={"MAX_JOBS": "1"}))
    )
    assert shown(show_plan, partly, next_step=say("Install it")).count("CUDA_HOME=") == 1
    carried_out = shown(show_plan, plan)
    assert len(carried_out.splitlines()) <= 7
    assert "TORCH_CUDA_ARCH_LIST=12.0" in carried_out and "edits cxx-standard-17" in carried_out


def test_plan_shows_a_replaced_rasterizer_of_other_stack(tmp_path: Path) -> None:
    source = rasterizer_source(tmp_path / "dgr", "mcmc")
    for variant, is_other in (("mip", True), ("mcmc", False)):
        plan = make_plan(request_for((str(source),), ("sm_120",)), with_rasterizer(package(variant)))
        assert ("Mip-Splatting" in shown(show_plan, plan)) is is_other


def test_a_plan_without_steps_says_why_nothing_is_to_do() -> None:
    """``--backend auto`` where what is installed serves, and nothing can be built."""
    reasons, kind = (Reason("it serves"),), OptionKind.KEEP
    plan = Plan(kind, kind.title(), steps=(), reasons=reasons, python="p", prefix="/env")
    assert "because it serves" in shown(show_plan, plan)
    result = result_of(plan)
    assert (result.exit_code, result.data()["plan"]["kind"], result.data()["outcome"]) == (0, "keep", None)
