"""What a training meets: the allocator's settings, several GPUs, import order, OpenGL; and PTX against the driver."""

import dataclasses

import pytest

from splatfix.checks import Status
from splatfix.context import make_context
from splatfix.facts import Distribution, Driver, Extension, Fact, ImportProbe, Linkage

from .conftest import Changer, TorchWith, extension, loud, of, only, ptx, sass


def test_ptx_of_a_newer_toolkit_is_told_once(changed: Changer) -> None:
    facts = changed(extensions=Fact((extension("r", ptx("sm_90", (9, 0))),), ""))
    finding = only(facts, "ptx-newer-than-driver")
    assert "CUDA 13.0" in finding.summary and "up to CUDA 12.9" in finding.summary
    newer = Fact(Driver("580.95.05", "13.0", True, "580.95.05"), "NVML")
    assert not of(changed(extensions=facts.environment.extensions, driver=newer), "ptx-newer-than-driver")
    both = changed(extensions=Fact((extension("r", sass("sm_120"), ptx("sm_120", (9, 0))),), ""))
    assert of(both, "ptx-newer-than-driver"), "one fatbin of PTX alone is enough"
    unknown = changed(extensions=facts.environment.extensions, driver=Fact(Driver(None, None), "/proc"))
    assert not of(unknown, "ptx-newer-than-driver")
    neither = changed(extensions=Fact((extension("r", sass("sm_80"), ptx("sm_90", (9, 0))),), ""))
    assert not of(neither, "ptx-newer-than-driver"), "no-kernel-image tells what lacks all code"
    assert of(neither, "no-kernel-image")[0].status is Status.FAIL


def test_code_of_a_drop_in(changed: Changer) -> None:
    """What it does not bring is compiled at the first call: nothing that fails."""
    dropin = Distribution("fused_ssim", "0+s", "/env", dropin="fused_ssim", code=(sass("sm_90", "sm_120"),))
    facts = changed(distributions=Fact((dropin,), ""), extensions=Fact((), ""))
    (fine,) = of(facts, "no-kernel-image", "sm_120")
    assert (fine.status, fine.summary) == (Status.PASS, "fused_ssim has native sm_120 code.")
    (later,) = of(facts, "no-kernel-image", "sm_75")
    assert later.status is Status.WARN and "NVRTC compiles it at the first call" in later.summary
    assert later.remedy[0].command is not None
    assert later.remedy[0].command.argv[:5] == ("splatfix", "install", "fused_ssim", "--backend", "nvrtc")
    damaged = dataclasses.replace(dropin, code=(), code_error="ssim-sm_120-1.cubin holds code for sm_75")
    (broken,) = of(
        changed(distributions=Fact((damaged,), ""), extensions=Fact((), "")), "no-kernel-image", "sm_120"
    )
    assert broken.status is Status.FAIL and broken.remedy


def of_python(name: str, **values: object) -> Extension:
    return dataclasses.replace(extension("pkg", sass("sm_120")), path=f"pkg/{name}", **values)  # type: ignore[arg-type]


def test_a_file_that_only_looks_like_a_module_of_another_python(changed: Changer) -> None:
    """torchao's _C_mxfp8.cpython-310 has no PyInit function: torch.ops loads it by its path, from any Python."""
    other = "_C.cpython-310-x86_64-linux-gnu.so"
    for values in ({}, {"python_module": True}):
        assert only(changed(extensions=Fact((of_python(other, **values),), "")), "extension-python-mismatch")
    loaded_by_path = changed(extensions=Fact((of_python(other, python_module=False),), ""))
    assert not of(loaded_by_path, "extension-python-mismatch")
    own = "_C.cpython-311-x86_64-linux-gnu.so"
    beside = changed(extensions=Fact((of_python(other, python_module=True), of_python(own)), ""))
    assert not of(beside, "extension-python-mismatch"), "left over, beside the one that is imported"


def fat_wheel(*tags: str) -> tuple[Extension, ...]:
    """One module for each CUDA, as fussim's wheel brings them: the older ones know no sm_120."""
    return tuple(
        dataclasses.replace(
            extension("fussim", sass("sm_90") if tag < "cu128" else sass("sm_90", "sm_120")),
            path=f"fussim/_cuda_{tag}.cpython-311-x86_64-linux-gnu.so",
            linkage=Linkage(unresolved=(f"libcudart.so.{tag[2:4]}.0",) if tag != "cu128" else ()),
        )
        for tag in tags
    )


@pytest.mark.parametrize(
    ("torch_cuda", "tags", "loaded"),
    [
        ("12.8", ("cu118", "cu124", "cu126", "cu128", "cu130"), ["cu128"]),
        ("12.9", ("cu118", "cu124", "cu126", "cu128", "cu130"), ["cu124"]),  # it tries them in order
        ("12.1", ("cu118", "cu124", "cu126"), ["cu124"]),
        ("13.0", ("cu118", "cu128"), ["cu128"]),
        (None, ("cu118", "cu128"), ["cu128"]),
        ("12.8", ("cu118",), ["cu118"]),
    ],
)
def test_of_a_fat_wheel_one_module_is_loaded(
    changed: Changer, torch_with: TorchWith, torch_cuda: str | None, tags: tuple[str, ...], loaded: list[str]
) -> None:
    facts = changed(extensions=Fact(fat_wheel(*tags)), torch=torch_with(cuda=torch_cuda))
    found = make_context(facts).extensions
    assert [item.module.removeprefix("fussim._cuda_") for item in found] == loaded


def test_a_healthy_fat_wheel_is_healthy(changed: Changer) -> None:
    modules = fat_wheel("cu118", "cu124", "cu126", "cu128", "cu130")
    tried = tuple(
        ImportProbe(item.module, ok="cu128" in item.module, outcome="exception", detail="libcudart")
        for item in modules
    )
    assert loud(changed(extensions=Fact(modules), imports=tried)) == {}


def test_gpu_code_that_has_nothing_to_do_with_torch_is_a_note(changed: Changer) -> None:
    """open3d's own module: its CUDA functions are its own matter. The same file, linking torch, refuses."""
    item = extension("open3d", sass("sm_90"))
    alone = dataclasses.replace(item, links_torch=False, needed=("libc.so.6",))
    (finding,) = of(changed(extensions=Fact((alone,), "")), "no-kernel-image")
    assert finding.status is Status.SKIP and "open3d's own GPU functions" in finding.summary
    assert only(changed(extensions=Fact((item,), "")), "no-kernel-image").status is Status.FAIL
