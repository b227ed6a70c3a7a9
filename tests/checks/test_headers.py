"""Headers that a checkout's sources include, and that are not here."""

from __future__ import annotations

from splatfix.checks import Status
from splatfix.core.step import commands
from splatfix.facts import MissingHeader

from .conftest import Changer, of
from .test_checkout import source, with_checkout

TEXTURE = MissingHeader("cuda_texture_types.h", "main.h", 8, ("/usr/local/cuda-12.9",))
THC = MissingHeader("THC/THC.h", "a.cu", 3)


def test_each_owner_has_its_finding(changed: Changer) -> None:
    item = source("other", headers_missing=(TEXTURE, THC))
    cuda, torch = of(with_checkout(changed(), sources=(item,)), "headers-missing")
    # install takes both includes out of its copy
    assert cuda.status is torch.status is Status.WARN
    assert "cuda_texture_types.h, which CUDA 12.9" in cuda.summary and "torch 2.9.1" in torch.summary
    assert cuda.evidence[0].name == "submodules/other/main.h:8"
    for finding in (cuda, torch):
        (command,) = commands(finding.remedy)
        assert command.argv[:3] == ("splatfix", "install", "/home/u/gs/submodules/other")


def test_a_part_that_was_left_out(changed: Changer) -> None:
    header = MissingHeader("curand_kernel.h", "a.cu", 1, ("/usr/local/cuda-12.9",))
    item = source("other", headers_missing=(header,))
    (finding,) = of(with_checkout(changed(), sources=(item,)), "headers-missing")
    assert finding.status is Status.FAIL
    assert not commands(finding.remedy) and "curand_kernel.h" in finding.remedy[0].text


def test_a_library_of_the_system(changed: Changer) -> None:
    item = source("other", headers_missing=(MissingHeader("Eigen/Dense", "a.cu", 1, (), "libeigen3-dev"),))
    (finding,) = of(with_checkout(changed(), sources=(item,)), "headers-missing")
    assert finding.status is Status.FAIL and "which this system does not have" in finding.summary
    (command,) = commands(finding.remedy)
    assert command.argv == ("sudo", "apt-get", "install", "libeigen3-dev")
