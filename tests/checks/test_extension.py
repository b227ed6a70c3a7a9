"""What a training meets: the allocator's settings, several GPUs, import order, OpenGL; and PTX against the driver."""

import pytest
from msgspec.structs import replace

from splatfix.context import make_context
from splatfix.model import Extension, Fact, ImportProbe, Linkage

from .conftest import Changer, TorchWith, extension, loud, sass


def fat_wheel(*tags: str) -> tuple[Extension, ...]:
    """One module for each CUDA, as fussim's wheel brings them: the older ones know no sm_120."""
    return tuple(
        replace(
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
