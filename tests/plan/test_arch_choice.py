from __future__ import annotations

from pathlib import Path

import pytest

from splatfix.core.errors import SplatfixError
from splatfix.facts import read_source
from splatfix.knowledge import Arch
from splatfix.plan.arch_choice import ArchChoice, Decider, choose

from .machines import cuda_source

WANTED = (Arch(12, 0), Arch(9, 0, "a"))


def choice(folder: Path, flags: str = "", before: str = "", torch: str = "2.11.0") -> ArchChoice:
    return choose(read_source(cuda_source(folder, flags=flags, before=before)), WANTED, torch)


def test_torch_decides(tmp_path: Path) -> None:
    found = choice(tmp_path, '"-O3", "-I" + os.path.join(here, "third_party/glm/")')
    assert (found.decider, found.variables) == (Decider.TORCH, {"TORCH_CUDA_ARCH_LIST": "12.0;9.0a"})


@pytest.mark.parametrize("name", ["CUDA_ARCHITECTURES", "TCNN_CUDA_ARCHITECTURES", "CUDA_ARCH_LIST"])
def test_a_variable_of_its_own(tmp_path: Path, name: str) -> None:
    before = f'n = os.environ.get("{name}", "75")\n'
    found = choice(tmp_path, 'f"-arch=sm_{n}"', before)
    assert (found.decider, found.variables) == (Decider.OWN_VARIABLE, {name: "120;90a"})


def test_a_variable_that_only_prints_leaves_it_to_torch(tmp_path: Path) -> None:
    """It reads CUDA_ARCHITECTURES but hands nvcc no architecture, so torch adds its own."""
    assert choice(tmp_path, "", 'print(os.environ.get("CUDA_ARCHITECTURES"))\n').decider is Decider.TORCH


def test_torchs_variable_read_by_setup_py_is_still_torchs(tmp_path: Path) -> None:
    before = 'if "TORCH_CUDA_ARCH_LIST" not in os.environ: os.environ["TORCH_CUDA_ARCH_LIST"] = "7.5"\n'
    assert choice(tmp_path, "", before).decider is Decider.TORCH


def test_numbers_written_in_setup_py(tmp_path: Path) -> None:
    good = '"-gencode=arch=compute_120,code=sm_120", "-gencode=arch=compute_90a,code=sm_90a"'
    assert choice(tmp_path, good).decider is Decider.FIXED
    with pytest.raises(SplatfixError) as caught:
        choice(tmp_path, '"-gencode=arch=compute_70,code=sm_70", "-gencode=arch=compute_120,code=sm_120"')
    assert caught.value.code == "arch-fixed-in-source"
    assert "sm_70, sm_120 and nothing else" in caught.value.what and "sm_90a" in caught.value.meaning


def test_a_list_that_setup_py_forces_on_torch(tmp_path: Path) -> None:
    with pytest.raises(SplatfixError) as caught:
        choice(tmp_path, "", 'os.environ["TORCH_CUDA_ARCH_LIST"] = "7.5;8.6+PTX"\n')
    assert "sm_75, sm_86 and nothing else" in caught.value.what


def test_a_stray_flag_with_arch_in_it(tmp_path: Path) -> None:
    """-march=native among nvcc's flags: torch adds nothing, and no variable changes that."""
    found = choice(tmp_path, '"-Xcompiler", "-march=native"')
    assert found.decider is Decider.COMPUTED and found.variables == {} and "-march=native" in found.why


def test_what_we_read_is_what_torch_decides(tmp_path: Path) -> None:
    """torch's own function, fed the flags of each kind, adds flags exactly where we say that torch decides."""
    extension = pytest.importorskip("torch.utils.cpp_extension")
    import os

    for flags in (["-O3"], ["-march=native"], ["-gencode=arch=compute_80,code=sm_80"], ["-I/x/search/"]):
        text = ", ".join(repr(flag) for flag in flags)
        try:
            decider = choice(tmp_path, text, torch=extension.torch.__version__).decider
        except SplatfixError:
            decider = Decider.FIXED
        before = os.environ.get("TORCH_CUDA_ARCH_LIST")
        os.environ["TORCH_CUDA_ARCH_LIST"] = "12.0"
        try:
            added = extension._get_cuda_arch_flags(flags)
        finally:
            os.environ.pop("TORCH_CUDA_ARCH_LIST")
            if before is not None:
                os.environ["TORCH_CUDA_ARCH_LIST"] = before
        assert bool(added) == (decider is Decider.TORCH), flags
