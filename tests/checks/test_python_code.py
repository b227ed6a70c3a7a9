"""What the checkout's Python code imports and uses, against the environment."""

import re

from msgspec.structs import replace

from splatfix.core.errors import Rejected
from splatfix.core.step import commands
from splatfix.model import Distribution, Fact, Finding, ImportedModule, Status
from splatfix.plan import Request
from splatfix.plan.dependencies import plan_dependencies

from .conftest import Changer, TorchWith, of, source, with_checkout

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
