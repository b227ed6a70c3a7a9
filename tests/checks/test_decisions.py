"""What each check says of a machine that differs from a healthy one in a fact or two: a row of ``decisions.toml`` for each.

By the code of the check, its rows: ``expected`` statuses of its findings in order, ``targets``, what the summary of the first
finding ``says`` (or several words; all of it is ``summary``), what the first step of its ``remedy`` holds (or all its steps
each), what each piece of its ``evidence`` holds, the codes that are ``loud`` of all, sets of ``shared`` facts that it is
``with``, and facts of the machine, the environment or the checkout by their names. Facts are as they are saved; what they leave
out is as in ``BLANK``. ``torch``, ``python`` and ``dist`` are what differs of them, ``beside`` is installed before what builds,
``tried`` was imported.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from msgspec.structs import replace

from splatfix.core.codec import from_json, to_json
from splatfix.core.toml import parse_toml
from splatfix.knowledge.cpp_extension import ArchList, expand_arch_list
from splatfix.model import (
    Checkout,
    Compiler,
    Confinement,
    Distribution,
    Driver,
    EnvironmentFacts,
    Fact,
    Facts,
    Gpu,
    ImportedModule,
    ImportProbe,
    JitCache,
    MachineFacts,
    SplatPackage,
    Toolkit,
    ToolkitChoice,
    Torch,
)

from .conftest import (
    Changer,
    TorchWith,
    assert_whole,
    call,
    cuda,
    extension,
    installed,
    linked,
    loud,
    of,
    source,
    with_checkout,
    with_python,
)
from .test_packages import package

TABLE = parse_toml(Path(__file__).with_name("decisions.toml").read_text(encoding="utf-8"))
SHARED: dict[str, dict[str, Any]] = TABLE.pop("shared")
HINTS = {kind: get_type_hints(kind) for kind in (MachineFacts, EnvironmentFacts, Checkout, Toolkit, Torch)}
del HINTS[EnvironmentFacts]["imports"]  # those of a checkout are meant
ROOMY = Confinement(shm=8 << 30, processes=4096, memory=64 << 30, read_only=False, user=0)
GSPLAT_CACHE = ("gsplat_cuda", "/cache/py311_cu128/gsplat_cuda", "py311_cu128")
OFFER = "export TORCH_CUDA_ARCH_LIST="
BUILT = "2025-06-01T00:00:00+00:00"
BLANK: dict[str, Callable[[dict[str, Any]], Any]] = {
    "gpus": lambda row: Gpu(0, "x"),
    "driver": lambda row: Driver(None, None, True),
    "compilers": lambda row: Compiler("g++", "/usr/bin/g++", None, ("PATH",)),
    "confinement": lambda row: ROOMY,
    "toolkit_choice": lambda row: ToolkitChoice(row["root"], "CUDA_HOME", f"{row['root']}/bin/nvcc"),
    "distributions": lambda row: Distribution("", "", "/env"),
    "beside": lambda row: Distribution("", "", "/env"),
    "packages": lambda row: package(row.pop("variant")) if "variant" in row else SplatPackage("", "/env"),
    "extensions": lambda row: linked() if "linkage" in row else extension(row.get("distribution", "dgr")),
    "jit_caches": lambda row: JitCache(*GSPLAT_CACHE, True, BUILT, None, "/cache/g.so"),
    "sources": lambda row: source(row.get("name", "dgr")),
    "calls": lambda row: call(),
    "needs": lambda row: ImportedModule("", "train.py", 1),
}
"""What a fact is where a row does not say so."""


ROWS = [
    pytest.param(code, row, id=f"{code}-{number}-{row['expected'] or 'quiet'}")
    for code, rows in TABLE.items()
    for number, row in enumerate(rows, 1)
]


def saved(name: str, value: Any) -> Any:
    """A fact as it is saved: filled up, with device code spelled out, and nothing for ``"<none>"``."""
    if value == "<none>":
        return None
    if isinstance(value, list):
        return [saved(name, item) for item in value]
    if name == "needs" and isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, dict):
        return device_code(value) if name == "code" and isinstance(value, str) else value
    row = dict(value)
    blank = to_json(BLANK[name](row)) if name in BLANK else {}
    for key, item in row.items():
        inner = blank["source"] if key in blank.get("source", {}) and name == "sources" else blank
        value = saved(key, item)
        inner[key] = {**inner[key], **value} if isinstance(inner.get(key), dict) else value
    return blank


def device_code(text: str) -> dict[str, Any]:
    """``sm_80 sm_90`` or ``400 * sm_80``: fatbins of machine code; ``compute_90:8.4``: PTX of that version."""
    count, _, archs = text.rpartition(" * ")
    entries: list[dict[str, Any]] = []
    for word in archs.split():
        arch, _, version = word.replace("compute", "sm").partition(":")
        numbers = [int(number) for number in version.split(".")] if version else None
        entries.append({"kind": "ptx" if version else "sass", "arch": arch, "ptx_version": numbers})
    return {"entries": entries, "count": int(count or 1)}


def read(hint: Any, name: str, value: Any) -> Any:
    """A fact of this type; ``{unknown = "why"}`` where it could not be learned."""
    if getattr(hint, "__origin__", None) is not Fact:
        return from_json(hint, saved(name, value))
    if isinstance(value, dict) and "unknown" in value:
        return Fact(None, "test", value["unknown"], absent=value.get("absent", False))
    return from_json(hint, {"value": saved(name, value), "found_via": "test"})


def facts_of(row: dict[str, Any], changed: Changer, torch_with: TorchWith) -> Facts:
    """The healthy machine with what a row says."""
    given: dict[str, Any] = {}
    for name in row.get("with", ()):
        given |= SHARED[name]
    given |= row
    values: dict[str, Any] = {}
    if "toolkit" in given:
        toolkit = {
            name: read(HINTS[Toolkit].get(name), name, item) for name, item in given["toolkit"].items()
        }
        values = cuda(toolkit.pop("version"), *toolkit.pop("archs", ()), **toolkit)
    if isinstance(given.get("torch"), dict) and "unknown" not in given["torch"]:
        torch = given.pop("torch")
        values["torch"] = torch_with(**{key: read(HINTS[Torch][key], key, torch[key]) for key in torch})
    if "dist" in given or "beside" in given:
        have = installed(**given.get("dist", {})).value or ()
        beside = read(tuple[Distribution, ...], "beside", given.get("beside", []))
        values["distributions"] = Fact((*beside, *have), "test")
    if "tried" in given:
        values["imports"] = read(tuple[ImportProbe, ...], "tried", given["tried"])
    for kind in (MachineFacts, EnvironmentFacts):
        values |= {name: read(HINTS[kind][name], name, given[name]) for name in HINTS[kind] if name in given}
    facts = with_python(changed(**values), **given.get("python", {}))
    facts = replace(facts, gathered=given.get("gathered", ""))
    if "checkout" in given:
        return replace(facts, checkout=read(Fact[Checkout], "checkout", given["checkout"]))
    names = [name for name in HINTS[Checkout] if name in given and name not in HINTS[EnvironmentFacts]]
    of_checkout = {name: read(HINTS[Checkout][name], name, given[name]) for name in names}
    return with_checkout(facts, **of_checkout) if of_checkout else facts


@pytest.mark.parametrize(("code", "row"), ROWS)
def test_decision(changed: Changer, torch_with: TorchWith, code: str, row: dict[str, Any]) -> None:
    facts, targets = facts_of(row, changed, torch_with), row.get("targets", ())
    findings = of(facts, code, *targets)
    assert " ".join(item.status.value for item in findings) == row["expected"]
    for item in findings:
        assert_whole(item)
    says = row.get("says", [])
    for words in [says] if isinstance(says, str) else says:
        assert words in findings[0].summary
    if "summary" in row:
        assert findings[0].summary == row["summary"]
    if isinstance(remedy := row.get("remedy", ""), str):
        assert not remedy or remedy in findings[0].remedy[0].line(windows=False)
        if remedy.startswith(OFFER):  # torch takes what is offered
            assert isinstance(expand_arch_list(remedy.removeprefix(OFFER).strip("'"), "2.9.1"), ArchList)
    else:
        hold(remedy, [step.line(windows=False) for step in findings[0].remedy])
    if "evidence" in row:
        hold(row["evidence"], [f"{item.name}: {item.value}" for item in findings[0].evidence])
    if "loud" in row:
        assert set(loud(facts, *targets)) == set(row["loud"])


def hold(words: list[str], lines: list[str]) -> None:
    """Assert that there are as many lines, and that each holds its words."""
    assert len(words) == len(lines), lines
    assert [word for word, line in zip(words, lines, strict=True) if word not in line] == [], lines
