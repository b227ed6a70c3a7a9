"""Names for the linker: ``-lcuda`` and ``-lnvrtc`` ask for files that only the development parts of CUDA hold.

Without a driver there is no libcuda.so, and a toolkit made of wheels or of parts has libnvrtc.so.13 but no libnvrtc.so.
An extension needs of either only its name while it is linked: an undefined symbol is no error in a shared library.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.runner import Runner

DRIVER_SONAME = "libcuda.so.1"
"""What every driver since CUDA 3 calls its library; an extension linked against the stub asks for this one."""


def link_names(
    libraries: Iterable[str], cc: str, cuda_home: Path, site: Path, folder: Path, runner: Runner
) -> None:
    """Fill ``folder``, for LIBRARY_PATH, with a ``lib*.so`` for each library of CUDA that the linker of ``cc`` would not find.

    ``libraries`` are named without ``lib`` and ``.so``; in ``site``, which is site-packages, lie NVIDIA's wheels.
    """
    if not sys.platform.startswith("linux"):
        return
    searched = cuda_home / "lib64"  # by torch's builder
    if not searched.is_dir():
        searched = cuda_home / "lib"
    for name in libraries:
        files = (f"lib{name}.so", f"lib{name}.a")
        if any((searched / file).exists() for file in files):
            continue
        # gcc and clang answer with the whole path of a file that their linker finds, else with the bare name
        asked = ((file, runner.run([cc, f"-print-file-name={file}"], timeout=30)) for file in files)
        if any(done.ok and done.stdout.strip() not in ("", file) for file, done in asked):
            continue
        # under another name or in another folder: stubs first, they are made for linking
        places = [(cuda_home, f"{lib}/stubs/lib{name}.so") for lib in ("lib64", "lib", "targets/*/lib")]
        places += [(cuda_home, f"{lib}/lib{name}.so*") for lib in ("lib*", "targets/*/lib")]
        places.append((site, f"nvidia/*/lib/lib{name}.so*"))
        copies = [path for root, pattern in places for path in sorted(root.glob(pattern))]
        if copies:
            folder.mkdir(exist_ok=True)
            (folder / files[0]).symlink_to(copies[0])
        elif name == "cuda":
            # an empty library that calls itself as the driver's does
            folder.mkdir(exist_ok=True)
            stub, source = folder / files[0], folder / "cuda.c"
            source.write_text("", encoding="utf-8")
            done = runner.run([cc, "-shared", f"-Wl,-soname,{DRIVER_SONAME}", "-o", stub, source], timeout=60)
            if not done.ok:
                raise SplatfixError.of("install.no-libcuda-to-link", cc=cc, reason=done.why())
