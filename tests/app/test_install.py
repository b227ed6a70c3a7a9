"""What ``install`` means where no SOURCE was named."""

import sys
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from threading import Thread

import pytest
from msgspec.structs import replace

from splatfix.app.install import InstallRequest, explain, plan, planned, require_downloads
from splatfix.app.prebuilt import find_prebuilt
from splatfix.context import make_context
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.step import commands
from splatfix.model import Fact
from splatfix.model.option import BUILDING, OptionKind, Plan
from splatfix.model.steps import BuildWheel
from splatfix.plan import Case
from tests.archs import goal, request_for
from tests.files import put
from tests.machines import facts_of
from tests.plan.machines import cuda_source, machine, refused
from tests.plan.test_recipes import checkout_of
from tests.screens import on_screen


def test_what_is_installed_can_be_rebuilt_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = facts_of("rtx-3090-and-5090")
    owners = {item.distribution for item in facts.environment.extensions.value or () if item.links_torch}
    names = [name for name in owners if name and not name.startswith("torch")]
    assert names
    (tmp_path / "clone").mkdir()
    known, clone = facts.environment.distributions, str(tmp_path / "clone")
    items = [replace(item, source=clone) if item.name == names[0] else item for item in known.value or ()]
    environment = replace(facts.environment, distributions=Fact(tuple(items), known.found_via))
    facts = replace(facts, environment=environment)
    monkeypatch.chdir(tmp_path)
    case = Case(context=make_context(facts, goal("sm_120")), request=request_for((".",), ("sm_120",)))
    error = refused(planned, case, named=False)
    assert error.code == "no-source"
    told = [command.argv for command in commands(error.todo)]
    assert any(str(tmp_path / "clone") in argv and argv[-2:] == ("--target", "sm_120") for argv in told)
    assert all(argv[2] for argv in told), "a source that is not written down is no empty word"


def test_options_for_the_name_of_a_drop_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no folder to build; every option of the machine is shown for it all the same."""
    facts = facts_of("rtx-3090-and-5090")
    monkeypatch.setattr("splatfix.app.install.gather", lambda *arguments, **options: facts)
    wanted = request_for(("simple_knn",), ("sm_120",))
    made = explain(InstallRequest(install=replace(wanted, find=False), python=sys.executable))
    assert made.error is None and made.options is not None and made.options.available
    wanted = request_for(("no_such_thing",), ("sm_120",))
    with pytest.raises(SplatfixError, match="does not exist"):
        explain(InstallRequest(install=replace(wanted, find=False), python=sys.executable))


def test_a_folder_is_written_in_one_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it was typed: commands work from any folder."""
    facts = facts_of("rtx-3090-and-5090")
    monkeypatch.setattr("splatfix.app.install.gather", lambda *arguments, **options: facts)
    monkeypatch.chdir(tmp_path)
    cuda_source(tmp_path / "ext")
    wanted = replace(request_for(("ext",), ("sm_120",)), find=False)
    made = explain(InstallRequest(install=wanted, python=sys.executable))
    assert made.plan and made.plan.request and made.plan.request.sources == (str(tmp_path / "ext"),)
    assert made.options is not None and made.options.available
    steps = [step for option in made.options.available for step in option.steps]
    argvs = [command.argv for command in commands(steps) if command.argv[:2] == ("splatfix", "install")]
    assert argvs and all("ext" not in argv for argv in argvs)
    # what is refused as it is proves nothing: "verifiable here: built, loads" stood above its refusal
    assert all(option.proves for option in made.options.available)
    put(tmp_path, {"ext/pyproject.toml": "[build-system]\nrequires = ['not-here']\n"})
    made = explain(InstallRequest(install=wanted, python=sys.executable))
    assert made.error is not None and made.options is not None
    assert not any(option.proves for option in made.options.available if option.kind in BUILDING)


def test_the_plan_of_a_checkout_is_told_in_a_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatfix.app.install.gather", lambda *arguments, **options: machine())
    folder = checkout_of("inria-2024", tmp_path / "checkout")
    wanted = replace(request_for((str(folder),), ("sm_120",)), find=False)
    made = plan(InstallRequest(install=wanted, python=sys.executable))
    assert made.plan is not None and len(made.plan.subjects) >= 3
    assert len(on_screen(made.show, width=100).splitlines()) <= 30


def test_what_is_no_name_of_a_package_is_wrong_usage() -> None:
    wanted = replace(request_for(("no name!!",), ("sm_120",)), backend="wheels")
    error = refused(find_prebuilt, wanted, make_context(facts_of("rtx-3090-and-5090")))
    assert (error.code, error.exit_code) == ("not-a-package", Exit.USAGE)


@pytest.mark.parametrize("answers", [True, False])
def test_what_a_build_would_download_is_asked_for_before_it(tmp_path: Path, answers: bool) -> None:
    """A server of our own, and an address where none answers."""
    with HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        address = f"http://127.0.0.1:{server.server_port}/"
        step = BuildWheel(subject="rays", source=str(tmp_path), downloads={address: "libeigen3-dev"})
        build = Plan(OptionKind.REBUILD, "", steps=(step,), python="", prefix="")
        if answers:
            Thread(target=server.handle_request).start()
            require_downloads(build)
            return
        server.server_close()
        error = refused(require_downloads, build)
    assert error.code == "download-unreachable" and address in error.what
    assert "libeigen3-dev" in commands(error.todo)[0].argv
