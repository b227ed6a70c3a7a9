"""What a stored certificate recorded, out of its JSON document: what it ran on, what failed, and what it advises.

A document may come from a stranger. What has another type than it should is as if it had not been recorded.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from splatfix.certify.model import Outcome, Verdict
from splatfix.core.codec import CodecError, from_json
from splatfix.core.step import Step
from splatfix.core.words import beginning

PARTS: Mapping[str, str] = {
    "device": "device",
    "processor": "processor",
    "gpu-limits": "GPU clocks and power limit",
    "driver": "driver",
    "system": "operating system",
    "kernel": "kernel",
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

_RAN = ("renderer", "ssim", "knn", "optimizer")
_MOST_TEXT = 400
_MOST_SCENES = 1000


@dataclass(frozen=True)
class Problem:
    """Why a certificate is not one of success."""

    kind: str
    """``diagnosis``, ``kernel``, ``criterion``, ``level``, ``scene`` or ``run``."""
    code: str
    """Of the criterion or the finding; the kernel's or level's name; ``interrupted``, ``unfinished``."""
    where: str
    """The scene; the implementation of a kernel."""
    measured: str
    why: str
    """What it means in practice; "" where the certificate does not say."""
    advice: str = ""
    """What to do about it; "" where the certificate does not say."""


AGAIN = "run it again"
"""What to do about a run that did not come to its end."""


@dataclass(frozen=True)
class Fix:
    """What a certificate advises: the option of a diagnosis of the same environment, or what to do about a criterion."""

    title: str
    steps: tuple[Step, ...]


def mapping(value: object) -> Mapping[str, Any]:
    """The value, or an empty mapping where it is none."""
    return value if isinstance(value, dict) else {}


def listed(value: object) -> list[Any]:
    """The value, or an empty list where it is none."""
    return value if isinstance(value, list) else []


def text(value: object) -> str:
    """The value, shortened to what people read; "" where it is no text."""
    if not isinstance(value, str):
        return ""
    return value if len(value) <= _MOST_TEXT else beginning(value, _MOST_TEXT)


def verdict_of(document: Mapping[str, Any]) -> Verdict:
    """The verdict.

    Raises:
        ValueError: there is none.
    """
    return Verdict(document.get("verdict"))


def scenes_of(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The scenes that ran, by name."""
    found = (mapping(item) for item in listed(document.get("scenes"))[:_MOST_SCENES])
    return {text(item.get("scene")): item for item in found if text(item.get("scene"))}


def runs_of(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The trainer's result of each scene, by name; of the scene that was under way what it had told by then."""
    found = {name: mapping(item.get("result")) for name, item in scenes_of(document).items()}
    under_way = mapping(document.get("under_way"))
    if told := mapping(under_way.get("run")):
        found.setdefault(text(under_way.get("where")).removesuffix(", again"), told)
    return found


def parts_of(document: Mapping[str, Any], scenes: Collection[str] | None = None) -> dict[str, str]:
    """Those of :data:`PARTS` that the certificate recorded.

    Args:
        scenes: settings and code of these only, such as those that two certificates share; None: of all.
    """
    environment, device = mapping(document.get("environment")), text(document.get("device"))
    runs = {name: run for name, run in runs_of(document).items() if scenes is None or name in scenes}
    cpu = device == "cpu"
    version, _, commit = text(environment.get("splatfix")).partition(" (commit ")
    limits = (text(environment.get(name)) for name in ("GPU clocks", "GPU power limit"))
    found = {
        "device": device,
        "processor": text(environment.get("CPU")) if cpu else gpu_of(document),
        "gpu-limits": ", ".join(filter(None, limits)),
        "driver": "" if cpu else text(environment.get("driver")),
        "system": text(environment.get("system")),
        "kernel": text(mapping(mapping(document.get("facts")).get("machine")).get("kernel")),
        "python": text(environment.get("python")),
        "torch": text(environment.get("torch")),
        "asked-renderer": text(document.get("renderer")),
        "splatfix": version,
        "commit": commit.strip(" ()"),
        "sources": _digest(document.get("sources")),
        "run-level": str(level) if isinstance(level := document.get("level"), int) else "",
        "suite": text(document.get("suite")),
        "host": "" if cpu else text(environment.get("CPU")),
        "card": text(environment.get("GPU id")),
        **_in_common({name: _of_run(run) for name, run in runs.items()}),
    }
    words = listed(mapping(document.get("repeat")).get("argv"))
    if not runs and "--seed" in words[:-1]:  # it ended before the trainer told its settings
        found["seed"] = text(words[words.index("--seed") + 1])
    return {name: value for name, value in found.items() if value}


def trains(document: Mapping[str, Any]) -> bool:
    """It was to train scenes: run levels 1 and 2 train none."""
    return document.get("level") not in (1, 2)


def gpu_of(document: Mapping[str, Any]) -> str:
    """The name of the GPU that ran, ``CPU`` for a run on the CPU; "" where it is not known."""
    device = text(document.get("device"))
    named = text(mapping(document.get("environment")).get("GPU"))
    return "CPU" if device == "cpu" else named.removesuffix(f" ({device})")


def stack_of(document: Mapping[str, Any]) -> str:
    """The renderer that was asked for, and the implementation that ran."""
    ran, asked = text(mapping(document.get("environment")).get("renderer")), text(document.get("renderer"))
    return f"{asked}: {ran}" if ran else asked


def problems_of(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Why it is not certified, or undetermined: failed kernels, failed criteria, failed levels, that it did not come to
    its end, then what could not be judged. Nothing for a certificate of success."""
    verdict = document.get("verdict")
    if verdict in (Verdict.CERTIFIED.value, Verdict.REHEARSED.value):
        return
    failed, open_ = Outcome.FAILED.value, Outcome.UNDETERMINED.value
    for wanted in (failed, open_):
        yield from _criteria("diagnosis", "", document.get("diagnosis"), wanted)
        for item in map(mapping, listed(document.get("kernels"))):
            if item.get("outcome") == wanted:
                words = text(item.get("detail")) or "differs from its float64 reference"
                yield Problem("kernel", text(item.get("name")), text(item.get("implementation")), words, "")
        for name, run in scenes_of(document).items():
            yield from _criteria("criterion", name, run.get("criteria"), wanted)
            if wanted == open_ and text(run.get("unreadable")):
                yield Problem("scene", "scene-readable", name, text(run.get("unreadable")), "")
        if wanted == open_:
            continue
        for item in map(mapping, listed(document.get("proof"))):
            if item.get("reached") is False:
                yield Problem("level", text(item.get("name")), "", text(item.get("shown_by")), "")
        for code in ("interrupted", "unfinished"):
            if document.get(code) is True:
                yield Problem("run", code, "", text(document.get("summary")), "", AGAIN)


def _criteria(kind: str, where: str, criteria: object, wanted: str) -> Iterator[Problem]:
    for item in map(mapping, listed(criteria)):
        if item.get("outcome") == wanted:
            words = (text(item.get(name)) for name in ("measured", "why", "advice"))
            yield Problem(kind, text(item.get("code")), where, *words)


def fix_of(document: Mapping[str, Any], first: Problem | None) -> Fix | None:
    """What the certificate advises: where a diagnosis explained its failure its option, else what to do about the first
    problem."""
    advice = mapping(mapping(document.get("options")).get("advice"))
    option, also = mapping(advice.get("option")), listed(advice.get("also_needed"))
    found = option or (mapping(also[0]) if also else {})
    title = text(found.get("title")) or text(found.get("text"))
    try:
        steps = from_json(tuple[Step, ...], listed(found.get("steps")))
    except CodecError:
        title = ""  # no advice of splatfix's: what the criterion says stands
    if title:
        return Fix(title, steps)
    return Fix(first.advice, ()) if first and first.advice else None


def _of_run(result: Mapping[str, Any]) -> dict[str, str]:
    """The parts that the trainer recorded in its result."""
    config, ran = mapping(result.get("config")), mapping(result.get("implementations"))
    size = listed(result.get("resolution"))
    return {
        "torch-cuda": text(mapping(result.get("versions")).get("cuda")),
        **{part: _ran(mapping(ran.get(part))) for part in _RAN},
        "iterations": _number(config.get("iterations")),
        "resolution": "x".join(map(_number, size)) if len(size) == 2 else "",
        "strategy": text(config.get("strategy")),
        "seed": _number(config.get("seed")),
        "scenes": text(result.get("scene_sha256"))[:16],
    }


def _in_common(runs: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """What all runs have in each part, or what each has where they differ."""
    every = list(runs.values())
    made: dict[str, str] = {}
    for part in every[0] if every else ():
        values = {run[part] for run in every} - {""}
        if len(values) < 2:
            made[part] = values.pop() if values else ""
        else:
            made[part] = "; ".join(f"{name}: {run[part]}" for name, run in sorted(runs.items()) if run[part])
    return made


def _number(value: object) -> str:
    return str(value) if isinstance(value, (int, float)) else ""


def _ran(engine: Mapping[str, Any]) -> str:
    return _ran_words(*(text(engine.get(name)) for name in ("name", "version", "engine", "file", "sha256")))


@lru_cache(maxsize=4096)
def _ran_words(name: str, version: str, engine: str, file: str, digest: str) -> str:
    """An implementation with its file and the SHA-256 of that; every scene of a thousand certificates has the same few."""
    words = " ".join(filter(None, (name, version, engine)))
    return f"{words}, {file} sha256:{digest[:16]}" if digest else words


def _digest(sources: object) -> str:
    files = mapping(sources)
    if not files:
        return ""
    whole = hashlib.sha256(repr(sorted(files.items())).encode("utf-8", "surrogatepass")).hexdigest()
    return f"sha256:{whole[:16]}"


NATURAL = re.compile(r"(\d+)")
"""Splits a version or a name, so that numbers in it sort as numbers."""


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts ``2.9`` before ``2.13``."""
    return [(int(piece[:18]), "") if piece.isdecimal() else (-1, piece) for piece in NATURAL.split(name)]
