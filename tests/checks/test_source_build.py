"""How a checkout's sources would be built: in isolation or not, with the headers they use, from submodules over ssh."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from splatfix.checks import Finding, Status, run_checks
from splatfix.context import Goal, make_context
from splatfix.core.step import commands
from splatfix.facts import CodeMatch, Compiler, Distribution, Fact, Facts, Submodule, Torch

from .conftest import Changer
from .test_checkout_checks import source, with_checkout
from .test_checks import only

TorchWith = Callable[..., "Fact[Torch]"]


def of(facts: Facts, code: str) -> list[Finding]:
    return [item for item in run_checks(make_context(facts, Goal())) if item.code == code]


def installed(**versions: str) -> Fact[tuple[Distribution, ...]]:
    found = {"setuptools": "80.9.0", "wheel": "0.45", "ninja": "1.11"} | versions
    return Fact(
        tuple(Distribution(name, version, "/env") for name, version in found.items()), "site-packages"
    )


def waiting(changed: Changer, pip: str, requires: tuple[str, ...] | None = None) -> Facts:
    item = source("other")
    if requires is not None:
        inner = dataclasses.replace(
            item.source, build_files=("setup.py", "pyproject.toml"), build_requires=requires
        )
        item = dataclasses.replace(item, source=inner)
    return with_checkout(changed(distributions=installed(**{"pip": pip} if pip else {})), sources=(item,))


@pytest.mark.parametrize(
    ("pip", "requires", "warns"),
    [
        ("25.3", None, True),
        ("26.1", None, True),
        ("25.2", None, False),
        ("23.0.1", None, False),
        ("23.0.1", ("setuptools", "wheel"), True),
        ("25.2", ("setuptools", "torch"), True),  # torch, but another one
        ("25.2", ("setuptools", "torch==2.9.1"), False),
    ],
)
def test_pip_and_its_isolation(
    changed: Changer, pip: str, requires: tuple[str, ...] | None, warns: bool
) -> None:
    (finding,) = of(waiting(changed, pip, requires), "build-isolation-enabled")
    assert (finding.status is Status.WARN) is warns
    if warns:
        assert (
            finding.remedy[0].line()
            == "/env/bin/python -m pip install --no-build-isolation /home/u/gs/submodules/other"
        )


def test_who_builds_is_not_known(changed: Changer, rtx_5080: Facts) -> None:
    assert not of(waiting(changed, ""), "build-isolation-enabled")
    python = rtx_5080.environment.interpreter.value
    assert python is not None
    by_uv = changed(distributions=installed(), interpreter=Fact(dataclasses.replace(python, kind="uv"), ""))
    finding = of(with_checkout(by_uv, sources=(source("other"),)), "build-isolation-enabled")[0]
    assert finding.remedy[0].line().startswith("uv pip install --python /env/bin/python --no-build-isolation")


def test_without_setuptools_old_pip_isolates_too(changed: Changer) -> None:
    bare = Fact((Distribution("pip", "24.0", "/env"),), "")
    facts = with_checkout(changed(distributions=bare), sources=(source("other"),))
    assert of(facts, "build-isolation-enabled")[0].status is Status.WARN


@pytest.mark.parametrize(
    ("pip", "wheel", "isolates"),
    [
        ("23.0.1", False, False),
        ("23.1", False, True),
        ("25.2", False, True),
        ("25.2", True, False),
        ("25.3", True, True),
    ],
)
def test_without_wheel_pip_isolates_from_231_on(
    changed: Changer, pip: str, wheel: bool, isolates: bool
) -> None:
    """load_pyproject_toml of pip 23.0.1, 23.1 and 25.2, read; a venv of Python 3.12 has neither setuptools nor wheel."""
    names = {"pip": pip, "setuptools": "80.9.0", **({"wheel": "0.45"} if wheel else {})}
    have = Fact(tuple(Distribution(name, version, "/env") for name, version in names.items()), "")
    (said,) = of(
        with_checkout(changed(distributions=have), sources=(source("other"),)), "build-isolation-enabled"
    )
    assert said.status is (Status.WARN if isolates else Status.PASS)


@pytest.mark.parametrize(
    ("imports", "setuptools", "limit"),
    [
        (("pkg_resources", "pkg_resources.parse_version"), "82.0.1", 82),
        (("pkg_resources",), "81.0", None),
        (("pkg_resources", "pkg_resources.packaging"), "75.0", 70),
        ((), "84.0", None),
    ],
)
def test_what_a_setup_py_imports_of_setuptools(
    changed: Changer, imports: tuple[str, ...], setuptools: str, limit: int | None
) -> None:
    """The setup.py of tiny-cuda-nn imports pkg_resources, though torch's own builder no longer does."""
    have = Fact((Distribution("setuptools", setuptools, "/env"), Distribution("wheel", "0.45", "/env")), "")
    facts = with_checkout(changed(distributions=have), sources=(source("tinycudann", imports=imports),))
    found = of(facts, "setuptools-incompatible")
    assert [command.argv for item in found for command in commands(item.remedy)] == (
        [("/env/bin/python", "-m", "pip", "install", f"setuptools<{limit}")] if limit else []
    )
    assert all("tinycudann imports" in item.summary for item in found)


def test_thrust_sequence(changed: Changer, rtx_5080: Facts) -> None:
    item = source("knn", matches=(CodeMatch("thrust-sequence", "knn.cu", 7, "thrust::sequence(a, b);"),))
    finding = only(with_checkout(rtx_5080, sources=(item,)), "missing-thrust-include")
    assert "knn.cu line 7" in finding.summary
    assert not of(with_checkout(rtx_5080, sources=(source("knn"),)), "missing-thrust-include")


@pytest.mark.parametrize(
    ("system", "torch", "flags", "warns"),
    [
        ("windows", "2.9.1", (), True),
        ("windows", "2.11.0", ("-O3",), True),
        ("windows", "2.11.0", ("-DUSE_CUDA",), False),
        ("windows", "2.4.1", (), False),
        ("linux", "2.11.0", (), False),
    ],
)
def test_an_ambiguous_std(
    changed: Changer, torch_with: TorchWith, system: str, torch: str, flags: tuple[str, ...], warns: bool
) -> None:
    cl = Fact((Compiler("cl", "C:\\VS\\Hostx64\\x64\\cl.exe", "19.40", ("PATH",)),), "vswhere")
    facts = changed(system=system, torch=torch_with(version=torch), compilers=cl)
    assert bool(of(with_checkout(facts, sources=(source("other", flags),)), "msvc-std-ambiguous")) is warns


def test_submodules_over_ssh(rtx_5080: Facts) -> None:
    empty = Submodule("submodules/knn", "git@github.com:someone/knn.git", True)
    finding = of(with_checkout(rtx_5080, submodules=(empty,)), "submodule-over-ssh")[0]
    assert "url.https://github.com/.insteadOf=git@github.com:" in commands(finding.remedy)[0].argv
    for other in (
        dataclasses.replace(empty, empty=False),
        dataclasses.replace(empty, url="https://github.com/someone/knn"),
    ):
        assert not of(with_checkout(rtx_5080, submodules=(other,)), "submodule-over-ssh")
