"""A stack's own trainer, whole and broken in ten ways; it is a tiny one of ours with the faces of Inria's."""

import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.app.certify import exit_code_of, run_and_report
from splatfix.app.rehearse import stack_subject
from splatfix.certify import Certificate, CertifyRequest, Interrupted, Outcome, Verdict
from splatfix.certify.environment import Host
from splatfix.certify.subject import Progress
from splatfix.checks.checkout.code_shapes import source_patterns
from splatfix.core.proof import RungName
from splatfix.core.step import Command
from splatfix.core.toml import parse_toml
from splatfix.facts import gather
from splatfix.facts.checkout import read_arguments, with_checkout
from splatfix.plan.dropins import replacement_for
from tests.certify.conftest import failed_criteria, put_dropin, reached
from tests.files import contents
from tests.plan.machines import refused
from tests.tables import data

pytest.importorskip("torch")
HERE = Path(__file__).parent
BROKEN = parse_toml((HERE / "stack_sabotages.toml").read_text(encoding="utf-8"))
Rehearse = Callable[..., Certificate]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the tiny stack."""
    return Path(
        shutil.copytree(HERE / "tiny_stack", tmp_path / "tiny", ignore=shutil.ignore_patterns("__pycache__"))
    )


@pytest.fixture
def rehearse(checkout: Path, tmp_path: Path) -> Rehearse:
    """Rehearse the copy; without its ``render.py`` unless a test is about it, because every script imports torch anew."""

    def run(
        iterations: int = 100, scene: Path | None = None, extra: Sequence[str] = (), renders: bool = False
    ) -> Certificate:
        if not renders:
            (checkout / "render.py").unlink()
        asked = {"scene": scene and str(scene), "iterations": iterations, "train_arguments": tuple(extra)}
        request = CertifyRequest(checkout=checkout, out=tmp_path / "report", **asked)
        return certified(request, "cpu", tmp_path)

    return run


def certified(
    request: CertifyRequest, device: str, scratch: Path, progress: Progress = lambda where, state: None
) -> Certificate:
    """What comes of a request on a device."""
    folder = scratch / "scratch"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("splatfix.app.rehearse.gpu_obstacle", lambda *_: None)
        subject, known = stack_subject(replace(request, python=sys.executable, device=device), folder)
    return run_and_report(subject, known, progress).certificate


def edit(path: Path, old: str, new: str) -> None:
    """Replace a text that is there."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_options_are_read_from_the_trainers_own_source() -> None:
    found = read_arguments(HERE / "tiny_stack", "train.py")
    assert found["resolution"] == "--resolution" and "iterations" in found
    assert read_arguments(HERE / "tiny_stack", "absent.py") == {}


def test_a_run_of_three_iterations_is_undetermined_and_leaves_no_trace(
    checkout: Path, rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the second of them is written, and neither by the path of the checkout
    relative = "open('arguments/__init__.py').close()\n    open('left.txt', 'w').close()\n    random.seed(0)"
    edit(checkout / "train.py", "random.seed(0)", relative)
    before = contents(checkout)
    host = Host("lane cpu, image sha256:a", Command(("splatfix", "certify", "--container", "cpu")))
    for name, value in host.variables.items():
        monkeypatch.setenv(name, value)
    made = rehearse(3, renders=True)
    assert (made.repeat, made.environment["container"]) == (host.repeat, host.container)
    assert contents(checkout) == before
    assert made.verdict is Verdict.UNDETERMINED and not made.reasons
    assert made.stack is not None and made.stack.rehearsed
    assert set(made.stack.dropins) == {"diff_gaussian_rasterization@v1", "simple_knn", "fused_ssim"}
    assert "--save_iterations" in made.stack.command.argv
    assert made.environment["threads"].isdigit()
    record = made.scenes[0].record
    assert record.iterations == 3 and set(record.gradients) >= {"xyz", "f_rest", "rotation"}
    assert record.implementations["simple_knn._C"].calls == {"distCUDA2": 1}
    assert record.heldout.views == 3
    levels = reached(made.proof)
    assert levels[RungName.LOADS]
    assert {levels[name] for name in (RungName.REHEARSED, RungName.COMPUTES, RungName.TRAINS)} == {None}


@pytest.mark.slow
def test_missing_modules_are_placeholders_and_all_named_in_one_command(
    checkout: Path, rehearse: Rehearse
) -> None:
    edit(
        checkout / "train.py",
        "import torch\n",
        "import torch\nimport plyfile\nfrom einops import rearrange\nfrom h5py import Dataset\n"
        "def scaled(rows: Dataset['n', 3] | None): ...\n",
    )
    made = rehearse(3)
    assert failed_criteria(made) == {"runs-as-it-is"}
    assert made.scenes[0].record.iterations == 3
    assert made.stack is not None
    commands = [step.command.argv for mend in made.stack.mends for step in mend.remedy if step.command]
    assert [set(argv[-3:]) for argv in commands] == [{"plyfile", "einops", "h5py"}]


@pytest.mark.slow
def test_names_that_numpy_removed_are_mended_in_a_copy(checkout: Path, rehearse: Rehearse) -> None:
    edit(checkout / "scene.py", "near, far = 0.01, 100.0", "near, far = np.float(0.01), 100.0")
    before = contents(checkout)
    made = rehearse(3, renders=True)
    assert failed_criteria(made) == {"runs-as-it-is"} and made.scenes[0].record.iterations == 3
    assert made.stack is not None and [item.edited for item in made.stack.mends] == [True]
    assert contents(checkout) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_stack_is_refused_for_that_reason(name: str, checkout: Path, rehearse: Rehearse) -> None:
    row = BROKEN[name]
    edit(checkout / row["file"], row["old"], row["new"])
    made = rehearse(row["iterations"], renders=row["file"] == "render.py")
    assert made.verdict is Verdict.NOT_CERTIFIED and exit_code_of(made) == 1
    assert failed_criteria(made) >= set(row["criteria"]), made.reasons
    assert any(row["words"] in reason for reason in made.reasons), made.reasons
    assert reached(made.proof)[RungName.REHEARSED] is False


@pytest.mark.slow
def test_a_whole_stack_is_rehearsed(rehearse: Rehearse) -> None:
    made = rehearse(100, renders=True)
    assert made.verdict is Verdict.REHEARSED and exit_code_of(made) == 0, made.reasons
    (run,) = made.scenes
    spent = run.record.phases
    assert min(spent[name] or 0.0 for name in ("forward", "backward", "optimizer", "densify")) > 0, spent
    (time,) = (item for item in run.criteria if item.code == "time-by-phase")
    assert time.outcome is Outcome.MET, time
    levels = reached(made.proof)
    assert levels[RungName.REHEARSED]
    assert levels[RungName.COMPUTES] is None and levels[RungName.TRAINS] is None
    assert "Not verified: CUDA and GPUs." in made.summary


@pytest.fixture
def native(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny stack for a GPU that is a CPU: no call for CUDA, and extensions that are installed (here drop-ins)."""
    of_cuda = re.compile(r"(?m)^.*(torch\.cuda\.|_time\(|^\s*(begin|end)\.).*\n")
    for path in checkout.glob("*.py"):
        text = (
            path.read_text(encoding="utf-8").replace('device="cuda"', 'device="cpu"').replace(".cuda()", "")
        )
        path.write_text(of_cuda.sub("", text), encoding="utf-8")
    places = tmp_path / "site"
    found = with_checkout(gather(sys.executable), checkout, source_patterns()).checkout.value
    assert found is not None
    for item in replacement_for(found).dropins:
        put_dropin(item, places)
    monkeypatch.setenv("PYTHONPATH", str(places))
    return checkout


@pytest.mark.slow
def test_with_a_gpu_nothing_lands_on_the_cpu(native: Path, tmp_path: Path) -> None:
    edit(
        native / "train.py",
        "    random.seed(0)",
        "    print('CUDA error: misaligned address')\n    random.seed(0)",
    )
    request = CertifyRequest(checkout=native, out=tmp_path / "report", iterations=100)
    made = certified(request, "cuda", tmp_path)
    assert failed_criteria(made) == {"no-cuda-error", "no-silent-fallback"}, "fused_ssim is not installed"
    assert made.stack is not None and not made.stack.rehearsed and not made.stack.dropins
    assert "threads" not in made.environment
    rungs = {rung.name.value: rung for rung in made.proof}
    assert rungs["loads"].reached and rungs["trains"].reached is False and "rehearsed" not in rungs
    record = made.scenes[0].record
    assert record.implementations["simple_knn._C"].calls == {"distCUDA2": 1}
    assert record.gradients["xyz"].zero_steps == 0 and record.memory.cuda is None
    assert (tmp_path / "report" / "fruit" / "metrics.jsonl").read_text().count("\n") == 100


@pytest.mark.slow
def test_a_camera_model_that_it_does_not_take(scene: Path, rehearse: Rehearse) -> None:
    cameras = scene / "sparse" / "0" / "cameras.txt"
    cameras.write_text(
        cameras.read_text().replace("PINHOLE 160 120 150 150 80 60", "OPENCV 160 120 150 150 80 60 0 0 0 0")
    )
    made = rehearse(3, scene)
    assert failed_criteria(made) == {"training-finishes", "extensions-ran"}
    assert "camera model OPENCV not handled: only PINHOLE (scene.py:" in made.reasons[0]
    ended = next(item for item in made.scenes[0].criteria if item.code == "training-finishes")
    assert "splatfix scenes check" in ended.advice


@pytest.mark.slow
def test_images_without_a_byte(scene: Path, rehearse: Rehearse) -> None:
    for image in (scene / "images").iterdir():
        image.write_bytes(b"")
    made = rehearse(3, scene)
    assert failed_criteria(made) == {"training-finishes", "extensions-ran"}
    assert "UnidentifiedImageError" in made.reasons[0] and "scene.py:" in made.reasons[0]


@pytest.mark.slow
def test_weights_that_metrics_lack_are_noted(
    checkout: Path, tmp_path: Path, rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "hub"))
    address = "http://127.0.0.1:9/vgg.pth"
    (checkout / "metrics.py").write_text(
        f"import torch\nlayer = torch.nn.Linear(1, 1)\n"
        f"layer.load_state_dict(torch.hub.load_state_dict_from_url({address!r}))\n"
    )
    made = rehearse(3)
    assert made.stack is not None and not made.reasons
    (lacking,) = made.stack.weights
    assert lacking.startswith(f"metrics.py: {address}: ")
    assert any("random ones" in note and address in note for note in made.scenes[0].record.notes)


SABOTEUR: str = data(__file__)["texts"]["saboteur"]


def test_what_the_observer_misses_is_no_fault_of_the_trainer(
    tmp_path: Path, rehearse: Rehearse, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "older").mkdir()
    (tmp_path / "older" / "sitecustomize.py").write_text(SABOTEUR)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "older"))
    made = rehearse(3)
    assert made.verdict is Verdict.UNDETERMINED and exit_code_of(made) == 3 and not made.reasons, made.reasons
    seen = next(item for item in made.scenes[0].criteria if item.code == "observed")
    assert seen.outcome is Outcome.UNDETERMINED and "TorchFunctionMode" in seen.measured
    assert "Left open: fruit: observed: " in made.summary and "TorchFunctionMode" in made.summary
    assert "Traceback" in (tmp_path / "report" / "fruit" / "observer.log").read_text()


@pytest.mark.slow
def test_pickled_objects_that_torch_refuses(checkout: Path, rehearse: Rehearse) -> None:
    (checkout / "theirs.pth").touch()
    lines = [
        "random.seed(0)",
        "for name in ('own.pth', 'theirs.pth'):",
        "    torch.save(random.Random(), name)",
        "    torch.load(name)",
    ]
    edit(checkout / "train.py", "random.seed(0)", "\n    ".join(lines))
    made = rehearse(3)
    assert failed_criteria(made) == {"training-finishes", "runs-as-it-is", "extensions-ran"}
    words = "\n".join(made.reasons)
    assert "loads own.pth, which torch refuses without weights_only=False [torch-load-pickles]" in words
    assert "theirs.pth, which" not in words, "only what the run wrote itself is loaded after all"
    assert "UnpicklingError: Weights only load failed" in words and "train.py:" in words
    ended = next(item for item in made.scenes[0].criteria if item.code == "training-finishes")
    assert "weights_only=False" in ended.advice


def test_a_run_that_is_stopped_leaves_a_report(checkout: Path, tmp_path: Path) -> None:
    page, told = tmp_path / "report" / "certificate.json", list[dict[str, Any]]()

    def stop(where: str, state: Mapping[str, Any]) -> None:
        told.append(json.loads(page.read_text(encoding="utf-8")))  # what a kill would leave
        raise KeyboardInterrupt

    request = CertifyRequest(checkout=checkout, out=page.parent, iterations=3)
    with pytest.raises(Interrupted, match="marked as interrupted"):
        certified(request, "cpu", tmp_path, stop)
    assert told[0]["unfinished"] and not told[0]["interrupted"] and told[0]["verdict"] == "undetermined"
    left = json.loads(page.read_text(encoding="utf-8"))
    assert left["interrupted"] and left["exit_code"] == 3 and left["stack"]["rehearsed"]
    assert left["summary"].startswith("Interrupted after 0 of 1 scene")
    assert left["skipped"][0]["scene"] == "fruit"


@pytest.mark.parametrize(
    ("file", "old", "new", "code", "exit_code"),
    [
        ("model.py", "prefiltered=False,", "prefiltered=False, beams=7,", "nothing-replaces-it", 1),
        ("arguments/__init__.py", "self.iterations = 30_000", "pass", "no-length", 3),
        ("train.py", "", "", "no-trainer", 2),
    ],
)
def test_what_cannot_be_rehearsed_is_not_run(
    checkout: Path, rehearse: Rehearse, file: str, old: str, new: str, code: str, exit_code: int
) -> None:
    if old:
        edit(checkout / file, old, new)
    else:
        (checkout / file).unlink()
    error = refused(rehearse, 3)
    assert (error.code, int(error.exit_code)) == (code, exit_code)
