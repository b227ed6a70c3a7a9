"""Toolkits from wheels: which majors compile, the recipe, and its fixes."""

from splatfix.knowledge.toolkits import (
    cuda_of_torch,
    provision,
    provisionable,
    recipe,
)
from splatfix.knowledge.torch_releases import release


def test_only_cuda_13_compiles() -> None:
    assert [provisionable(major) for major in (10, 11, 12, 13, 14)] == [None, False, False, True, None]
    twelve = provision(12)
    assert twelve is not None and "no nvcc" in twelve.holds


def test_recipe() -> None:
    found = recipe("13.0.2")
    assert found.verified
    assert found.requirement == "cuda-toolkit[nvcc,cccl,cudart,cublas,cusparse,cusolver]==13.0.2"
    assert found.cuda_home == "nvidia/cu13"
    needed = [fix for fix in found.fixes if fix.needed]
    assert [(fix.path, fix.links_to) for fix in needed] == [("lib/libcudart.so", "libcudart.so.13")]
    assert recipe("12.8.1") is None and recipe("14.0") is None
    newest = recipe("13.2")
    assert newest.requirement.endswith("==13.2.*")
    windows = recipe("13.0.2", "windows")
    assert windows.fixes == () and not windows.verified


def test_the_version_that_torch_depends_on() -> None:
    assert cuda_of_torch("2.15.0") == "13.2.2"
    assert cuda_of_torch("2.10.0") is None
    for version in ("2.11", "2.12", "2.13", "2.14", "2.15"):
        row, cuda = release(version), cuda_of_torch(version)
        assert row is not None and cuda is not None
        assert row.pypi_linux_default == "cu{}{}".format(*cuda.split(".")), version
