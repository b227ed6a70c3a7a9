"""Whether pip can find a torch at all: Python, C library, and what a checkout pins."""

from __future__ import annotations

import dataclasses

import pytest

from splatfix.checks import Finding, Status, run_checks
from splatfix.context import Goal, make_context
from splatfix.facts import Fact, Facts, Pin
from splatfix.knowledge import torch_releases
from splatfix.knowledge.archs import Arch

from .conftest import Changer
from .test_checkout_checks import with_checkout


def of(facts: Facts, code: str) -> list[Finding]:
    return [item for item in run_checks(make_context(facts, Goal())) if item.code == code]


def without_torch(changed: Changer, rtx_5080: Facts, python: str = "3.11.9", **values: object) -> Facts:
    own = rtx_5080.environment.interpreter.value
    assert own is not None
    inner = {key: values.pop(key) for key in ("implementation", "platform_tag") if key in values}
    interpreter = dataclasses.replace(own, version=python, **inner)  # type: ignore[arg-type]
    return changed(
        interpreter=Fact(interpreter, "probe"),
        torch_installed=Fact(False, "sys.path"),
        torch=Fact(None, "", "not installed"),
        extensions=Fact((), ""),
        toolkit_choice=Fact(None),
        **values,
    )


@pytest.mark.parametrize(
    ("python", "values", "status"),
    [
        ("3.11.9", {}, Status.PASS),
        ("3.6.9", {}, Status.FAIL),
        ("3.19.0", {}, Status.UNKNOWN),  # newer than the tables
        ("3.11.9", {"platform_tag": "win32"}, Status.FAIL),
        ("3.10.14", {"implementation": "PyPy"}, Status.FAIL),
    ],
)
def test_a_python_for_torch(
    changed: Changer, rtx_5080: Facts, python: str, values: dict[str, object], status: Status
) -> None:
    (finding,) = of(without_torch(changed, rtx_5080, python, **values), "python-version-unsupported")
    assert finding.status is status


def test_the_newest_torch_for_a_python_is_offered(changed: Changer, rtx_5080: Facts) -> None:
    facts = without_torch(changed, rtx_5080, "3.11.7", driver=Fact(None, "", "not asked"))
    (finding,) = of(facts, "python-version-unsupported")
    offered = torch_releases.builds_for_arch(Arch(12, 0), python=(3, 11))[0].build.release
    assert finding.summary == f"torch up to {offered} has wheels for Python 3.11.7."


def test_a_release_with_unknown_pythons_is_kept(
    changed: Changer, rtx_5080: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    *older, last = torch_releases.releases()
    rows = (*older, dataclasses.replace(last, python_max=None))
    monkeypatch.setattr(torch_releases, "releases", lambda: rows)
    (finding,) = of(without_torch(changed, rtx_5080), "python-version-unsupported")
    assert finding.summary == (
        f"torch up to {older[-1].release} has wheels for Python 3.11.9; of {last.release} that is not known."
    )


def test_where_torch_is_installed_its_python_is_no_question(rtx_5080: Facts) -> None:
    assert not of(rtx_5080, "python-version-unsupported")


@pytest.mark.parametrize(
    ("python", "pin", "glibc", "words"),
    [
        ("3.11.9", "1.12.1", "2.35", "not for 3.11"),
        ("3.9.2", "1.12.1", "2.35", ""),
        ("3.11.9", "2.7.1", "2.27", "glibc 2.28"),
        ("3.11.9", "2.7.1", "2.28", ""),
        ("3.11.9", "99.0", "2.28", ""),
    ],
)
def test_what_a_checkout_pins(
    changed: Changer, rtx_5080: Facts, python: str, pin: str, glibc: str, words: str
) -> None:
    facts = without_torch(changed, rtx_5080, python, glibc=glibc, libc=Fact(f"glibc {glibc}", "getconf"))
    found = of(
        with_checkout(facts, pins=(Pin("environment.yml", "pytorch", f"=={pin}"),)), "no-matching-wheel"
    )
    assert bool(found) is bool(words)
    if words:
        assert words in found[0].summary and found[0].status is Status.WARN


def test_musl(changed: Changer, rtx_5080: Facts) -> None:
    facts = without_torch(changed, rtx_5080, libc=Fact("musl 1.2.5", "ldd"))
    assert of(facts, "no-matching-wheel")[0].status is Status.FAIL
