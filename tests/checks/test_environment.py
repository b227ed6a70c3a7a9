"""The environment: wheels for its Python, what a checkout's code needs of it, and images made to run rather than to build."""

import re

import pytest
from msgspec.structs import replace

from splatfix.core.errors import Rejected
from splatfix.core.step import commands
from splatfix.knowledge import torch_releases
from splatfix.knowledge.archs import Arch
from splatfix.model import Distribution, Fact, Facts, Finding, ImportedModule, Status
from splatfix.plan import Request
from splatfix.plan.dependencies import plan_dependencies

from .conftest import Changer, TorchWith, loud, of, source, statuses, with_checkout, with_python
from .test_packages import package, packages


def without_torch(changed: Changer, python: str = "3.11.9", **values: object) -> Facts:
    no_torch = {"torch_installed": Fact(False, "sys.path"), "torch": Fact(None, "", "not installed")}
    facts = changed(**no_torch, extensions=Fact((), ""), toolkit_choice=Fact(None), **values)
    return with_python(facts, version=python)


def test_the_newest_torch_for_a_python_is_offered(changed: Changer) -> None:
    facts = without_torch(changed, "3.11.7", driver=Fact(None, "", "not asked"))
    (finding,) = of(facts, "python-version-unsupported")
    offered = torch_releases.builds_for_arch(Arch(12, 0), python=(3, 11))[0].build.release
    assert finding.summary == f"torch up to {offered} has wheels for Python 3.11.7."


def test_a_release_with_unknown_pythons_is_kept(changed: Changer, monkeypatch: pytest.MonkeyPatch) -> None:
    *older, last = torch_releases.releases()
    rows = (*older, replace(last, python_max=None))
    monkeypatch.setattr(torch_releases, "releases", lambda: rows)
    (finding,) = of(without_torch(changed), "python-version-unsupported")
    assert finding.summary == (
        f"torch up to {older[-1].release} has wheels for Python 3.11.9; of {last.release} that is not known."
    )


BUILDERS = {"cuda-toolkit-missing", "host-compiler-missing", "build-tools-missing"}


def bare(changed: Changer, **more: object) -> Facts:
    """A runtime image: torch, the extensions, and nothing that could build them."""
    return changed(
        toolkits=Fact((), "PATH"),
        compilers=Fact((), "PATH"),
        tools={},
        distributions=Fact((), "site-packages"),
        toolkit_choice=Fact(None, "", "none"),
        **more,
    )


def test_an_image_that_has_its_extensions_lacks_nothing(changed: Changer) -> None:
    made = bare(changed, packages=packages(package("inria-v1", exports=())))
    assert not loud(made)
    assert {statuses(made, code) for code in BUILDERS} == {"skip"}
    assert set(loud(bare(changed))) >= BUILDERS, "with no extension yet, they are what is missing"
    lost = package("inria-v1", native_missing=("diff_gaussian_rasterization._C",))
    assert set(loud(bare(changed, packages=packages(lost)))) >= BUILDERS
    assert set(loud(with_checkout(made, sources=(source("other"),)))) >= BUILDERS
    at_first_use = Fact((Distribution("gsplat", "1.5.3", "/env"),), "")
    environment = replace(made.environment, distributions=at_first_use)
    codes = set(loud(replace(made, environment=environment)))
    assert {"cuda-toolkit-missing", "host-compiler-missing"} <= codes


HERE = Fact(("numpy", "torch", "splatfix"), "names in the folders of sys.path")


def lines(finding: Finding) -> list[str]:
    return [" ".join(command.argv) for command in commands(finding.remedy)]


def test_torchvision_comes_for_the_torch_that_is_to_be(changed: Changer, torch_with: TorchWith) -> None:
    cpu = torch_with(version="2.9.1+cpu", cuda=None, code=())
    facts = with_checkout(
        changed(modules=HERE, torch=cpu), needs=(ImportedModule("torchvision", "train.py", 1),)
    )
    (finding,) = of(facts, "imports-missing", "sm_120")
    (line,) = lines(finding)
    assert "+cpu" not in line and re.search(r"torch==2\.9\.1\+cu\d+ --extra-index-url \S+/cu\d+$", line), line


def test_what_a_package_declares_is_told_as_install_tells_it(changed: Changer) -> None:
    """Pointnet2, torchsparse: install refused what diagnose had passed over."""
    known = source("nets", requires=("rootpath", "tqdm>=4", "numpy", "torch>=1"))
    top = replace(known.source, name="top", requires=("hydra-core==0.11.3",))
    here = Fact((Distribution("numpy", "2.0", "/x"),), "test")
    facts = with_checkout(
        changed(modules=HERE, distributions=here),
        sources=(known,),
        package=top,
        needs=(ImportedModule("tqdm", "train.py", 1),),
    )
    (finding,) = of(facts, "imports-missing")
    assert finding.status is Status.FAIL and "rootpath" in finding.summary
    (line,) = lines(finding)
    assert set(line.split()[-3:]) == {"tqdm>=4", "rootpath", "hydra-core==0.11.3"}
    for item in (known.source, top):
        rejected = plan_dependencies(Request(sources=()), facts, (item,))
        assert isinstance(rejected, Rejected) and rejected.code == "build-tools-missing"
