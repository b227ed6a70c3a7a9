"""What a stored certificate recorded: what it ran on, what failed, and what it advises.

A document may come from a stranger. What has another type than it should is as if it had not been recorded.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct, field

from splatfix.certify.model import Certificate, Criterion, Outcome, Verdict, first_causes
from splatfix.certify.record import Config, Implementation
from splatfix.core.codec import from_json
from splatfix.core.lenient import decode
from splatfix.core.step import Step
from splatfix.core.words import beginning

PARTS: Mapping[str, str] = {
    "device": "device",
    "processor": "processor",
    "gpu-limits": "GPU clocks and power limit",
    "driver": "driver",
    "system": "operating system",
    "python": "Python",
    "torch": "torch",
    "torch-cuda": "torch's CUDA",
    "asked-renderer": "renderer asked for",
    "renderer": "rasterizer that ran",
    "ssim": "SSIM that ran",
    "knn": "kNN that ran",
    "optimizer": "optimizer that ran",
    "splatfix": "splatfix",
    "commit": "splatfix's commit",
    "sources": "trainer's sources",
    "run-level": "run level",
    "suite": "suite",
    "iterations": "iterations",
    "resolution": "resolution",
    "strategy": "strategy",
    "seed": "seed",
    "scenes": "scenes' SHA-256",
    "host": "CPU beside the GPU",
    "card": "GPU's id",
}
"""What a result may depend on, in the order of causation: what stands first can change what follows and not the other way
round. The hardware, the driver that runs it, the system, then Python, torch and what is built on it, splatfix, and what was
asked for. Last what should not matter: the CPU that feeds a GPU, and which card of one model it was."""

# The parts of a trainer that an extension may replace.
_IMPLEMENTED = ("renderer", "ssim", "knn", "optimizer")
_MOST_TEXT = 400
_MOST_SCENES = 1000


class _Suggestion(Struct, frozen=True):
    """An option, or what is needed besides."""

    title: str = ""
    text: str = ""
    steps: tuple[Any, ...] = ()


class StoredCertificate:
    """A certificate's document as far as it is compared with others.

    Raises:
        ValueError: there is no verdict in it.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.certificate = decode(Certificate, document)
        self._document = document
        self.scenes = {short(run.scene): run for run in self.certificate.scenes[:_MOST_SCENES] if run.scene}
        """The scenes that ran, by name."""
        self.gpu = self._gpu()
        """The name of the GPU that ran, ``CPU`` for a run on the CPU; "" where it is not known."""

    @property
    def suggestion(self) -> _Suggestion | None:
        """What a diagnosis of the same environment advised: an option, else what was needed besides."""
        advice = _inside(_inside(self._document, "options"), "advice")
        needed = advice.get("also_needed")
        for item in (advice.get("option"), *(needed if isinstance(needed, list) else ())):
            if isinstance(item, Mapping):
                return decode(_Suggestion, item)
        return None

    @property
    def trains(self) -> bool:
        """It was to train scenes: run levels 1 and 2 train none."""
        return self.certificate.level not in (1, 2)

    @property
    def results(self) -> dict[str, Mapping[str, Any]]:
        """The trainer's document of each scene, by name; of the scene that was under way what it had told by then."""
        results = {name: run.result for name, run in self.scenes.items()}
        under_way = self.certificate.under_way
        result = under_way.get("run")
        if isinstance(result, dict) and result:
            # certify calls the second training of a scene, which shows that it repeats, by this name
            name = short(str(under_way.get("where", ""))).removesuffix(", again")
            results.setdefault(name, result)
        return results

    def environment(self, name: str) -> str:
        """A line of the environment; "" where it was not recorded."""
        return short(self.certificate.environment.get(name, ""))

    def _gpu(self) -> str:
        device = self.certificate.device
        if device == "cpu":
            return "CPU"
        # certify writes the device behind the name, because a machine may have several GPUs of one name
        return self.environment("GPU").removesuffix(f" ({device})")

    @property
    def driver(self) -> str:
        """The driver; "not used" for a run on the CPU."""
        if self.certificate.device == "cpu":
            return "not used"
        return self.environment("driver")

    @property
    def stack(self) -> str:
        """The renderer that was asked for, and the implementation that ran."""
        ran, renderer = self.environment("renderer"), short(self.certificate.renderer)
        return f"{renderer}: {ran}" if ran else renderer

    def parts(self) -> dict[str, str]:
        """Those of :data:`PARTS` that it recorded."""
        certificate, results = self.certificate, self.results
        version, _, commit = self.environment("splatfix").partition(" (commit ")
        limits = (self.environment("GPU clocks"), self.environment("GPU power limit"))
        parts = {
            "device": short(certificate.device),
            "gpu-limits": ", ".join(filter(None, limits)),
            "system": self.environment("system"),
            "python": self.environment("python"),
            "torch": self.environment("torch"),
            "asked-renderer": short(certificate.renderer),
            "splatfix": version,
            "commit": commit.strip(" ()"),
            "sources": _digest(certificate.sources),
            "run-level": _number(certificate.level),
            "suite": short(certificate.suite),
            "card": self.environment("GPU id"),
            # what a trainer told of itself, from inside the run, outweighs what was asked for
            **_in_common({name: _parts_of_run(run) for name, run in results.items()}),
        }
        if certificate.device == "cpu":
            parts["processor"] = self.environment("CPU")
        else:
            parts["processor"] = self.gpu
            parts["driver"] = self.driver
            parts["host"] = self.environment("CPU")
        argv = certificate.repeat.argv
        if not results and "--seed" in argv[:-1]:  # it ended before the trainer told its settings
            parts["seed"] = short(argv[argv.index("--seed") + 1])
        return {name: value for name, value in parts.items() if value}


class Problem(Struct, frozen=True):
    """Why a certificate is not one of success."""

    kind: str
    """``diagnosis``, ``kernel``, ``criterion``, ``level``, ``scene`` or ``run``."""
    code: str
    """Of the criterion or the finding; the kernel's or level's name; ``interrupted``, ``unfinished``."""
    where: str
    """The scene; the implementation of a kernel."""
    measured: str
    why: str = ""
    """What it means in practice; "" where the certificate does not say."""
    advice: str = ""
    """What to do about it; "" where the certificate does not say."""


AGAIN = "run it again"
"""What to do about a run that did not come to its end."""


class Fix(Struct, frozen=True):
    """What a certificate advises: the option of a diagnosis of the same environment, or what to do about a criterion."""

    title: str
    steps: tuple[Step, ...]


def _inside(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = document.get(name)
    return inner if isinstance(inner, Mapping) else {}


def short(text: str) -> str:
    """A text, shortened to what people read: a stranger's may have megabytes."""
    return text if len(text) <= _MOST_TEXT else beginning(text, _MOST_TEXT)


def problems_of(stored: StoredCertificate) -> Iterator[Problem]:
    """Why it is not certified, or undetermined: failed kernels, failed criteria, failed levels, that it did not come to
    its end, then what could not be judged. Nothing for a certificate of success."""
    certificate = stored.certificate
    if certificate.verdict in (Verdict.CERTIFIED, Verdict.REHEARSED):
        return
    yield from _judged(stored, Outcome.FAILED)
    for rung in certificate.proof:
        if rung.reached is False:
            yield Problem("level", rung.name.value, "", short(rung.shown_by))
    if certificate.interrupted:
        yield Problem("run", "interrupted", "", short(certificate.summary), advice=AGAIN)
    if certificate.unfinished:
        yield Problem("run", "unfinished", "", short(certificate.summary), advice=AGAIN)
    yield from _judged(stored, Outcome.UNDETERMINED)


def _judged(stored: StoredCertificate, outcome: Outcome) -> Iterator[Problem]:
    """What has this outcome."""
    yield from _criteria("diagnosis", "", stored.certificate.diagnosis, outcome)
    for kernel in stored.certificate.kernels:
        if kernel.outcome is outcome:
            detail = short(kernel.detail) or "differs from its float64 reference"
            yield Problem("kernel", short(kernel.name), short(kernel.implementation), detail)
    for name, run in stored.scenes.items():
        yield from _criteria("criterion", name, run.criteria, outcome)
        if outcome is Outcome.UNDETERMINED and run.unreadable:
            yield Problem("scene", "scene-readable", name, short(run.unreadable))


def _criteria(kind: str, where: str, criteria: Sequence[Criterion], outcome: Outcome) -> Iterator[Problem]:
    for item in first_causes(criteria):
        if item.outcome is outcome:
            texts = map(short, (item.measured, item.why, item.advice))
            yield Problem(kind, short(item.code), where, *texts)


def fix_of(stored: StoredCertificate, first: Problem | None) -> Fix | None:
    """What the certificate advises: where a diagnosis explained its failure its option, else what to do about the first
    problem."""
    suggestion = stored.suggestion
    if suggestion is not None:
        title = short(suggestion.title) or short(suggestion.text)
        try:
            # strictly: a step that is half there could run something else
            steps = from_json(tuple[Step, ...], list(suggestion.steps))
        except ValueError:
            title = ""  # no advice of splatfix's: what the criterion says stands
        if title:
            return Fix(title, steps)
    return Fix(first.advice, ()) if first and first.advice else None


def _parts_of_run(result: Mapping[str, Any]) -> dict[str, str]:
    """The parts that the trainer recorded in its result."""
    run = decode(_Run, result)
    parts = {"torch-cuda": short(run.versions.get("cuda") or "")}
    for part in _IMPLEMENTED:
        item = run.implementations.get(part, Implementation())
        texts = (short(text or "") for text in (item.name, item.version, item.engine, item.file, item.sha256))
        parts[part] = _implementation(*texts)
    parts["iterations"] = _number(run.config.iterations)
    if len(run.resolution) == 2:
        parts["resolution"] = "x".join(map(_number, run.resolution))
    parts["strategy"] = short(run.config.strategy or "")
    parts["seed"] = _number(run.config.seed)
    parts["scenes"] = short(run.scene_sha256)[:16]
    return parts


class _Run(Struct, frozen=True):
    """The parts of a TrainingRecord that certificates are compared by: merging decodes thousands."""

    versions: Mapping[str, str | None] = field(default_factory=dict)
    implementations: Mapping[str, Implementation] = field(default_factory=dict)
    config: Config = field(default_factory=Config)
    resolution: tuple[int, ...] = ()
    scene_sha256: str = ""


def _in_common(runs: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """What all runs have in each part, or what each has where they differ."""
    parts: dict[str, str] = {}
    recorded: dict[str, str] = {}
    for run in runs.values():
        recorded |= run
    for part in recorded:
        values = {name: run[part] for name, run in sorted(runs.items()) if run.get(part)}
        if len(set(values.values())) == 1:
            parts[part] = next(iter(values.values()))
        else:
            parts[part] = "; ".join(f"{name}: {value}" for name, value in values.items())
    return parts


def _number(value: object) -> str:
    return str(value) if isinstance(value, (int, float)) else ""


@lru_cache(maxsize=4096)
def _implementation(name: str, version: str, engine: str, file: str, digest: str) -> str:
    """An implementation with its file and the SHA-256 of that; every scene of a thousand certificates has the same few."""
    text = " ".join(filter(None, (name, version, engine)))
    return f"{text}, {file} sha256:{digest[:16]}" if digest else text


def _digest(sources: Mapping[str, str]) -> str:
    if not sources:
        return ""
    # one digest for all: which files differ is only asked where the digests do
    content = repr(sorted(sources.items())).encode("utf-8", "surrogatepass")
    return f"sha256:{hashlib.sha256(content).hexdigest()[:16]}"


_DIGITS = re.compile(r"(\d+)")


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts ``2.9`` before ``2.13``."""
    key = []
    for piece in _DIGITS.split(name):
        # 18 digits: int() refuses thousands of them, and no version has as many
        key.append((int(piece[:18]), "") if piece.isdecimal() else (-1, piece))
    return key
