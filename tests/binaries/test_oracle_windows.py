"""The reader on real Windows wheels, fetched at test time.

cuobjdump for Linux does not read PE files. The device code is therefore cut out of them by objcopy and put into the
like-named sections of an ELF object, which cuobjdump does read: an answer that owes nothing to our PE reader.
"""

import re
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import pytest

from splatfix.binaries import find_binaries, read_binary, read_needs, read_wheel

from . import oracle

pytestmark = [pytest.mark.native, pytest.mark.slow, pytest.mark.timeout(1800)]

# (distribution, at least so many of its libraries carry device code that could be compared)
WHEELS = [("bitsandbytes", 5), ("ctranslate2", 1), ("nvidia-nvjpeg-cu12", 1)]
SECTIONS = {".nv_fatb": ".nv_fatbin", "__nv_rel": "__nv_relfatbin"}


@pytest.fixture(scope="module", params=WHEELS, ids=lambda one: one[0])
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    name, carriers = request.param
    folder = tmp_path_factory.mktemp(name)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--platform=win_amd64", "--python-version=3.11", f"--dest={folder}", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if done.returncode:
        oracle.required(None, f"a package index to fetch {name} from ({done.stderr.strip()[-300:]})")
    return next(folder.glob("*.whl")), carriers


def transplanted(library: Path, folder: Path) -> Path:
    """An ELF object with the device code of a PE file."""
    objcopy = oracle.tool("objcopy")
    target = folder / f"{library.stem}.o"
    oracle.run(oracle.tool("gcc"), "-c", "-x", "c", "/dev/null", "-o", target)
    headers = oracle.run(oracle.tool("objdump"), "-h", library)
    for pe_name, elf_name in SECTIONS.items():
        if not re.search(rf"^\s*\d+ {re.escape(pe_name)}\s", headers, re.M):
            continue
        raw = folder / "section.bin"
        oracle.run(objcopy, "-I", "pei-x86-64", "-O", "binary", "-j", pe_name, library, raw)
        flags = f"--set-section-flags={elf_name}=alloc,readonly,data"
        oracle.run(objcopy, f"--add-section={elf_name}={raw}", flags, target)
    return target


def test_device_code_and_imports(wheel: tuple[Path, int], tmp_path: Path) -> None:
    path, carriers = wheel
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "unpacked")
    libraries = list(find_binaries(tmp_path / "unpacked"))
    carrying = 0
    for library in libraries:
        binary = read_binary(library)
        assert binary.format == "pe"
        mine = oracle.read([binary])
        try:
            assert mine == oracle.dumped(transplanted(library, tmp_path)), library.name
            carrying += bool(mine)
        except oracle.Refused as error:
            warnings.warn(f"{library.name} could not be compared: {error}", stacklevel=1)

        text = oracle.run(oracle.tool("objdump"), "-p", library)
        assert list(binary.needed) == re.findall(r"DLL Name: (.*)", text), library.name
        imports = text.partition("The Import Tables")[2].partition("The Export Tables")[0]
        # rows such as "  23d58  <none>  002a  cudaMalloc" (binutils up to 2.41: "  23d58   42  cudaMalloc")
        names = re.findall(r"^\s+[0-9a-f]+\s+(?:<none>\s+[0-9a-f]{4}|\d+)\s+(\S+)$", imports, re.M)
        assert set(read_needs(library).imported) == set(names), library.name
    assert carrying >= carriers

    # and the same through the wheel, without unpacking it ourselves
    inside = {one.path.rpartition("!")[2]: one for one in read_wheel(path)}
    assert set(inside) == {library.relative_to(tmp_path / "unpacked").as_posix() for library in libraries}
    for library in libraries:
        name = library.relative_to(tmp_path / "unpacked").as_posix()
        alone = read_binary(library)
        assert (inside[name].fatbins, inside[name].needed) == (alone.fatbins, alone.needed)
