"""All checks together: a healthy machine, single problems, missing facts, and what was not read."""

import pytest
from msgspec import NODEFAULT
from msgspec.structs import fields, replace

from splatfix.checks import all_checks, run_checks, select
from splatfix.checks.registry import FAMILIES, Check, Wording
from splatfix.context import Context, Goal, make_context
from splatfix.core.errors import SplatfixError
from splatfix.core.reading import Unread
from splatfix.model import EnvironmentFacts, Fact, Facts, Finding, MachineFacts, Status
from tests.archs import goal
from tests.machines import NAMES, facts_of

from .conftest import Changer, loud, of


def test_a_healthy_machine_is_left_in_peace(rtx_5080: Facts) -> None:
    findings = run_checks(make_context(rtx_5080, Goal()))
    assert not loud(rtx_5080)
    assert {item.status for item in findings} == {Status.PASS}
    assert len(findings) >= 12


def test_every_check_can_speak_on_some_machine_and_has_a_page() -> None:
    for item in all_checks():
        assert item.family in FAMILIES
        assert len(item.page) > 80, f"{item.code} has no page"
        assert item.code == item.code.lower().replace("_", "-")


def test_unknown_gpus_are_unknown_not_bad(changed: Changer) -> None:
    findings = loud(changed(gpus=Fact(None, "", "NVML: Driver Not Loaded")))
    assert findings["nvidia-gpu-missing"].status is Status.UNKNOWN
    assert all(item.status is not Status.FAIL for item in findings.values())


def test_an_interpreter_that_does_not_work(changed: Changer) -> None:
    names = ("interpreter", "distributions", "torch", "torch_installed", "toolkit_choice", "extensions")
    facts = changed(**dict.fromkeys(names, Fact(None, "", "exit code 1")))
    findings = loud(facts)
    assert findings["interpreter-broken"].status is Status.FAIL
    assert {item.status for code, item in findings.items() if code != "interpreter-broken"} == {
        Status.UNKNOWN
    }


def test_a_check_that_breaks_is_a_finding(rtx_5080: Facts) -> None:
    def broken(context: Context, this: Check) -> list[Finding]:
        raise ZeroDivisionError("oops")

    check = Check("broken", "gpu", broken, Wording("x", "y"))
    fine, crash = run_checks(make_context(rtx_5080, Goal()), [all_checks()[0], check])
    assert (fine.status, fine.code, fine.family) == (Status.PASS, "nvidia-gpu-missing", "gpu")
    assert (crash.status, crash.code, crash.family) == (Status.CRASH, "broken", "gpu")
    assert "oops" in crash.summary
    assert "test_checks.py" in crash.evidence[0].value


def test_selection_by_code_and_family() -> None:
    assert {item.family for item in select(only=["gpu"])} == {"gpu"}
    assert "driver-too-old" not in {item.code for item in select(skip=["driver"])}
    with pytest.raises(SplatfixError, match="mean driver-too-old"):
        select(only=["driver-to-old"])


PARTS = [("machine", field.name) for field in fields(MachineFacts) if field.name not in ("system", "machine")]
PARTS += [("environment", field.name) for field in fields(EnvironmentFacts)]


def without(facts: Facts, part: str, field: str) -> Facts:
    """The facts with one field as an older splatfix, or a probe that failed, leaves it."""
    owner = getattr(facts, part)
    blank = next(item for item in fields(owner) if item.name == field)
    default = blank.default if blank.default is not NODEFAULT else blank.default_factory()
    lost = Fact(None, "", "the probe failed") if isinstance(default, Fact) else default
    return replace(facts, **{part: replace(owner, **{field: lost})})


def loud_codes(facts: Facts) -> set[tuple[str, str]]:
    return {
        (item.code, item.status.value)
        for item in run_checks(make_context(facts, Goal()))
        if item.status in (Status.FAIL, Status.WARN, Status.CRASH)
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_lost_fact_adds_no_alarm(name: str) -> None:
    facts = facts_of(name)
    before = loud_codes(facts)
    # an interpreter that does not answer, and a torch whose files are there but cannot be read, are findings themselves
    expected = {
        ("environment", "interpreter"): {("interpreter-broken", "fail")},
        ("environment", "torch"): {("torch-missing", "fail")},
    }
    worse = {}
    for part, field in PARTS:
        added = loud_codes(without(facts, part, field)) - before - expected.get((part, field), set())
        if added:
            worse[field] = added
    assert not worse


@pytest.mark.parametrize("name", NAMES)
def test_no_goal_breaks_a_check(name: str) -> None:
    for targets in (("sm_120",), ("sm_90",), ("sm_75",), ("sm_120", "sm_61"), ("sm_120f",)):
        findings = run_checks(make_context(facts_of(name), goal(*targets)))
        assert Status.CRASH not in {item.status for item in findings}, targets


def test_nothing_known_at_all(rtx_5080: Facts) -> None:
    bare = Facts(MachineFacts("linux", "x86_64"), EnvironmentFacts(), "0")
    findings = run_checks(make_context(bare, goal("sm_120")))
    assert not [item for item in findings if item.status in (Status.CRASH, Status.WARN)]
    assert [item.code for item in findings if item.status is Status.FAIL] == ["interpreter-broken"]


@pytest.mark.parametrize("text", ["", "(", "unknown", "12", "\u00e9", "1.2.3.4.5"])
def test_what_is_no_version_and_no_architecture_breaks_no_check(rtx_5080: Facts, text: str) -> None:
    """A self-built torch, a driver or a toolkit newer than anything may name itself in ways that nobody foresaw."""
    machine, environment = rtx_5080.machine, rtx_5080.environment
    (gpu,), (toolkit,) = machine.gpus.value or (), machine.toolkits.value or ()
    torch, compiler = environment.torch.value, (machine.compilers.value or ())[0]
    assert torch is not None and machine.driver.value is not None
    strange = [
        {"gpus": Fact((replace(gpu, cc=text),), "NVML")},
        {"toolkits": Fact((replace(toolkit, version=text),), "PATH")},
        {"driver": Fact(replace(machine.driver.value, version=text, cuda=text), "NVML")},
        {"compilers": Fact((replace(compiler, kind=text),), "PATH")},
        {"torch": Fact(replace(torch, version=text), "")},
        {"torch": Fact(replace(torch, cuda=text), "")},
        {"torch": Fact(replace(torch, knows_archs=(text, "9.0")), "")},
    ]
    for change in strange:
        part = "environment" if "torch" in change else "machine"
        owner = replace(getattr(rtx_5080, part), **change)
        facts = replace(rtx_5080, **{part: owner})
        assert Status.CRASH not in {item.status for item in run_checks(make_context(facts))}, change


def test_without_a_checkout_those_that_read_one_find_nothing(rtx_5080: Facts) -> None:
    context = make_context(rtx_5080, Goal())
    assert rtx_5080.checkout.value is None
    assert not run_checks(context, select(only=["checkout"]))


def test_files_of_the_environment_and_a_folder_full_of_them(rtx_5080: Facts) -> None:
    facts = replace(rtx_5080, unreadable=tuple(Unread(f"/venv/{n}", "it is a pipe") for n in range(30)))
    first, second, *_, last = findings = of(facts, "unreadable-file")
    assert (first.status, first.subject, second.subject) == (Status.WARN, "/venv/0", "/venv/1")
    assert "it is a pipe" in first.summary and len(findings) == 21 and last.summary.startswith("10 more")
