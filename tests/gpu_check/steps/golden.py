"""Arrays of the installed CUDA rasterizer, kept for machines without a GPU; and the tests that need one."""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree

from ..context import ROOT, Context
from ..notes import Notes

FILE = "rasterizer_cuda.npz"
LIMITS = {"radii": 0.0, "color": 1e-2, "color_off": 1e-3}
GRADIENT = 1e-2

_INI = "[pytest]\npythonpath = .\naddopts = -p no:cacheprovider\nmarkers =\n" + "".join(
    f"    {name}: {name}\n" for name in ("gpu", "native", "docker", "slow")
)


def arrays(context: Context, notes: Notes) -> None:
    """Make the arrays, then hold our own rasterizer on the CPU against them, as the tests will."""
    path = context.folder("golden") / FILE
    table = context.answer("stack", "golden", path, timeout=60)
    notes.numbers["differences"] = table
    for scene, row in table.items():
        off = [
            f"{name} {value:.1e}" for name, value in row.items() if not value <= LIMITS.get(name, GRADIENT)
        ]
        worst = max(row, key=lambda name: row[name])
        notes.expect(
            not off,
            f"the scene {scene} by the extension and by ours on the CPU",
            ", ".join(off) or f"at most {row[worst]:.1e} ({worst})",
        )
    shutil.copy(path, Path(context.out) / FILE)


def tests(context: Context, notes: Notes) -> None:
    """The kernel tests marked ``gpu``, in the environment with the stack; one that was skipped is not one that passed."""
    folder = context.folder("tests")
    (folder / "pytest.ini").write_text(_INI, encoding="utf-8")
    argv = [context.python("stack"), "-m", "pytest", "-q", "-m", "gpu", "-c", folder / "pytest.ini"]
    argv += ["--rootdir", ROOT, f"--junit-xml={folder / 'junit.xml'}"]
    argv += sorted((ROOT / "tests" / "kernels").glob("test_*_cuda.py"))
    done = context.run(argv, 120, cwd=ROOT, env=context.child_variables())
    notes.numbers["output"] = done.stdout.splitlines()[-12:]
    notes.expect(done.ok, "pytest ends well", done.why() or "exit code 0")
    if (folder / "junit.xml").is_file():
        for case in ElementTree.parse(folder / "junit.xml").iter("testcase"):
            # a skipped test is no shown one: whatever the case holds but properties says that it did not pass
            troubles = [child for child in case if child.tag != "properties"]
            texts = [f"{child.tag}: {child.get('message', '')}"[:300] for child in troubles]
            notes.expect(not texts, str(case.get("name")), "; ".join(texts) or "passed")
