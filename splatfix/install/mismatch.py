"""``--force-cuda-mismatch``: silences torch's check of the toolkit's version, in the processes of one build and nowhere else."""

from __future__ import annotations

from pathlib import Path

# Python runs sitecustomize of the first folder on its path at every start, so also in the children that pip starts.
# Torch's own files stay as they are: the function is replaced in memory, after the module was loaded.
_SITECUSTOMIZE = """
import importlib.util
import sys


class _SilencedCheck:
    def find_spec(self, name, path=None, target=None):
        if name != "torch.utils.cpp_extension":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            module._check_cuda_version = _say

        spec.loader.exec_module = exec_module
        return spec


def _say(*args, **kwargs):
    print("splatfix: --force-cuda-mismatch: torch's check of the CUDA version is silenced", flush=True)


sys.meta_path.insert(0, _SilencedCheck())
"""


def silenced_check(folder: Path) -> Path:
    """Make ``folder``; put first on PYTHONPATH it silences the check in every Python that starts."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_SITECUSTOMIZE, encoding="utf-8")
    return folder
