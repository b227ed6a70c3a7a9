"""What the checkout's Python code imports and uses, against the environment."""

import dataclasses
import re
from typing import Any

from splatfix.checks import Finding, Status
from splatfix.core.errors import SplatfixError
from splatfix.core.step import commands
from splatfix.facts import CodeMatch, Distribution, Fact, Facts, ImportedModule, Pin
from splatfix.plan.dependencies import require_build_tools

from .conftest import Changer, TorchWith, of, with_python
from .test_checkout import source, with_checkout

HERE = Fact(("numpy", "torch", "splatfix"), "names in the folders of sys.path")


def needing(changed: Changer, *names: str, modules: Fact[Any] = HERE, **values: Any) -> Facts:
    needs = tuple(ImportedModule(name, "train.py", line) for line, name in enumerate(names, 1))
    return with_checkout(changed(modules=modules), needs=needs, **values)


def one(facts: Facts, code: str = "imports-missing") -> Finding:
    (finding,) = of(facts, code)
    return finding


def lines(finding: Finding) -> list[str]:
    return [" ".join(command.argv) for command in commands(finding.remedy)]


def test_all_that_is_missing_in_one_command(changed: Changer) -> None:
    finding = one(needing(changed, "numpy", "plyfile", "cv2", "PIL", "sklearn", "torch.utils.tensorboard"))
    assert finding.status is Status.FAIL
    assert finding.evidence[0].name == "train.py:2"
    assert lines(finding) == [
        "/env/bin/python -m pip install plyfile opencv-python pillow scikit-learn tensorboard"
    ]


def test_torchvision_comes_for_this_torch(changed: Changer) -> None:
    (line,) = lines(one(needing(changed, "torchvision")))
    assert line.startswith("/env/bin/python -m pip install torchvision torch==2.9.1+cu128 --extra-index-url ")
    assert line.endswith("/cu128")


def test_torchvision_comes_for_the_torch_that_is_to_be(changed: Changer, torch_with: TorchWith) -> None:
    cpu = torch_with(version="2.9.1+cpu", cuda=None, code=())
    facts = with_checkout(
        changed(modules=HERE, torch=cpu), needs=(ImportedModule("torchvision", "train.py", 1),)
    )
    (finding,) = of(facts, "imports-missing", "sm_120")
    (line,) = lines(finding)
    assert "+cpu" not in line and re.search(r"torch==2\.9\.1\+cu\d+ --extra-index-url \S+/cu\d+$", line), line


def test_what_is_compiled_against_torch_has_its_repository(changed: Changer) -> None:
    found = lines(one(needing(changed, "torch_scatter", "tinycudann")))
    assert not any("pip install" in line for line in found)
    assert found[0] == "git clone --recursive https://github.com/rusty1s/pytorch_scatter"
    assert found[1].startswith("splatfix install ./pytorch_scatter --python")
    assert found[3].startswith("splatfix install ./tiny-cuda-nn/bindings/torch ")


def test_what_the_requirements_take_from_git_has_that_source(changed: Changer) -> None:
    pins = (Pin("requirements.txt", "own-splats", "", "git+https://h.org/a/own-splats"),)
    (line,) = lines(one(needing(changed, "own_splats", pins=pins)))
    assert line.endswith("-m pip install --no-build-isolation git+https://h.org/a/own-splats")


def test_what_a_package_declares_is_told_as_install_tells_it(changed: Changer) -> None:
    """Pointnet2, torchsparse: install refused what diagnose had passed over."""
    known = source("nets", requires=("rootpath", "tqdm>=4", "numpy", "torch>=1"))
    top = dataclasses.replace(known.source, name="top", requires=("hydra-core==0.11.3",))
    here = Fact((Distribution("numpy", "2.0", "/x"),), "test")
    facts = with_checkout(
        changed(modules=HERE, distributions=here),
        sources=(known,),
        package=top,
        needs=(ImportedModule("tqdm", "train.py", 1),),
    )
    finding = one(facts)
    assert finding.status is Status.FAIL and "rootpath" in finding.summary
    (line,) = lines(finding)
    assert set(line.split()[-3:]) == {"tqdm>=4", "rootpath", "hydra-core==0.11.3"}
    codes = set()
    for item in (known.source, top):
        try:
            require_build_tools(facts, item)
        except SplatfixError as error:
            codes.add(error.code)
    assert codes == {"build-tools-missing"}


def test_scripts_that_one_can_do_without_only_warn(changed: Changer) -> None:
    needs = (ImportedModule("plyfile", "train.py", 1), ImportedModule("gradio", "app.py", 1, beside=True))
    facts = with_checkout(changed(modules=HERE), needs=needs)
    assert [(item.status, lines(item)[0].split()[-1]) for item in of(facts, "imports-missing")] == [
        (Status.FAIL, "plyfile"),
        (Status.WARN, "gradio"),
    ]


def test_a_name_that_nobody_knows_is_not_installed(changed: Changer) -> None:
    """Who took that name on PyPI is not known: `pip install simple-knn` brings something else."""
    finding = one(needing(changed, "sweet_module"))
    assert finding.status is Status.WARN and not lines(finding)
    declared = needing(changed, "sweet_module", pins=(Pin("requirements.txt", "Sweet-Module", "==1"),))
    assert lines(one(declared)) == ["/env/bin/python -m pip install Sweet-Module"]


def test_imports_of_an_extension_count(changed: Changer) -> None:
    item = source("dgr")
    needs = (ImportedModule("dacite", "dgr/__init__.py", 3),)
    item = dataclasses.replace(item, source=dataclasses.replace(item.source, needs=needs))
    assert one(needing(changed, sources=(item,))).summary.endswith("not installed: dacite.")


def in_script(changed: Changer, key: str, *, at_import: bool = True, **versions: str) -> Facts:
    known = tuple(Distribution(name, version, "/env") for name, version in versions.items())
    match = CodeMatch(key, "utils/io.py", 7, "x = np.int(3)", at_import)
    return with_checkout(changed(distributions=Fact(known, "site-packages")), python_matches=(match,))


def test_an_extension_is_mended_on_a_copy(changed: Changer) -> None:
    match = CodeMatch("mutable-dataclass-default", "dgr/__init__.py", 9, "sort: Sort = Sort()")
    facts = with_checkout(changed(), sources=(source("dgr", matches=(match,)),))
    finding = one(with_python(facts, version="3.11.7"), "mutable-dataclass-default")
    assert finding.evidence[0].name == "submodules/dgr/dgr/__init__.py:9"
    assert lines(finding)[0].startswith("splatfix install /home/u/gs/submodules/dgr --python")
    assert not of(with_python(facts, version="3.10.14"), "mutable-dataclass-default")


def test_pkg_resources_that_setuptools_dropped(changed: Changer) -> None:
    finding = one(in_script(changed, "pkg-resources", setuptools="84.2.1"), "pkg-resources-removed")
    assert lines(finding) == ["/env/bin/python -m pip install setuptools<82"]
    bare = needing(changed, "pkg_resources")
    old = Fact((Distribution("setuptools", "84.2.1", "/env"),), "")
    told = dataclasses.replace(bare, environment=dataclasses.replace(bare.environment, distributions=old))
    assert not of(told, "imports-missing"), "the breakage tells it"
    none = dataclasses.replace(told.environment, distributions=Fact((), ""))
    assert lines(one(dataclasses.replace(told, environment=none))) == [
        "/env/bin/python -m pip install setuptools<82"
    ]
