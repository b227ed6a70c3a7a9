"""The environment: wheels for its Python, and what a checkout's code needs of it."""

import pytest
from msgspec.structs import replace

from splatfix.core.errors import Rejected
from splatfix.core.step import commands
from splatfix.knowledge import torch_releases
from splatfix.knowledge.archs import Arch
from splatfix.model import Distribution, Fact, ImportedModule, Status
from splatfix.plan import Request
from splatfix.plan.dependencies import plan_dependencies

from .conftest import Changer, of, source, with_checkout, with_python


def test_the_newest_torch_for_a_python_is_offered(changed: Changer, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a release of which it is not known is kept."""
    no_torch = {"torch_installed": Fact(False, "sys.path"), "torch": Fact(None, "", "not installed")}
    nothing = {
        "extensions": Fact((), ""),
        "toolkit_choice": Fact(None),
        "driver": Fact(None, "", "not asked"),
    }
    facts = with_python(changed(**no_torch, **nothing), version="3.11.7")
    offered = torch_releases.builds_for_arch(Arch(12, 0), python=(3, 11))[0].build.release
    summary = f"torch up to {offered} has wheels for Python 3.11.7."
    assert [item.summary for item in of(facts, "python-version-unsupported")] == [summary]
    *older, last = torch_releases.releases()
    rows = (*older, replace(last, python_max=None))
    monkeypatch.setattr(torch_releases, "releases", lambda: rows)
    (finding,) = of(facts, "python-version-unsupported")
    assert finding.summary.startswith(f"torch up to {older[-1].release} has wheels")
    assert finding.summary.endswith(f"; of {last.release} that is not known.")


def test_what_a_package_declares_is_told_as_install_tells_it(changed: Changer) -> None:
    """Pointnet2, torchsparse: install refused what diagnose had passed over."""
    known = source("nets", requires=("rootpath", "tqdm>=4", "numpy", "torch>=1"))
    top = replace(known.source, name="top", requires=("hydra-core==0.11.3",))
    modules = Fact(("numpy", "torch", "splatfix"), "names in the folders of sys.path")
    here = changed(modules=modules, distributions=Fact((Distribution("numpy", "2.0", "/x"),), "test"))
    needs = (ImportedModule("tqdm", "train.py", 1),)
    facts = with_checkout(here, sources=(known,), package=top, needs=needs)
    (finding,) = of(facts, "imports-missing")
    assert finding.status is Status.FAIL and "rootpath" in finding.summary
    (command,) = commands(finding.remedy)
    assert set(command.argv[-3:]) == {"tqdm>=4", "rootpath", "hydra-core==0.11.3"}
    for item in (known.source, top):
        rejected = plan_dependencies(Request(sources=()), facts, (item,))
        assert isinstance(rejected, Rejected) and rejected.code == "build-tools-missing"
