"""Stand-ins by which every step runs where no GPU is: a driver, nvidia-smi, torch on CUDA, sources with compiled extensions.

Only what a GPU would do is stood in for; splatfix, pip and the trainer are the real ones. Driver and extensions are those
of ``tests/driver`` and ``tests/standins``, real shared objects.
"""

import json
import os
import shutil
from pathlib import Path

import driver
import standins

from splatfix.certify import inside

HERE = Path(__file__).parent
CARD = driver.Card("NVIDIA H200", "9.0", 143771, "0000:01:00.0", "2335", 0x200)
SCENARIO = driver.Scenario((CARD,), driver="580.159.03", cuda=13000)
VARIANTS = {"inria-2024": "inria-2024-dr_aa", "mip-splatting": "mip", "taming-3dgs": "taming"}
VARIANTS |= {name: name for name in ("inria-v1", "simple-knn", "fused-ssim")}
"""Folder of GPU_SOURCES -> the variant that stands in for it."""


def prepare(work: Path) -> tuple[dict[str, str], Path]:
    """Put stand-ins in the place of driver, nvidia-smi, tools and sources; returns machine and sources."""
    folder, sources = work / "driver", work / "sources"
    driver.build(folder)
    (folder / "scenario").write_text(SCENARIO.text(), encoding="utf-8")
    for name, text in {"nvidia-smi": "nvidia-smi", "compute-sanitizer": "tool", "ncu": "tool"}.items():
        shutil.copy(HERE / f"{text}.txt", folder / name)
        (folder / name).chmod(0o755)
    for name in ("PATH", "LD_LIBRARY_PATH"):
        os.environ[name] = os.pathsep.join(filter(None, [str(folder), os.environ.get(name, "")]))
    about = {"name": CARD.name, "cc": CARD.cc, "memory": CARD.mebibytes << 20, "uuid": CARD.uuid}
    about["driver"] = SCENARIO.driver
    os.environ |= {
        "OMP_NUM_THREADS": "1",  # the tensors are tiny, and builds share the cores
        "SPLATFIX_STANDINS": str(standins.cache_folder()),  # the steps' temporary folders are their own
        "SIMULATED_DRIVER": str(folder / "scenario"),
        "SPLATFIX_REHEARSAL_GPU": json.dumps(about),
    }
    for name, variant in VARIANTS.items():
        # what is left of a build is real: the compiled stand-in is copied
        folder = sources / name
        standins.put(folder, variant)
        (library,) = folder.rglob("*.so")
        module = ".".join([*library.relative_to(folder).parts[:-1], library.name.partition(".")[0]])
        next(folder.rglob("*.standin")).rename(folder / "stand_in.txt")
        library.rename(folder / "stand_in.so")
        setup = (HERE / "setup.py.txt").read_text("utf-8")
        setup = setup.format(module=standins.module_of(variant), library=module)
        (folder / "setup.py").write_text(setup, encoding="utf-8")
    return {"gpu": f"a stand-in for {CARD.name}", "capability": CARD.cc}, sources


def stand_in_for_cuda(site: Path) -> str:
    """Put the stand-in for torch's CUDA into an environment; returns the line of a ``.pth`` that loads it."""
    shutil.copy(HERE / "cuda_on_cpu.py", site)
    shutil.copy(Path(inside.__file__).with_name("cuda_on_cpu.py"), site / "landing.py")
    return "import cuda_on_cpu"
