"""What a user gets, frozen before the redesign: codes, states, kinds, argv, causes and verdicts, never sentences.

``frozen.json`` is what splatfix did before the first drop; it is not written anew. Where it does something else on purpose,
a row of ``differences.toml`` says so: the issue, where, what was, what is, and why. What has another name since is mapped
there, once. All of it goes when the redesign is over.
"""

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from splatfix.certify import SUITES, certify
from splatfix.core.errors import SplatfixError
from splatfix.core.toml import parse_toml
from splatfix.explain import explain_text
from splatfix.facts import gather
from splatfix.knowledge.failures import failures
from splatfix.plan import BuildWheel
from tests.archs import request_for
from tests.certify.conftest import RecordedTrainer, subject
from tests.conftest import ROOT, Splatfix
from tests.explain.conftest import cases
from tests.machines import NAMES, folder
from tests.plan.machines import BLACKWELL_TORCH, NEW_DRIVER, RTX_5080, machine, make_plan
from tests.plan.test_recipes import BUILDABLE, checkout_of

HERE = Path(__file__).parent
FROZEN: dict[str, list[str]] = json.loads((HERE / "frozen.json").read_text("utf-8"))
TABLE: dict[str, Any] = parse_toml((HERE / "differences.toml").read_text("utf-8"))
DIFFERENCES: list[dict[str, Any]] = TABLE["difference"]
CASES = ("given", "held_out", "lookalikes", "made_here", "wordings")
PROBES = ("own_choice_probe", "splat_probe")


def expected(where: str) -> list[str]:
    """Return what was frozen there, under today's names and with the differences that the table names."""
    lines = FROZEN[where]
    for row in DIFFERENCES:
        if fnmatchcase(where, row["where"]):
            changed = [
                row["new"].format(subject=line.partition(":")[0]) if fnmatchcase(line, row["old"]) else line
                for line in lines
            ]
            lines = [line for line in changed if line]
    for old, new in TABLE["renamed"].items():
        lines = [line.replace(old, new) for line in lines]
    return lines


def compare(where: str, found: list[str]) -> None:
    """Hold what was found against what is frozen."""
    assert found == expected(where)


@pytest.mark.parametrize("target", ["auto", "sm_120"])
@pytest.mark.parametrize("name", NAMES)
def test_machines(name: str, target: str, splatfix: Splatfix) -> None:
    """Codes and states of the findings, the options in their order with what they run, and the exit code."""
    asked = ["--facts", folder(name), "--json", *(["--target", target] if target != "auto" else [])]
    diagnosed = splatfix("diagnose", *asked)
    findings = json.loads(diagnosed.stdout)["findings"]
    compare(f"diagnose {name} {target}", [f"exit code {diagnosed.returncode}", *map(state, findings)])
    ranked = splatfix("install", "--dry-run", "--why", *asked)
    options = json.loads(ranked.stdout)["options"]
    compare(f"options {name} {target}", [f"exit code {ranked.returncode}", *map(kind, options["available"])])
    compare(f"commands {name} {target}", [line for one in options["available"] for line in commands(one)])


def state(finding: dict[str, Any]) -> str:
    return f"{finding['check']} {finding['status']} {finding['subject']}".strip()


def kind(option: dict[str, Any]) -> str:
    return str(option["kind"])


def commands(option: dict[str, Any]) -> Iterator[str]:
    """Yield the words of every command of an option."""
    for step in option["steps"]:
        if step.get("argv"):
            yield f"{option['kind']}: {' '.join(step['argv'])}"


@pytest.mark.parametrize("backend", ["native", "nvrtc", "pure", "auto"])
@pytest.mark.parametrize("key", [*BUILDABLE, *PROBES])
def test_checkouts(key: str, backend: str, tmp_path: Path) -> None:
    """The steps by which every checkout that tests hold is installed on a machine where all is in order."""
    place = ROOT / "tests" / "fixtures" / key if key in PROBES else checkout_of(key, tmp_path)
    facts = machine(torch=BLACKWELL_TORCH, gpus=(RTX_5080,), driver=NEW_DRIVER)
    request = request_for((str(place),), ("sm_120",), backend=backend)
    try:
        steps = [
            line.replace(str(place.resolve()), "CHECKOUT")
            for step in make_plan(request, facts).steps
            for line in of_step(step)
        ]
    except SplatfixError as error:
        steps = [f"refused: {error.code}"]
    compare(f"plan {key} {backend}", steps)


def of_step(step: Any) -> Iterator[str]:
    """Yield a step's kind and subject; of a build its source, variables and edits."""
    yield f"{step.kind} {step.subject}"
    if isinstance(step, BuildWheel):
        yield f"source {step.source}"
        yield from (f"{name}={value}" for name, value in sorted(step.variables.items()))
        yield from (f"edit {edit.rule}" for edit in step.edits)


@pytest.mark.parametrize("name", CASES)
def test_causes(name: str) -> None:
    """The cause that comes first for every case; how sure it is had numbers before issue 54, and is not compared."""
    found = [f"{case['id']}: {cause(case['log'])}" for case in cases(name)]
    assert found == [line.rstrip("?") for line in expected(f"explain {name}")]


def cause(log: str) -> str:
    # classes that came with issue 54 are none of those that were frozen
    names = [item.name for item in explain_text(log).causes if failures()[item.name].rank <= 100]
    return names[0] if names else "none"


@pytest.mark.parametrize("suite", SUITES)
def test_certificates(suite: str, tmp_path: Path) -> None:
    """Verdict, criteria with their outcomes, and levels, of recorded trainings on a CPU."""
    done = certify(subject(SUITES[suite], tmp_path), gather(), runner=RecordedTrainer())
    criteria = [
        f"{run.scene}: {criterion.code} {criterion.outcome.value}"
        for run in done.scenes
        for criterion in run.criteria
    ]
    levels = [f"{rung.name.value} {rung.reached}" for rung in done.proof]
    # criteria are in the order of causes, which is another since issue 53: no row of the table can say that
    found = sorted([done.verdict.value, *levels, *criteria])
    assert found == sorted(expected(f"certificate {suite}"))


def test_every_row_of_the_table_is_needed() -> None:
    for row in DIFFERENCES:
        assert row["issue"] and row["reason"], row
        places = [where for where in FROZEN if fnmatchcase(where, row["where"])]
        assert any(fnmatchcase(line, row["old"]) for where in places for line in FROZEN[where]), row
    for old in TABLE["renamed"]:
        assert any(old in line for lines in FROZEN.values() for line in lines), old
