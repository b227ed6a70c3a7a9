"""Lets ccache or sccache, where the plan uses one, answer for the C++ compiler too, and across scratch folders."""

from __future__ import annotations

import shlex
from pathlib import Path

from splatfix.plan.plan import BuildWheel


def compiler_cache(action: BuildWheel, scratch: Path) -> dict[str, str]:
    """Variables to add for a build in ``scratch``; none when the plan names no compiler cache.

    Torch takes nvcc from PYTORCH_NVCC as a command line, but of CXX it asks the version as of one program's name: with a
    blank in it the version is unknown, and its check refuses the compiler. So a script of the compiler's own name stands in.
    """
    program = action.variables.get("PYTORCH_NVCC", "").partition(" ")[0]
    cxx = action.variables.get("CXX", "")
    if not program or not cxx:
        return {}
    folder = scratch / "compiler-cache"
    folder.mkdir()
    script = folder / Path(cxx).name
    script.write_text(f'#!/bin/sh\nexec {program} {shlex.quote(cxx)} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return {"CXX": str(script), "CCACHE_BASEDIR": str(scratch), "CCACHE_NOHASHDIR": "1"}
