"""``install`` takes a proven wheel in the place of a build: fetched, verified again, in the journal, undone; else it builds."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.app.install import planned
from splatfix.app.prebuilt import NO_WHEELS, Prebuilt, find_prebuilt
from splatfix.context import Goal, make_context
from splatfix.core.codec import to_json
from splatfix.core.errors import require
from splatfix.facts import gather
from splatfix.install import execute, revert
from splatfix.install.environment import Environment
from splatfix.install.journal import Journal
from splatfix.model import Fact, Facts
from splatfix.model.steps import FetchWheel
from splatfix.plan import BuildWheel, Case, OptionKind, Plan, Request, rank, summarise
from splatfix.wheels import web as web_module
from splatfix.wheels.web import without_login
from tests.archs import goal, request_for
from tests.conftest import Splatfix
from tests.install.environments import fat_binary, make_environment, pip, run_in, snapshot, write_extension
from tests.plan.machines import BLACKWELL_TORCH, changed, cuda_source, find_options, healthy, machine, refused

from .forge import serving, torch_in, write_page, write_wheel


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with one real wheel, compiled here, whose library carries a fat binary for sm_120."""
    folder = tmp_path_factory.mktemp("real")
    source = write_extension(folder / "source", extra=fat_binary(120), version="1.0")
    environment = make_environment(folder / "env")
    options = ("--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder / "served"))
    done = pip(environment, "wheel", *options, str(source))
    assert done.ok, done.stderr
    (wheel,) = (folder / "served").glob("*.whl")
    write_page(folder / "served" / "index.html", {wheel.name: wheel.name}, digests="md5")
    return folder / "served"


def facts_of(environment: Environment, folder: Path) -> Facts:
    """The environment, as if its torch were one for CUDA."""
    torch = Fact(torch_in(folder / "torch", "2.11.0+cu130"), "test")
    return changed(gather(environment.python), torch=torch, torch_installed=Fact(True, "test"))


def wanted(folder: Path, **options: str) -> Request:
    source = cuda_source(folder / "source", "tiny_probe")
    return request_for((str(source),), ("sm_120",), **options)


def found(request: Request, facts: Facts, *indexes: str) -> Prebuilt:
    context = make_context(facts, Goal(request.targets))
    return find_prebuilt(replace(request, indexes=tuple(map(without_login, indexes))), context, indexes)


def with_wheels(request: Request, facts: Facts, wheels: Prebuilt) -> Plan:
    """The plan with these wheels."""
    case = Case(
        context=make_context(facts, Goal(request.targets)),
        request=request,
        prebuilt=wheels.steps,
        not_prebuilt=wheels.rejected,
        no_wheel=wheels.problem if request.backend == "wheels" else None,
    )
    return require(planned(case, named=True))


def test_a_folder_with_a_wheel_needs_no_build_tools_and_no_gpu(tmp_path: Path) -> None:
    facts = machine(torch=BLACKWELL_TORCH, toolkits=(), host=(), packages={"pip": "25.0"})
    request = wanted(tmp_path, backend="wheels")
    write_wheel(tmp_path / "wheels", "tiny_probe-1.0-cp311-cp311-linux_x86_64.whl", "120", symbols=())
    wheels = found(request, facts, str(tmp_path / "wheels"))
    assert with_wheels(request, facts, wheels).kind is OptionKind.WHEEL
    native = replace(request, backend="native")
    assert refused(with_wheels, native, facts, NO_WHEELS).code == "no-matching-toolkit"


@pytest.mark.parametrize("name", ["", "tiny_probe", "tiny-probe==1.0"])
def test_a_proven_wheel_is_installed_and_undone(served: Path, tmp_path: Path, name: str) -> None:
    """In the place of a folder's build, or by its name alone; from an index that asks for a login, which nothing tells."""
    environment = make_environment(tmp_path / "env")
    before = snapshot(environment)
    request, facts = wanted(tmp_path), facts_of(environment, tmp_path)
    if name:
        request = replace(request, sources=(name,))
    with serving(served) as server:
        server.login = "Basic dTpwQHNzd29yZC1vZi1taW5l"
        address = server.address.replace("://", "://u:p%40ssword-of-mine@")
        wheels = found(request, facts, address + "/")
        plan = with_wheels(request, facts, wheels)
        assert plan.kind is OptionKind.WHEEL and not any(isinstance(step, BuildWheel) for step in plan.steps)
        assert "cannot be read (--no-find compiles it)" in "".join(plan.notes)
        outcome = execute(plan, facts, fetchers=wheels.fetchers)
    written = [path for path in environment.state_folder.rglob("*") if path.suffix in (".json", ".log")]
    told = str(to_json(outcome)) + "".join(map(Path.read_text, written))
    assert "://127.0.0.1" in told and "ssword-of-mine" not in told
    (item,) = outcome.items
    assert item.subject.replace("-", "_") == "tiny_probe" and "tiny_probe._C" in item.modules
    assert [rung.reached for rung in item.proof][:3] == [True, True, True]
    resolved, built, *_ = item.proof
    assert "sm_120 (native code)" in built.shown_by and "prebuilt, from http" in resolved.shown_by
    assert run_in(environment, "import tiny_probe; print(tiny_probe.answer())") == "42"
    (wheel,) = served.glob("*.whl")
    (entry,) = Journal(environment.state_folder).entries()
    (fetched,) = (step for step in entry.steps if step.kind == "fetch-wheel")
    assert entry.request["backend"] == "wheels"
    assert fetched.digest == hashlib.sha256(wheel.read_bytes()).hexdigest()
    revert(environment.python)
    assert snapshot(environment) == before


@pytest.mark.parametrize("digests", ["sha512", "md5"])
def test_a_digest_is_held(served: Path, tmp_path: Path, digests: str) -> None:
    facts = facts_of(make_environment(tmp_path / "env"), tmp_path)
    (wheel,) = served.glob("*.whl")
    write_wheel(tmp_path / "index", wheel.name, "90", symbols=())
    write_page(tmp_path / "index" / "index.html", {wheel.name: wheel.name}, digests=digests)
    (tmp_path / "index" / wheel.name).write_bytes(wheel.read_bytes())
    with serving(tmp_path / "index") as server:
        wheels = found(wanted(tmp_path), facts, server.address + "/")
    (why,) = (item.why for item in wheels.rejected)
    assert not wheels.steps and f"its {digests} is" in why


def test_without_a_proven_wheel_it_is_built_and_why(tmp_path: Path) -> None:
    facts, request = healthy(), wanted(tmp_path)
    write_wheel(tmp_path / "wheels", "tiny_probe-1.0-cp311-cp311-linux_x86_64.whl", "90", symbols=())
    wheels = found(request, facts, str(tmp_path / "wheels"))
    plan = with_wheels(request, facts, wheels)
    assert plan.kind is OptionKind.REBUILD
    assert found(replace(request, find=False), facts) is NO_WHEELS
    (why,) = (item.why for item in plan.considered if "prebuilt wheel of tiny_probe" in item.what)
    only, no_code = replace(request, backend="wheels"), "1 of 1 fatbin has no code"
    error = refused(with_wheels, only, facts, wheels)
    assert f"{no_code} for sm_120" in why and no_code in error.what
    assert (error.code, error.exit_code) == ("no-wheel", 1)
    assert refused(with_wheels, only, facts, NO_WHEELS).exit_code == 3


def test_a_found_wheel_ranks_before_a_build(tmp_path: Path) -> None:
    facts, request = healthy(), wanted(tmp_path)
    write_wheel(tmp_path / "wheels", "tiny_probe-1.0-cp311-cp311-linux_x86_64.whl", "120", symbols=())
    wheels = found(request, facts, str(tmp_path / "wheels"))
    summary = summarise(request.sources, make_context(facts), named=request.sources)
    context = make_context(facts, goal("sm_120"))
    options = rank(Case(context=context, sources=summary, prebuilt=wheels.steps))
    kinds = [option.kind for option in options.available]
    assert kinds.index(OptionKind.WHEEL) + 1 == kinds.index(OptionKind.REBUILD)
    (step, *_) = options.available[kinds.index(OptionKind.WHEEL)].steps
    assert isinstance(step, FetchWheel) and step.command and "--backend" in step.command.argv
    looked = rank(Case(context=context, sources=summary, prebuilt={}))
    (rejected,) = (item for item in looked.rejected if item.kind is OptionKind.WHEEL)
    assert "no wheel is proven for tiny_probe" in rejected.rejected_because


def test_strangers_are_asked_only_when_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def page(_: object, address: str) -> tuple[str, str]:
        asked.append(address)
        raise web_module.WebError("HTTP status 404", missing=True)

    monkeypatch.setattr(web_module.Web, "page", page)
    facts, request = healthy(), wanted(tmp_path)
    none = found(request, facts)
    assert (none.steps, none.rejected[0].why, asked) == ({}, "no wheel in any index", [])
    gsplat = request_for((str(cuda_source(tmp_path / "gsplat", "gsplat")),), ("sm_120",))
    found(gsplat, facts)
    assert asked == ["https://docs.gsplat.studio/whl/gsplat/"]
    asked.clear()
    found(request, facts, "comfy-forge")
    assert asked == ["https://comfy-forge.github.io/cuda-wheels/cu130/torch2.11/tiny-probe/"]
    asked.clear()
    found(replace(request, backend="wheels"), facts)
    assert len(asked) == 3 and asked[1] == "https://wheels.astral.sh/simple/cu130/tiny-probe/"
    asked.clear()
    found(replace(request, offline=True), facts, "comfy-forge")
    find_options(goal("sm_120"), facts)
    assert asked == []
    error = refused(found, request, facts, "no-such-index")
    assert (error.code, error.exit_code) == ("unknown-index", 2)


def test_cli(served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, splatfix: Splatfix) -> None:
    """A dry run shows what would be done; with ``--no-find`` and ``--offline`` nobody is asked."""
    facts = facts_of(make_environment(tmp_path / "env"), tmp_path)
    monkeypatch.setattr("splatfix.app.install.gather", lambda *_, **__: facts)
    source = cuda_source(tmp_path / "source", "tiny_probe")

    def ends(code: int, says: str, *words: str | Path) -> None:
        done = splatfix("install", *words)
        assert done.returncode == code and says in done.stdout + done.stderr, done

    only, dry = ("--backend", "wheels", "--dry-run"), "--dry-run"
    with serving(served) as server:
        at = ("--target", "sm_120", "--index", server.address + "/")
        splatfix("install", source, *at, dry, "--offline")
        assert server.requests == []
        ends(2, "index-and-no-find", source, *at, "--no-find")
        ends(0, "fetch the prebuilt tiny_probe 1.0", source, *at, *only)
        assert server.requests
        named = server.address.replace("://", "://u:s3cretword@")
        for options in ((), ("--why",), ("--json",)):
            for index in (f"{named}/", f"u:s3cretword@{server.address}", f"{named}/no/"):
                said = splatfix("install", source, *at[:2], "--index", index, dry, *options)
                told = said.stdout + said.stderr
                assert "s3cretword" not in told and "127.0.0.1" in told
        ends(0, "fetch the prebuilt tiny-probe 1.0", "tiny-probe", *at, dry)
        ends(0, "prebuilt wheels, proven for these GPUs", "tiny-probe", *at, dry, "--why")
    ends(3, "no-wheel", source, *at, *only)
    ends(1, "1 of 1 fatbin has no code for sm_90", source, "--target", "sm_90", "--index", served, *only)
    by_index = ("--target", "sm_120", "--index", served, dry)
    ends(1, "it is version 1.0, and 2.0 is asked for", "tiny_probe==2.0", *by_index)
    ends(2, "(not-a-folder)", "./tiny_probe", *by_index)
    wheel = tmp_path / "odd" / "tiny_probe-1.0-py3-none-any.whl"
    odd = ("--target", "sm_120", "--index", tmp_path / "odd", *only)
    write_wheel(wheel.parent, wheel.name, "none", more={"tiny_probe/kernel.cu": b""})
    ends(1, "is compiled when it is first used", "tiny_probe", *odd)
    ends(1, "", "simple-knn", *odd)
    wheel.write_text("Not found")
    ends(3, "not a zip archive", source, *odd)
    ends(2, "unknown-index", "tiny_probe", "--index", "nowhere", "--target", "sm_120")
