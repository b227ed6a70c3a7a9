"""Runs inside the target environment and says what that Python is. Stdlib only, any Python from 3.7 up."""

import json
import os
import platform
import sys
import sysconfig


def describe() -> "dict[str, object]":
    """The interpreter's own words about itself, as JSON-able data."""
    own_folder = os.path.dirname(os.path.abspath(__file__))
    paths = [p for p in sys.path if p and os.path.isdir(p) and os.path.abspath(p) != own_folder]
    folders, names = sysconfig.get_paths(), ("site-packages", "dist-packages")
    sites = [folders["purelib"], folders["platlib"]]
    sites += [p for p in paths if os.path.basename(p.rstrip("/\\")) in names]
    # where torch's cpp_extension looks for Python.h
    include = sysconfig.get_path("include", "nt" if os.name == "nt" else "posix_prefix")
    return {
        "executable": sys.executable,
        "version": sys.version.split()[0],
        "implementation": platform.python_implementation(),
        "ext_suffix": sysconfig.get_config_var("EXT_SUFFIX") or "",
        "platform": sysconfig.get_platform(),
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),
        "externally_managed": sys.prefix == sys.base_prefix
        and os.path.exists(os.path.join(folders["stdlib"], "EXTERNALLY-MANAGED")),
        "site_packages": [p for p in dict.fromkeys(sites) if os.path.isdir(p)],
        "path": paths,
        "headers": os.path.isfile(os.path.join(include, "Python.h")),
        "abiflags": getattr(sys, "abiflags", ""),
    }


if __name__ == "__main__":
    print(json.dumps(describe()))
