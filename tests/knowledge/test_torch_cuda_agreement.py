"""Our cubin rule and our table of torch builds against torch.cuda's own, over every code and device number."""

import importlib.util
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from splatfix.knowledge.archs import Arch, cubin_runs_on, known_archs
from splatfix.knowledge.torch_releases import build, place

from .torch_sources import TorchSource, torch_sources

FILE = "cuda/__init__.py"
NAMES = {
    "_CompatInterval",
    "_CompatSet",
    "DEVICE_REQUIREMENT",
    "DEVICE_REQUIREMENT_POST_JETSON_SBSA_UNIFICATION",
    "PYTORCH_RELEASES_CODE_CC",
    "_device_requirement",
    "_code_compatible_with_device",
}
WITH_TABLE = [source for source in torch_sources() if "DEVICE_REQUIREMENT" in source.text(FILE)]
SOURCES = pytest.mark.parametrize("source", WITH_TABLE, ids=lambda source: source.version)


def torch_cuda(source: TorchSource, build_cuda: str) -> dict[str, Any]:
    stubs = {
        "torch": SimpleNamespace(version=SimpleNamespace(cuda=build_cuda)),
        "warnings": warnings,
        "Optional": None,
    }
    return source.definitions(FILE, NAMES, stubs)


def test_a_torch_with_the_table_is_here() -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("no torch here: nothing to hold our rules against")
    assert WITH_TABLE


@SOURCES
@pytest.mark.parametrize("build_cuda", ["12.6", "13.0", "13.2", "13.4"])
def test_cubin_rule(source: TorchSource, build_cuda: str) -> None:
    theirs = torch_cuda(source, build_cuda)
    knows_sbsa = "DEVICE_REQUIREMENT_POST_JETSON_SBSA_UNIFICATION" in theirs
    major, minor = map(int, build_cuda.split("."))
    codes = sorted(
        {arch.number for arch in known_archs() if arch.number >= 50} | set(theirs["DEVICE_REQUIREMENT"])
    )
    devices = range(50, 140)
    different = set()
    for code in codes:
        for device in devices:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                real = theirs["_code_compatible_with_device"](device, code)
            ours = cubin_runs_on(
                Arch.of_number(code),
                Arch.of_number(device),
                build_cuda=(major, minor) if knows_sbsa else None,
            )
            if real != ours:
                different.add((code, device))
    # torch before 2.15 did not yet see that sm_110 code runs on the same chip under its old number,
    # and its open interval for 110 lets in numbers that no device has.
    renamed = {(110, 101)} | {(110, number) for number in range(111, 120)}
    assert different - renamed == set()
    if knows_sbsa:
        assert different == set()


@SOURCES
def test_published_builds(source: TorchSource) -> None:
    published = torch_cuda(source, "13.0")["PYTORCH_RELEASES_CODE_CC"]
    if source.minor < (2, 13):
        pytest.skip("until 2.12 torch kept one set for all hosts, and not in step with its builds")
    compared = 0
    for cuda, by_host in published.items():
        ours = build(source.version.split("+")[0], f"cu{cuda.replace('.', '')}")
        for host, numbers in by_host.items():
            assert {arch.number for arch in ours.code[place("linux", host)].cubins} == numbers, (cuda, host)
            compared += 1
    assert compared >= 6
