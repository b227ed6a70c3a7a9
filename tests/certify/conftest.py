"""Trainers that were changed on purpose, recorded kernels, and the facts of the environment that runs the tests."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from smoke_trainer.__main__ import main as trainer_main
from smoke_trainer.record import TrainingRecord
from splatfix.certify import Certificate, CertifyRequest, KernelCheck, Outcome, SmokeSubject, Suite
from splatfix.certify.criteria.criterion import Training
from splatfix.certify.scenes import export_sample
from splatfix.certify.staging import stage
from splatfix.core.codec import from_json, to_json
from splatfix.core.proof import Rung, RungName
from splatfix.core.runner import Completed, Runner
from splatfix.facts import gather
from splatfix.install.dropins import make_dropin_wheel
from splatfix.knowledge.dropins import DROPINS, Dropin
from splatfix.knowledge.published import Method
from splatfix.model import Facts

Stage = Callable[[Path], Path]
DONE = Completed((), 0, "", "", 1.0)
SHORT = Suite("quick", ("figurine",), 600.0, iterations=40)
RESULT = json.loads(Path(__file__).with_name("figurine_result.json").read_text(encoding="utf-8"))
"""result.json of ``python -m smoke_trainer figurine --preset quick``, torch 2.13.0+cpu."""


def place_of(document: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    """The object and the key that a path such as ``heldout__psnr`` means."""
    *parts, last = path.split("__")
    for part in parts:
        document = document[part]
    return document, last


def result(**changes: Any) -> dict[str, Any]:
    """The recorded result with other values, by path."""
    found = copy.deepcopy(RESULT)
    for path, value in changes.items():
        place, key = place_of(found, path)
        assert key in place, "the change must replace something"
        place[key] = value
    return found


def record_of(document: Mapping[str, Any]) -> TrainingRecord:
    """What a trainer wrote, as it is read."""
    return from_json(TrainingRecord, document)


def trained(document: Mapping[str, Any] = RESULT, **known: Any) -> Training:
    """A training that ended well and left this document."""
    return Training(record=record_of(document), done=known.pop("done", DONE), **known)


class RecordedKernels(Runner):
    """Answers for the kernel probe: ours agree, and no other is installed. Measures for real what is named, and trains."""

    def __init__(self, *measured: str) -> None:
        self.measured = measured

    def run(self, argv: Sequence[str | Path], **options: Any) -> Completed:
        words = tuple(map(str, argv))
        if Path(words[1]).name == "kernel_probe.py" and words[3] not in self.measured:
            met = KernelCheck(words[2], words[3], Outcome.MET, 1e-8, 1e-6, kind="ours")
            there = words[3].startswith("splatfix.")
            return Completed(words, 0, json.dumps(to_json(met)) if there else "", "", 0.0)
        return super().run(argv, **options)


class RecordedTrainer(RecordedKernels):
    """Answers for the trainer too: one result per scene, the recorded one without another."""

    def __init__(self, **results: dict[str, Any]) -> None:
        super().__init__()
        self.results = results
        self.calls: list[list[str]] = []

    def run(self, argv: Sequence[str | Path], **options: Any) -> Completed:
        words = [str(word) for word in argv]
        if "smoke_trainer" not in words:
            return super().run(argv, **options)
        self.calls.append(words)
        out = Path(words[words.index("--out") + 1])
        out.mkdir(exist_ok=True)
        (out / "metrics.jsonl").write_text('{"loss": 0.5}\n' * 40, encoding="utf-8")
        (out / "trainer.log").write_text("recorded", encoding="utf-8")
        result = self.results.get(words[words.index("smoke_trainer") + 1], RESULT)
        (out / "result.json").write_text(json.dumps(result), encoding="utf-8")
        return Completed(tuple(words), 0, "", "", 0.0)


class TrainingHere(RecordedKernels):
    """Answers for the kernel probe; the trainer runs in this process, which has imported torch already."""

    def run(self, argv: Sequence[str | Path], **options: Any) -> Completed:
        words = [str(word) for word in argv]
        if words[1:3] != ["-m", "smoke_trainer"]:
            return super().run(argv, **options)
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            code = trainer_main(words[3:])
        if "log" in options:
            Path(options["log"]).write_text(shown.getvalue(), encoding="utf-8")
            for line in shown.getvalue().splitlines():
                options["on_line"](line)
        return Completed(tuple(words), code, shown.getvalue(), "", 0.0)


def subject(
    suite: Suite,
    out: Path,
    *,
    python: str = sys.executable,
    device: str = "cpu",
    baseline: Certificate | Method | None = None,
    stage_files: Stage = stage,
    **request: Any,
) -> SmokeSubject:
    """The smoke trainer on a suite, as a request would have it here."""
    asked = CertifyRequest(out=out, device=device, **{"renderer": "torch", **request})
    return SmokeSubject(
        request=asked,
        python=python,
        device=device,
        suite=suite,
        baseline=baseline,
        stage_files=stage_files,
    )


def sabotage(file: str, lines: str) -> Stage:
    """Stages trainer and kernels with ``lines`` appended to the copy of ``file``."""

    def stage_files(folder: Path) -> Path:
        path = stage(folder)
        with (path / file).open("a", encoding="utf-8") as target:
            target.write(f"\n\n{lines}")
        return path

    return stage_files


def put_dropin(dropin: Dropin, site: Path, **options: Any) -> None:
    """Lay splatfix's drop-in into a folder, metadata and all."""
    with zipfile.ZipFile(make_dropin_wheel(dropin, "0+test", site / "wheels", **options)) as wheel:
        wheel.extractall(site)


def with_dropins(*distributions: str) -> Stage:
    """Stages trainer and kernels with splatfix's drop-ins beside them, as they would be in site-packages."""

    def stage_files(folder: Path) -> Path:
        path = stage(folder)
        for name in distributions:
            put_dropin(next(item for item in DROPINS if item.distribution == name), path)
        return path

    return stage_files


def reached(proof: Sequence[Rung]) -> dict[RungName, bool | None]:
    """Each level by its name."""
    return {rung.name: rung.reached for rung in proof}


def failed_criteria(certificate: Certificate) -> set[str]:
    """Of all scenes together."""
    return {item.code for run in certificate.scenes for item in run.failed}


@pytest.fixture(scope="session")
def known() -> Facts:
    """Facts of this machine and environment; needs torch in it."""
    pytest.importorskip("torch")
    return gather(sys.executable)


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    """A bundled scene in COLMAP's layout, to be changed."""
    return export_sample("fruit", tmp_path / "scenes")
