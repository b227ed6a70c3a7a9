"""What a certificate recorded: what it ran on, what failed, and what it advises."""

import hashlib
import re
from collections.abc import Iterator

from msgspec import Struct

from smoke_trainer.record import Implementation, TrainingRecord
from splatfix.certify.model import Certificate, Outcome, Verdict, first_causes
from splatfix.core.step import Step
from splatfix.model.option import Options
from splatfix.report.results import number, resolution

SUCCESS = (Verdict.CERTIFIED, Verdict.REHEARSED)


def gpu_of(certificate: Certificate) -> str:
    """The name of the GPU that ran, ``CPU`` for a run on the CPU; "" where it is not known."""
    if certificate.device == "cpu":
        return "CPU"
    # certify writes the device behind the name, because a machine may have several GPUs of one name
    return certificate.environment.get("GPU", "").removesuffix(f" ({certificate.device})")


def driver_of(certificate: Certificate) -> str:
    """The driver; "not used" for a run on the CPU."""
    if certificate.device == "cpu":
        return "not used"
    return certificate.environment.get("driver", "")


def parts_of(certificate: Certificate) -> dict[str, str]:
    """Those of :data:`splatfix.report.wording.PARTS` that it recorded."""
    environment = certificate.environment
    records = {run.scene: run.record for run in certificate.scenes}
    version, _, commit = environment.get("splatfix", "").partition(" (commit ")
    limits = (environment.get("GPU clocks"), environment.get("GPU power limit"))
    sources = ""
    if certificate.sources:
        # one digest for all: which files differ is only asked where the digests do
        content = repr(sorted(certificate.sources.items())).encode("utf-8", "surrogatepass")
        sources = f"sha256:{hashlib.sha256(content).hexdigest()[:16]}"
    parts = {
        "device": certificate.device,
        "gpu-limits": ", ".join(filter(None, limits)),
        "system": environment.get("system", ""),
        "python": environment.get("python", ""),
        "torch": environment.get("torch", ""),
        "asked-renderer": certificate.renderer,
        "splatfix": version,
        "commit": commit.strip(" ()"),
        "sources": sources,
        "run-level": number(certificate.level, "{}", absent=""),
        "suite": certificate.suite,
        "card": environment.get("GPU id", ""),
    }
    # what a trainer told of itself, from inside the run, outweighs what was asked for
    runs = {name: _parts_of_run(record) for name, record in sorted(records.items())}
    for part in dict.fromkeys(part for run in runs.values() for part in run):
        values = {name: run[part] for name, run in runs.items() if run.get(part)}
        parts[part] = "; ".join(f"{name}: {value}" for name, value in values.items())
        if len(set(values.values())) == 1:  # all runs have it in common
            parts[part] = next(iter(values.values()))
    if certificate.device == "cpu":
        parts["processor"] = environment.get("CPU", "")
    else:
        parts["processor"] = gpu_of(certificate)
        parts["driver"] = driver_of(certificate)
        parts["host"] = environment.get("CPU", "")
    argv = certificate.repeat.argv
    if not records and "--seed" in argv[:-1]:  # it ended before the trainer told its settings
        parts["seed"] = argv[argv.index("--seed") + 1]
    return {name: value for name, value in parts.items() if value}


def _parts_of_run(record: TrainingRecord) -> dict[str, str]:
    parts = {
        "torch-cuda": record.versions.get("cuda") or "",
        "iterations": number(record.config.iterations, "{}", absent=""),
        "resolution": resolution(record),
        "strategy": record.config.strategy or "",
        "seed": str(record.config.seed) if isinstance(record.config.seed, int) else "",
        "scenes": (record.scene_sha256 or "")[:16],
    }
    for part in ("renderer", "ssim", "knn", "optimizer"):  # what an extension may replace
        item = record.implementations.get(part, Implementation())
        parts[part] = " ".join(filter(None, (item.name, item.version, item.engine)))
        if item.sha256:
            parts[part] += f", {item.file or ''} sha256:{item.sha256[:16]}"
    return parts


class Problem(Struct, frozen=True):
    """Why a certificate is not one of success."""

    kind: str
    """``diagnosis``, ``kernel``, ``criterion``, ``level``, ``scene`` or ``run``."""
    code: str
    """Of the criterion or the finding; the kernel's or level's name; ``interrupted``, ``unfinished``."""
    measured: str
    why: str = ""
    advice: str = ""


class Fix(Struct, frozen=True):
    """What a certificate advises: the option of a diagnosis of the same environment, or what to do about a criterion."""

    title: str
    steps: tuple[Step, ...]


def problems_of(certificate: Certificate) -> Iterator[Problem]:
    """Why it is not certified, or undetermined: failed kernels, failed criteria, failed levels, that it did not come to
    its end, then what could not be judged. Nothing for a certificate of success."""
    if certificate.verdict in SUCCESS:
        return
    yield from _judged(certificate, Outcome.FAILED)
    for rung in certificate.proof:
        if rung.reached is False:
            yield Problem("level", rung.name.value, rung.shown_by)
    for code in ("interrupted", "unfinished"):
        if getattr(certificate, code):
            yield Problem("run", code, certificate.summary, advice="run it again")
    yield from _judged(certificate, Outcome.UNDETERMINED)


def _judged(certificate: Certificate, outcome: Outcome) -> Iterator[Problem]:
    """What has this outcome."""
    for item in first_causes(certificate.diagnosis):
        if item.outcome is outcome:
            yield Problem("diagnosis", item.code, item.measured, item.why, item.advice)
    for kernel in certificate.kernels:
        if kernel.outcome is outcome:
            yield Problem("kernel", kernel.name, kernel.detail or "differs from its float64 reference")
    for run in certificate.scenes:
        for item in first_causes(run.criteria):
            if item.outcome is outcome:
                yield Problem("criterion", item.code, item.measured, item.why, item.advice)
        if outcome is Outcome.UNDETERMINED and run.unreadable:
            yield Problem("scene", "scene-readable", run.unreadable)


def fix_of(options: Options | None, first: Problem) -> Fix | None:
    """What a certificate advises: where a diagnosis explained its failure its option, or what is needed besides; else what to
    do about the first problem."""
    if options and options.advice:
        if option := options.advice.option:
            return Fix(option.title, option.steps)
        for item in options.advice.also_needed:
            return Fix(item.text, item.steps)
    return Fix(first.advice, ()) if first.advice else None


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts ``2.9`` before ``2.13``."""
    key = []
    for piece in re.split(r"(\d+)", name):
        # 18 digits: int() refuses thousands of them, and no version has as many
        key.append((int(piece[:18]), "") if piece.isdecimal() else (-1, piece))
    return key
