"""Stand-ins by which every step runs where no GPU is: a driver, nvidia-smi, torch on CUDA, sources with compiled extensions.

Only what a GPU would do is stood in for; splatfix, pip and the trainer are the real ones. Driver and extensions are those
of ``tests/driver`` and ``tests/standins``, real shared objects.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import driver
import standins

HERE = Path(__file__).parent
CARD = driver.Card("NVIDIA H200", "9.0", 143771, "0000:01:00.0", "2335", 0x200)
SCENARIO = driver.Scenario((CARD,), driver="580.159.03", cuda=13000)

# Folder of GPU_SOURCES -> the variant that stands in for it.
VARIANTS = {
    "inria-v1": "inria-v1",
    "inria-2024": "inria-2024-dr_aa",
    "mip-splatting": "mip",
    "taming-3dgs": "taming",
    "simple-knn": "simple-knn",
    "fused-ssim": "fused-ssim",
}


def prepare(work: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Put stand-ins in place of driver, GPU and sources; what the record says of the machine, and the sources."""
    os.environ["OMP_NUM_THREADS"] = "1"  # the tensors are tiny, and builds share the cores
    install_driver(work / "driver")
    return {"gpu": f"a stand-in for {CARD.name}"}, write_sources(work / "sources")


def write_sources(folder: Path) -> dict[str, str]:
    """Stand-ins for every source, as ``GPU_SOURCES`` would hold them; folders by name."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, variant in VARIANTS.items():
        write_source(folder / name, variant)
    package = folder / "gsplat" / "gsplat"
    (package / "cuda").mkdir(parents=True)
    (package / "__init__.py").write_text(_text("gsplat.py.txt"), encoding="utf-8")
    (package / "cuda" / "__init__.py").touch()
    (package / "cuda" / "_backend.py").write_text("_C = object()\n", encoding="utf-8")
    for name in ("projection.py", "binning.py", "scene.py", "blending.py", "rasterizer.py"):
        text = (HERE.parents[2] / "splatfix" / "kernels" / name).read_text("utf-8")
        (package / f"_{name}").write_text(text.replace("from splatfix.kernels.", "from ._"), encoding="utf-8")
    setup = 'from setuptools import setup\nsetup(name="gsplat", version="1.5.3", packages=["gsplat", "gsplat.cuda"])\n'
    (folder / "gsplat" / "setup.py").write_text(setup, encoding="utf-8")
    return {name: str(folder / name) for name in (*VARIANTS, "gsplat")}


def write_source(folder: Path, variant: str, sabotage: str = "") -> Path:
    """A source whose build copies the compiled stand-in."""
    standins.put(folder, variant, sabotage)
    (library,) = folder.rglob("*.so")
    described = next(folder.rglob("*.standin"))
    name = ".".join([*library.relative_to(folder).parts[:-1], library.name.partition(".")[0]])
    library.rename(folder / "stand_in.so")
    described.rename(folder / "stand_in.txt")
    module = standins.module_of(variant)
    # the library is compiled already, once for all; what is left of a build is real
    setup = _text("setup.py.txt").format(module=module, library=name)
    (folder / "setup.py").write_text(setup, encoding="utf-8")
    return folder


def stand_in_for_cuda(site: Path) -> str:
    """Put the stand-in for torch's CUDA into an environment; the line of a ``.pth`` that loads it."""
    shutil.copy(HERE / "cuda_on_cpu.py", site)
    return "import cuda_on_cpu"


def install_driver(folder: Path) -> None:
    """The driver and nvidia-smi of the stand-in GPU, and the variables of this process with which they are found."""
    driver.build(folder)
    (folder / "scenario").write_text(SCENARIO.text(), encoding="utf-8")
    about = {"name": CARD.name, "cc": CARD.cc, "memory": CARD.mebibytes << 20, "uuid": CARD.uuid}
    smi = _text("nvidia-smi.txt").format(card=CARD, driver=SCENARIO.driver)
    for name, text in (("nvidia-smi", smi), ("compute-sanitizer", _text("compute-sanitizer.txt"))):
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    for name in ("PATH", "LD_LIBRARY_PATH"):
        os.environ[name] = os.pathsep.join(filter(None, [str(folder), os.environ.get(name, "")]))
    os.environ["PATH"] += f"{os.pathsep}{Path(sys.executable).parent}"  # ninja is there
    os.environ["SPLATFIX_STANDINS"] = str(
        standins.cache_folder()
    )  # the steps' temporary folders are their own
    os.environ["SIMULATED_DRIVER"] = str(folder / "scenario")
    os.environ["SPLATFIX_REHEARSAL_GPU"] = json.dumps(about)


def _text(name: str) -> str:
    """What stands in for a program of others, or a part of their sources."""
    return (HERE / name).read_text(encoding="utf-8")
