"""What the tables answer, a row of test_answers.toml for each question; what they do not know is None."""

from collections.abc import Callable
from typing import Any

import pytest

from splatfix.knowledge import archs, cpp_extension, drivers, toolkits, torch_releases
from splatfix.knowledge.archs import Arch
from splatfix.knowledge.breakages import breakage
from splatfix.knowledge.host_compilers import limits
from splatfix.knowledge.tables import parse_version
from splatfix.knowledge.wheel_tags import WheelTarget, python_of_file, tag_fits
from tests.tables import data

A = Arch.parse


QUESTIONS: dict[str, Callable[..., Any]] = {
    "cubin runs on": lambda cubin, gpu: archs.cubin_runs_on(A(cubin), A(gpu)),
    "PTX runs on": lambda ptx, gpu: archs.ptx_runs_on(A(ptx), A(gpu)),
    "toolkit supports": lambda cuda, gpu: archs.toolkit_supports(cuda, A(gpu)),
    "runtime floor": drivers.runtime_floor,
    "CUDA level of driver": drivers.cuda_level_of_driver,
    "CUDA level at least": drivers.cuda_level_at_least,
    "PTX ISA of CUDA": drivers.ptx_isa_of_cuda,
    "CUDA of PTX ISA": drivers.cuda_of_ptx_isa,
    "first branch of CUDA": drivers.first_branch_of_cuda,
    "PTX is compiled by": drivers.ptx_jit_ok,
    "driver floor of GPU": lambda gpu: drivers.gpu_driver_floor(A(gpu)),
    "last branch of GPU": lambda gpu: drivers.gpu_last_branch(A(gpu)),
    "row of cpp_extension": lambda torch: (
        (row := cpp_extension.behaviour(torch)) and (row.release, row.same_minor)
    ),
    "arch list means": lambda *asked: type(cpp_extension.expand_arch_list(*asked)).__name__,
    "arch list of visible GPU": lambda gpu, *asked: cpp_extension.visible_gpu_arch_list([A(gpu)], *asked),
    "first release for": lambda gpu: cpp_extension.first_release_for_arch(A(gpu)),
    "compiler verdict": cpp_extension.compiler_verdict,
    "toolkit accepts": lambda cuda, *compiler: limits(cuda).accepts(*compiler),  # type: ignore[union-attr]
    "newest gcc of toolkit": lambda cuda: limits(cuda).gcc_max_major,  # type: ignore[union-attr]
    "limits are known": lambda cuda: limits(cuda) is not None,
    "limits are alike": lambda one, other: limits(one) == limits(other) is not None,
    "build runs on": lambda torch, tag, gpu, *place: torch_releases.how_build_runs(
        torch_releases.build(torch, tag), A(gpu), *place
    ),
    "CUDA of build": lambda *asked: (found := torch_releases.build(*asked)) and found.cuda,
    "release": lambda torch: (found := torch_releases.release(torch)) and found.release,
    "best builds for": lambda gpu, how: tuple(
        (one.build.release, one.build.tag, one.runs)
        for one in torch_releases.builds_for_arch(A(gpu), **how)[:1]
    ),
    "tags for": lambda gpu, how: tuple(
        item.build.tag for item in torch_releases.builds_for_arch(A(gpu), **how)
    ),
    "releases for": lambda gpu, how: tuple(
        sorted({item.build.release for item in torch_releases.builds_for_arch(A(gpu), **how)})
    ),
    "provisionable": lambda major: (offer := toolkits.provision(major)) and offer.compiler,
    "version": parse_version,
    "new C++ ABI": torch_releases.cxx11_abi,
    "wheel fits free-threaded": lambda platform, tag: tag_fits(
        tag, WheelTarget((3, 13), platform, free_threaded=True)
    ),
    "wheel fits with musl 1.2": lambda platform, tag: tag_fits(
        tag, WheelTarget((3, 12), platform, musl=(1, 2))
    ),
    "Python of file": python_of_file,
    "breakage holds": lambda key, *versions: breakage(key).when.holds(*versions),  # type: ignore[union-attr]
}
ROWS = [(name, *row) for name, table in data(__file__).items() for row in table["rows"]]


@pytest.mark.parametrize(
    ("name", "asked", "answer"), ROWS, ids=[f"{name}: {asked}" for name, asked, _ in ROWS]
)
def test_what_the_tables_answer(name: str, asked: tuple[Any, ...], answer: Any) -> None:
    found = QUESTIONS[name](*asked)
    assert (found, type(found)) == (answer, type(answer))
