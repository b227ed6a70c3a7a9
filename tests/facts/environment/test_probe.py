"""The target environment is asked through a child; whatever it does there is a fact or an error, never a crash here."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from splatfix import facts
from splatfix.facts import System
from splatfix.facts.environment import probe as environment
from splatfix.model import EnvironmentFacts
from tests.files import put
from tests.tables import data

from .native_files import TAG

TABLE = data(__file__)
Script = Callable[[Path, str], Path]


def probe(python: str | Path) -> EnvironmentFacts:
    return environment.probe(System(), str(python))


def other_pythons() -> list[str]:
    """Every other CPython from 3.7 up that this machine has on PATH or beside its own installation."""
    found = {shutil.which(f"python3.{minor}") for minor in range(7, 16)}
    found |= {str(path) for path in Path(sys.base_prefix).parent.glob("3.*/bin/python3") if path.is_file()}
    return sorted(path for path in found if path)


@pytest.mark.parametrize("python", [sys.executable, *other_pythons()])
def test_every_python_describes_itself(python: str) -> None:
    script = (
        "import platform, sysconfig as s; print(platform.python_version(), s.get_config_var('EXT_SUFFIX'))"
    )
    said = subprocess.run([python, "-c", script], capture_output=True, text=True, check=False)
    if said.returncode != 0 or tuple(map(int, re.findall(r"\d+", said.stdout)[:2])) < (3, 7):
        pytest.skip(f"{python} is no working Python 3.7+")
    found = probe(python).interpreter.value
    version, suffix = said.stdout.split()
    assert found.version == version and suffix.startswith(f".{found.abi_tag}.")


def test_this_environment_has_torch_read_as_text() -> None:
    torch = pytest.importorskip("torch")
    found = probe(sys.executable)
    assert found.torch.value.version == torch.__version__
    assert found.torch.value.cuda == torch.version.cuda
    assert found.torch.value.cxx11_abi == torch.compiled_with_cxx11_abi()
    assert Path(found.torch.value.folder) == Path(torch.__file__).parent
    assert environment.torch_as_installed(System(), found)


def test_distributions_are_those_importlib_knows() -> None:
    """Asked in a fresh process: in this one other packages may have added folders of their own to the path."""
    script = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    ours = {canonicalize_name(item.name): item.version for item in probe(sys.executable).distributions.value}
    wanted = {canonicalize_name(name): version for name, version in json.loads(said.stdout).items()}
    assert wanted and {name: ours.get(name) for name in wanted} == wanted


def test_an_empty_venv(empty_venv: Path) -> None:
    found, folder = probe(empty_venv), str(empty_venv.parent.parent)
    interpreter = found.interpreter.value
    assert interpreter.kind == "venv"
    assert all(folder in os.path.realpath(site) for site in interpreter.site_packages), "none of ours"
    assert (found.torch_installed.value, found.torch.value, found.extensions.value) == (False, None, ())


@pytest.mark.parametrize(("file", "text", "kind"), TABLE["kinds-of-environments"])
def test_kinds_of_environments(empty_venv: Path, file: str, text: str, kind: str) -> None:
    path = empty_venv.parent.parent / file
    path.parent.mkdir(exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + text)
    found = probe(empty_venv)
    assert found.interpreter.value.kind == kind


@pytest.mark.parametrize(("body", "part"), TABLE["an-interpreter-that-does-not-answer"])
def test_a_silent_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: Script, body: str, part: str
) -> None:
    monkeypatch.setattr(environment, "_TIMEOUT", 0.7)
    found = probe(script(tmp_path / "python", f"#!/bin/sh\n{body}\n"))
    assert found.interpreter.value is None and part in found.interpreter.error
    assert found.extensions.value is None


def test_chatter_before_the_answer_does_not_hide_it(empty_venv: Path, site_packages: Path) -> None:
    (site_packages / "sitecustomize.py").write_text("print('welcome'); print('{}')")
    found = probe(empty_venv)
    assert found.interpreter.value is not None


def fake_torch(
    site: Path, body: str, version: str = "__version__ = '2.9.0+cu128'\ncuda = '12.8'\nhip = None\n"
) -> None:
    put(site / "torch", {"__init__.py": body, "version.py": version})


@pytest.mark.parametrize(("body", "outcome", "detail"), TABLE["a-torch-that-breaks-at-import-is-seen"])
def test_a_torch_that_breaks_at_import_is_seen(
    empty_venv: Path, site_packages: Path, body: str, outcome: str, detail: str
) -> None:
    """Its files are not as pip installed them, so it is imported in a child to see what happens."""
    fake_torch(site_packages, body)
    found = facts.gather(str(empty_venv)).environment
    assert found.torch.value.version == "2.9.0+cu128" and "libtorch_cuda" in found.torch.value.code_error
    (seen,) = found.imports
    assert (seen.module, seen.ok, seen.outcome) == ("torch", False, outcome) and detail in seen.detail


def test_a_torch_whose_version_file_is_damaged(empty_venv: Path, site_packages: Path) -> None:
    fake_torch(site_packages, "", version="__version__ = (")
    found = probe(empty_venv)
    assert (found.torch_installed.value, found.torch.value) == (True, None) and "damaged" in found.torch.error


def test_a_module_that_hangs(empty_venv: Path, site_packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_IMPORT_TIMEOUT", 0.7)
    put(site_packages, {"sleepy.py": "import time; time.sleep(60)"})
    seen = environment.try_import(System(), str(empty_venv), "sleepy")
    assert (seen.ok, seen.outcome) == (False, "timeout")


def test_a_damaged_module_is_a_fact_with_its_error(empty_venv: Path, site_packages: Path) -> None:
    put(site_packages, {f"pkg/_C.{TAG}.so": b"\x7fELF" + b"\x02" * 40})
    (extension,) = probe(empty_venv).extensions.value
    assert extension.error and extension.module == "pkg._C"


def test_what_torchs_builder_imports(empty_venv: Path, site_packages: Path) -> None:
    fake_torch(site_packages, "")
    pkg_resources = "from pkg_resources import packaging"
    for text, names in (
        (
            f"def f():\n    {pkg_resources}  # type: ignore\n",
            ("pkg_resources", "pkg_resources.packaging", "setuptools"),
        ),
        (f"# {pkg_resources}\n", ("setuptools",)),
    ):
        put(site_packages, {"torch/utils/cpp_extension.py": f"import setuptools\n{text}"})
        assert probe(empty_venv).torch.value.builder_imports == names
