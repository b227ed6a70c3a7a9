"""The page "Which torch for my GPU": splatfix's plan for each machine of ``machines.toml``, in one file without requests.

The answers are the options that ``splatfix install --dry-run --why --facts`` gives for the simulated machine; here they are only
written down, each distinct one once.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import jinja2
from msgspec.structs import replace

from splatfix.certify.environment import NOT_CALLED
from splatfix.context import make_context
from splatfix.core.codec import to_json
from splatfix.core.toml import parse_toml
from splatfix.facts.collect import playback
from splatfix.knowledge import Arch
from splatfix.knowledge.breakages import breakage
from splatfix.knowledge.drivers import cuda_level_of_driver, source_of_floors
from splatfix.knowledge.stacks import stacks, variant
from splatfix.knowledge.tables import source_of, table
from splatfix.knowledge.torch_releases import TorchBuild, how_build_runs, releases
from splatfix.model import Fact, Facts
from splatfix.plan import rank
from splatfix.plan.case import Case
from tools.machines import description
from tools.machines.parts import simulate

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILDS = ROOT / "tests" / "records" / "native_builds.json"
ADDRESS: str = parse_toml((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"][
    "Homepage"
]
MACHINES: Mapping[str, Any] = parse_toml((HERE / "machines.toml").read_text(encoding="utf-8"))
MOST_BYTES = 300_000
_INSTALLED = ("torch", "toolkit", "extensions", "vulkaninfo")


@dataclass(frozen=True)
class Machine:
    """One choice of the page: its rows of ``machines.toml``, and the Python."""

    gpu: Mapping[str, Any]
    driver: Mapping[str, Any]
    system: Mapping[str, Any]
    python: str

    @property
    def exists(self) -> bool:
        """There is such a machine: a card with a computer of its own is in no other."""
        return "base" not in self.gpu or self.system["key"] == MACHINES["systems"][0]["key"]

    @property
    def query(self) -> str:
        """The part of a link that names it."""
        sm = Arch.parse(self.gpu["cc"]).sm
        return f"gpu={sm}&driver={self.driver['key']}&system={self.system['key']}&python={self.python}"


def machines() -> list[Machine]:
    """Every choice, in the order of the page's table of answers; also those that do not exist."""
    rows = product(MACHINES["gpus"], MACHINES["drivers"], MACHINES["systems"], MACHINES["pythons"])
    return [Machine(*row) for row in rows]


def facts_of(machine: Machine) -> Facts:
    """What ``splatfix diagnose --save`` would record on it."""
    known = "linux" in machine.driver
    # what a driver that is not known would be, so that the probes find one at all
    driver = machine.driver if known else MACHINES["drivers"][-1]
    version = driver["windows" if machine.system["key"] in ("windows", "wsl") else "linux"]
    own = {name: value for name, value in machine.system.items() if name not in ("key", "label", "without")}
    base = description(machine.gpu.get("base", own.pop("base")))
    own.pop("base", None)
    if "base" in machine.gpu:
        own = {}
    without = (*_INSTALLED, *machine.system.get("without", ()))
    parts = {name: value for name, value in {**base, **own}.items() if name not in without}
    for name in ("kernel_module", "user_driver"):
        if name in parts:
            parts[name] = {**parts[name], "version": version}
    major, minor = cuda_level_of_driver(version) or (0, 0)
    gpu = {"name": f"NVIDIA {machine.gpu['name']}", "cc": machine.gpu["cc"], "bus_id": "00000000:01:00.0"}
    parts["nvml"] = {"driver": version, "cuda": 1000 * major + 10 * minor, "gpus": [gpu]}
    parts["python"] = {
        **parts["python"],
        "prefix": "venv",
        "version": f"{machine.python}.0",
        "kind": "venv",
        "packages": "new",
    }
    facts = playback(simulate(parts))
    if known:
        return facts
    return replace(facts, machine=replace(facts.machine, driver=Fact(error="not said")))


# Answers

Answer = tuple[Mapping[str, Any], tuple[str, str]]
"""The options for a machine as its JSON document has them; what is wrong with a plain ``pip install torch``, and its source."""


def answer(machine: Machine) -> Answer:
    """What the page says of a machine."""
    facts = facts_of(machine)
    return to_json(rank(Case(context=make_context(facts)))), plain_pip(facts)


def plain_pip(facts: Facts) -> tuple[str, str]:
    """Why the torch that ``pip install torch`` brings does not run here, with its source; "" where it does."""
    case = Case(context=make_context(facts))
    if case.context.platform == "windows":
        source = str(table("torch_releases")["source"]["releases"])
        return "pip install torch brings a build without CUDA on Windows", source
    python = case.context.python
    assert python is not None, "simulated machines have one"
    release = next(item for item in reversed(releases()) if item.supports_python(python))
    build: TorchBuild = next(item for item in release.builds if item.tag == release.pypi_linux_default)
    name = f"pip install torch brings {build.torch.removesuffix('.*')} {build.tag}"
    (arch,) = case.context.archs
    if how_build_runs(build, arch, "linux", facts.machine.machine) == "no":
        return f"{name}, which has no code for {arch.sm}", build.source
    objection = case.driver_objection(".".join(map(str, build.cuda)))
    source = source_of_floors(build.cuda, ())
    if objection.ok is False:
        return f"{name}: {objection.reason}", source
    if objection.ok is None:
        return f"{name}; whether your driver starts it is not known: {objection.reason}", source
    return "", ""


class Table(dict[str, int]):
    """Numbers of values, each once, by their JSON."""

    def __call__(self, value: Any) -> int:
        """The number of a value."""
        return self.setdefault(json.dumps(value), len(self))

    @property
    def rows(self) -> list[Any]:
        """The values, in order of their numbers."""
        return list(map(json.loads, self))


def compact(answers: Iterable[Answer | None]) -> dict[str, Any]:
    """The answers, every distinct text, option and answer once; None for a machine that does not exist is -1.

    ``page.html`` says in ``answerOf`` how it is read.
    """
    texts, options, found = Table(), Table(), Table()
    combinations = []
    for item in answers:
        if item is None:
            combinations.append(-1)
            continue
        plan, plain_pip = item
        available = [options(_option(option, texts)) for option in plan["available"]]
        refused = [[texts(row["title"]), texts(row["rejected_because"])] for row in plan["rejected"]]
        notes, plain = list(map(texts, plan["notes"])), list(map(texts, plain_pip))
        combinations.append(found([available, [options(row) for row in refused], notes, plain]))
    return {"texts": texts.rows, "options": options.rows, "answers": found.rows, "combinations": combinations}


def _option(option: Mapping[str, Any], texts: Table) -> list[Any]:
    torch: Mapping[str, Any] = {}
    build: Mapping[str, Any] = {}
    for step in option["steps"]:
        if step.get("kind") == "install-torch":
            torch = step
        elif step.get("kind") == "build-wheel":
            build = step
    variables = build.get("variables", {})
    summary = (
        f"{torch['version']} {torch['tag']}" if torch else "",
        build.get("cuda", ""),
        variables.get("CXX", ""),
        variables.get("TORCH_CUDA_ARCH_LIST", ""),
    )
    return [
        texts(option["title"]),
        list(map(texts, summary)),
        [[texts(step["text"]), texts(step["command"] or "")] for step in option["steps"]],
        [[texts(reason["text"]), texts(reason["found_via"])] for reason in option["reasons"]],
        list(map(texts, option["unsure"])),
    ]


# Stacks


def stack_rows() -> list[dict[str, Any]]:
    """The stacks that splatfix installs, the last commit that was read of each: what to type, and what is known to break."""
    rows: dict[str, dict[str, Any]] = {}
    for known in stacks():
        if known.program or any(part.builder == "cmake" or part.clone for part in known.parts):
            continue
        # with what stands in the row for people
        stack, key = table("stacks")["stacks"][known.key], known.key
        repository, inside = known.repository, any(part.path for part in known.parts)
        folder = repository.rpartition("/")[2]
        released = [part.install for part in known.parts if part.install]
        # what certify --renderer calls its rasterizer; "" where splatfix's own trainer does not call it
        variants = [
            row for part in known.parts if (row := variant(part.variant)) and row.key not in NOT_CALLED
        ]
        renderer = ""
        if any(row.module == "diff_gaussian_rasterization" for row in variants):
            renderer = "inria"
        elif key == "gsplat" or any(item.startswith("gsplat==") for item in released):
            renderer = "gsplat"
        rows[repository] = {
            "key": key,
            "name": stack["name"],
            "clone": f"git clone --recursive https://github.com/{repository}" if inside else "",
            "source": folder if inside or not released else " ".join(released),
            "renderer": renderer,
            "breaks": _known_trouble(stack, [part.note for part in known.parts]),
            "from": f"https://github.com/{repository} at {stack['commit']}",
            "license": stack.get("license", ""),
        }
    return list(rows.values())


def _known_trouble(stack: Mapping[str, Any], notes: Sequence[str]) -> list[str]:
    trouble = [note for note in (stack.get("note", ""), *notes) if note]
    repositories = {stack["repository"], *stack.get("addresses", ())}
    # what splatfix edited in the recorded real builds of its extensions
    edits: dict[str, None] = {}
    for build in json.loads(BUILDS.read_text(encoding="utf-8"))["builds"]:
        if any(repository in build["source"] for repository in repositories):
            edits.update(dict.fromkeys(build["edits"]))
    for key in edits:
        record = breakage(key)
        when = ", ".join(f"{name} {limit}" for name, limit in record.when.versions.items())
        where = f" ({when})" if when else ""
        trouble.append(f"{record.title}{where}. splatfix install edits it: {record.cure}")
    return trouble


# The page


def gpu_rows() -> list[dict[str, Any]]:
    """The cards: what a link and a person call them, and what the tables say of their architecture, with sources."""
    rows = []
    for gpu in MACHINES["gpus"]:
        arch = Arch.parse(gpu["cc"])
        row = table("archs")["archs"][str(10 * arch.major + arch.minor)]
        first, last = (
            row[name] and ".".join(map(str, row[name])) for name in ("first_toolkit", "last_toolkit")
        )
        cuda = f"CUDA {first} or newer"
        if last:
            cuda = f"CUDA {first} to {last}"
        rows.append(
            {
                "key": arch.sm,
                "label": f"{gpu['label']} ({arch.sm})",
                "name": row["name"],
                "cuda": cuda,
                "source": source_of("archs", row),
            }
        )
    return rows


def page(document: Mapping[str, Any]) -> str:
    """The page with its data, one HTML file."""
    # where the table has its numbers from, for who reads without JavaScript
    builds = [build.source for release in releases() for build in release.builds]
    floors = [source_of_floors(cuda, ()) for cuda in ((11, 8), (12, 0), (13, 0))]
    named = {"torch": builds, "drivers": floors, "compiled by": [row["source"] for row in document["gpus"]]}
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((HERE / "page.html").read_text(encoding="utf-8"))
    return template.render(
        drivers=[row["key"] for row in document["drivers"] if row["key"] != "unknown"],
        gpus=document["gpus"],
        first_options=defaultdict(str, _first_options(document)),
        sources=[(name, source) for name, sources in named.items() for source in dict.fromkeys(sources)],
        # "</" would end the script element
        data=json.dumps(document, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/"),
    )


def document_of(answers: Iterable[Answer | None]) -> dict[str, Any]:
    """All that the page holds: the choices, and the answers in the order of :func:`machines`, None for what is left out."""
    return {
        "address": ADDRESS,
        "gpus": gpu_rows(),
        "drivers": [_driver_row(row) for row in MACHINES["drivers"]],
        "systems": [{"key": row["key"], "label": row["label"]} for row in MACHINES["systems"]],
        "pythons": [{"key": version, "label": version} for version in MACHINES["pythons"]],
        "stacks": stack_rows(),
        **compact(answers),
    }


def _driver_row(row: Mapping[str, Any]) -> dict[str, str]:
    if "linux" not in row:
        return {"key": row["key"], "label": row["label"]}
    cuda = cuda_level_of_driver(row["linux"])
    assert cuda is not None, f"the tables do not know driver {row['linux']}"
    return {"key": row["key"], "label": f"{row['key']} (nvidia-smi says CUDA {cuda[0]}.{cuda[1]})"}


_TABLE_SYSTEM, _TABLE_PYTHON = "ubuntu24", "3.12"


def _first_options(document: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], str]]:
    """The torch of the first option for each card and driver on one system, for who reads without JavaScript."""
    texts, options, answers = document["texts"], document["options"], document["answers"]
    for machine, number in zip(machines(), document["combinations"], strict=True):
        if machine.python != _TABLE_PYTHON or machine.system["key"] != _TABLE_SYSTEM:
            continue
        if number >= 0 and (available := answers[number][0]):
            torch, cuda, _, _ = (texts[item] for item in options[available[0]][1])
            yield (Arch.parse(machine.gpu["cc"]).sm, machine.driver["key"]), f"{torch}, CUDA {cuda}"


def all_answers() -> list[Answer | None]:
    """Of every machine, in the order of :func:`machines`; takes a minute or two of every core."""
    every = machines()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        answers = pool.map(answer, [machine for machine in every if machine.exists], chunksize=32)
        return [next(answers) if machine.exists else None for machine in every]


def write(out: Path) -> None:
    """The page, as a file that needs no other."""
    text = page(document_of(all_answers()))
    if (size := len(text.encode())) > MOST_BYTES:
        raise SystemExit(
            f"{out} would have {size} bytes; it may have {MOST_BYTES}: leave choices out of machines.toml"
        )
    out.write_text(text, encoding="utf-8")
