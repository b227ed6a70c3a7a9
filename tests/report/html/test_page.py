"""The page: what is on it, that nothing from outside is markup, that it asks nobody for anything, and its contrast."""

import base64
import hashlib
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.certify.baseline import compare
from splatfix.certify.model import Criterion, KernelCheck, Outcome, SceneRun, Skipped, Verdict
from splatfix.context import make_context
from splatfix.context.coverage import Coverage
from splatfix.context.matrix import binary_matrix
from splatfix.context.model import BinaryFit, BinaryMatrix
from splatfix.core.proof import Rung, RungName
from splatfix.core.step import Command
from splatfix.facts.collect import playback
from splatfix.report.html.scenes import read_views
from splatfix.report.marks import Badge, Mark
from splatfix.report.templates import html_text, markdown_text
from tests.certify.conftest import RESULT, record_of
from tests.certify.test_baseline import EARLIER
from tests.hostile.words import CONTROL, MARKUP, UNICODE
from tests.report.html.conftest import Render, png
from tests.report.html.outline import Outline
from tools.machines import raw_machines

HOSTILE = f"<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{MARKUP}{CONTROL}{UNICODE}\udcff"


def test_anything_is_text() -> None:
    assert html_text('<b>"&') == "&lt;b&gt;&quot;&amp;"
    assert html_text(html_text("<b>")) == "&lt;b&gt;"
    assert html_text("a\x1bb\u202e\udcff") == "a\\x1bb\\u202e\\xff"
    assert "&lt;i&gt;</span>" in html_text(Badge(Mark.BAD, "<i>"))
    assert markdown_text(Badge(Mark.BAD, "[failed]")) == r"✗ \[failed\]"


def test_all_sections_are_there(render: Render) -> None:
    outline = Outline(render())
    assert [tag for tag, _ in outline.seen].count("h1") == 1
    for part in (
        *("CERTIFIED", "It trained.", "every criterion met", "0.3 to 0.1", "below 80% of the start"),
        *("a measured spread", "Gaussians", "97% of", "Bottleneck: backward, 68% of the time."),
        *("does not run", "no code for sm_120", "splatfix certify --suite quick", "last line"),
    ):
        assert part in outline.text, part
    built = Rung(RungName.BUILT, None, "all is PyTorch", needed=False)
    assert '<i class="note">not needed</i>' in render(proof=(built,)), "neither reached nor missing"


def test_refusal_shows_reasons_and_failures_first(render: Render, scene: SceneRun) -> None:
    failed = Criterion(
        "finite-values", Outcome.FAILED, "NaN", "a number", "Nothing learns.", "a report", title="No NaN"
    )
    refused = replace(scene, criteria=(*scene.criteria, failed))
    document = render(verdict=Verdict.NOT_CERTIFIED, reasons=("gradients were zero",), scenes=(refused,))
    assert "gradients were zero" in document and "NOT CERTIFIED" in document
    shown = ("No NaN", "no floor known", "below 80% of the start")
    assert sorted(shown, key=document.index) == list(shown)
    opened = [attrs.get("class") for _, attrs in Outline(document).seen if "open" in attrs]
    assert "criterion bad" in opened and "criterion good" not in opened


def test_the_first_cause_is_the_first_thing_to_do(render: Render, scene: SceneRun) -> None:
    """An altered file comes before all that may follow from it."""
    codes = ("parameters-move", "loss-falls")
    failed = tuple(Criterion(code, Outcome.FAILED, "x", "y", advice=f"mend {code}.") for code in codes)
    altered = Criterion("code-as-installed", Outcome.FAILED, "x", "y", advice="mend the file.")
    told = {"verdict": Verdict.NOT_CERTIFIED, "reasons": ("code-as-installed: x",), "diagnosis": (altered,)}
    document = render(scenes=(replace(scene, criteria=failed),), **told)
    todo = [f"mend {what}." for what in ("the file", *codes)]
    assert sorted(todo, key=document.index) == todo


def test_nothing_from_outside_is_markup(render: Render, scene: SceneRun, tmp_path: Path) -> None:
    (tmp_path / "figurine/trainer.log").write_text(f"{HOSTILE}\n", encoding="utf-8", errors="surrogateescape")
    implementations = {HOSTILE: {"name": HOSTILE, "sha256": HOSTILE}}
    config = {"strategy": HOSTILE, "seed": HOSTILE}
    record = record_of({**RESULT, "config": config, "notes": [HOSTILE], "implementations": implementations})
    criterion = Criterion(HOSTILE, Outcome.FAILED, HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    hostile = replace(scene, scene=HOSTILE, criteria=(criterion,), record=record)
    texts = {"summary": HOSTILE, "suite": HOSTILE, "reasons": (HOSTILE,), "verdict": Verdict.NOT_CERTIFIED}
    texts |= {
        "environment": {HOSTILE: HOSTILE},
        "repeat": Command((HOSTILE,)),
        "skipped": (Skipped(HOSTILE, HOSTILE),),
    }
    unsure = Coverage(HOSTILE, True, "ptx", (), (), True, 1)
    document = render(
        BinaryMatrix((HOSTILE,), (BinaryFit(HOSTILE, HOSTILE, (unsure,)),), (HOSTILE,)),
        scenes=(hostile, replace(hostile, log=HOSTILE, images=(HOSTILE,))),
        proof=(Rung(RungName.TRAINS, False, HOSTILE),),
        kernels=(KernelCheck(HOSTILE, HOSTILE, Outcome.FAILED, detail=HOSTILE),),
        **texts,
    )
    outline = Outline(document)
    assert [tag for tag, _ in outline.seen].count("script") == 1
    assert not [
        tag for tag, attrs in outline.seen if tag == "img" or any(name.startswith("on") for name in attrs)
    ]
    assert "<script>alert(1)</script>" in outline.text
    document.encode("utf-8")
    assert all(sign.isprintable() for sign in set(document) - {"\n"})


def test_page_asks_nobody(render: Render) -> None:
    document = render()
    for tag, attrs in Outline(document).seen:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            assert (attrs.get(name) or "#").startswith(("#", "data:image/png;base64,", "./")), (tag, attrs)
    assert not re.search(r"url\(|@import|@font-face", document)


def test_policy_allows_its_own_script_only(render: Render) -> None:
    outline = Outline(document := render())
    (policy,) = [
        str(attrs["content"]) for _, attrs in outline.seen if "Content-Security-Policy" in attrs.values()
    ]
    script = document.split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none';") and f"script-src 'sha256-{digest}';" in policy


def test_a_picture_is_in_the_file_once(render: Render, tmp_path: Path) -> None:
    data = base64.b64encode((tmp_path / "figurine/renders/000030_view.png").read_bytes()).decode()
    assert render().count(data) == 1


def test_pictures_have_the_room_that_there_is(tmp_path: Path, scene: SceneRun) -> None:
    names = tuple(f"figurine/renders/{number}.png" for number in range(6))
    data = png(8, 4, lambda x, y: (x, y, 0))
    for name in names:
        (tmp_path / name).write_bytes(data)
    shown, left_out = read_views(tmp_path, replace(scene, images=names), 2 * len(data))
    assert (len(shown), len(left_out)) == (2, 2) and "the room" in left_out[0]
    smaller = tmp_path / "figurine/thumbnails/0.png"
    smaller.parent.mkdir()
    smaller.write_bytes(png(6, 3, lambda x, y: (0, 0, 0)))
    shown, _ = read_views(tmp_path, replace(scene, images=names), 1 << 20)
    assert [view.width for view in shown] == [3, 4, 4, 4]


@pytest.mark.parametrize(
    "data", [b"", b"\x89PNG\r\n\x1a\n", b"GIF89a" * 10, png(7, 2, lambda x, y: (0, 0, 0))]
)
def test_what_is_no_view_is_left_out(tmp_path: Path, scene: SceneRun, data: bytes) -> None:
    (tmp_path / scene.images[0]).write_bytes(data)
    shown, left_out = read_views(tmp_path, scene, 1 << 20)
    assert not shown and len(left_out) == 1


def test_matrix_judges_every_gpu() -> None:
    matrix = binary_matrix(make_context(playback(raw_machines()["rtx-3090-and-5090"])))
    assert [label.split()[0] for label in matrix.gpus] == ["sm_120", "sm_86"]
    (rasterizer,) = (item for item in matrix.binaries if item.path.startswith("diff_gaussian_rasterization"))
    assert rasterizer.code == "sm_86"
    assert [verdict.runs for verdict in rasterizer.verdicts] == [False, True]
    assert "3 of 3 fatbins have no code for sm_120" in rasterizer.verdicts[0].reason


def test_the_baseline_beside_it(render: Render, scene: SceneRun) -> None:
    """Its figures, the verdict, and why what is not judged is not; nothing of it without one."""
    faster = record_of({**RESULT, "iterations_per_second": 100.0, "machine": {"cpu": HOSTILE, "cores": 2}})
    earlier = replace(EARLIER, issued=HOSTILE, scenes=(replace(scene, record=faster),))
    comparison = compare((scene,), earlier)
    drawn = render(comparison=comparison)
    Outline(drawn)
    section = drawn.partition('id="baseline"')[2].partition("</section>")[0]
    assert "1.21 it/s (100.00 it/s)" in section and "-99%" in section and "holds" in section
    assert "speed of figurine, train memory of figurine: another machine" in section
    assert "<script>alert" not in drawn and 'id="baseline"' not in render()
