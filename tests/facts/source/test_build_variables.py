"""Which form an architecture variable wants, and what decides on CUDA code, in the shapes that setup.py files have."""

from pathlib import Path
from typing import Any

import pytest

from splatfix.facts.checkout import read_source
from splatfix.model import ArchVariable, CudaSwitches, Source
from tests.tables import data

START = "import os, sys\nimport torch\nfrom torch.utils.cpp_extension import CUDA_HOME, CppExtension, CUDAExtension\n"
TABLE = data(__file__)


def source(folder: Path, code: str) -> Source:
    (folder / "setup.py").write_text(START + code)
    return read_source(folder)


@pytest.mark.parametrize("row", TABLE["forms"])
def test_the_form_of_an_architecture_variable(tmp_path: Path, row: dict[str, Any]) -> None:
    (found,) = source(tmp_path, row["code"]).arch_variables
    assert found == ArchVariable(found.name, **{key: row[key] for key in row.keys() - {"code"}})


@pytest.mark.parametrize("row", TABLE["switches"])
def test_what_decides_on_cuda_code(tmp_path: Path, row: dict[str, Any]) -> None:
    found = source(tmp_path, row["code"]).switches
    assert found == CudaSwitches(**{key: row[key] for key in row.keys() - {"code"}})


def test_many_variables_and_conditions_end_soon(tmp_path: Path) -> None:
    lines = [f"v{n} = os.getenv('V{n}_CUDA_ARCH')\nos.environ['W{n}'] = v{n}" for n in range(300)]
    lines += ["if torch.cuda.is_available(): pass", *(f"elif v{n}: w = CUDAExtension" for n in range(300))]
    found = source(tmp_path, "\n".join(lines) + "\n")
    assert len(found.reads) == 300 and len(found.arch_variables) == 50
