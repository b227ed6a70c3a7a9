"""Runs gsplat's own published tests, unmodified, on the CPU with splatfix's drop-in as gsplat's compiled module.

``python -m tools.gsplat_tests CHECKOUT PYTHON`` (``make gsplat``) takes a checkout of gsplat at v1.5.3 and the interpreter of an
environment that has gsplat 1.5.3 with the drop-in. It puts into ``tests/records/gsplat.json`` how many passed, and by name each
that was refused, skipped or failed. Their inputs are gsplat's ``assets/test_garden.npz``: 138,766 points of a garden, three
cameras. They compare with ``gsplat.cuda._torch_impl``, whose rasterizer takes two functions of nerfacc; nerfacc has them for CUDA
alone, so the driver has them in PyTorch. What the tests ask of CUDA lands on the CPU, as in ``splatfix certify --repo``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import xml.etree.ElementTree as ElementTree  # nosec B405 - what pytest wrote in this run
from pathlib import Path
from typing import Any

from splatfix.certify.staging import stage_inside
from splatfix.core.files import make_folder, object_in
from splatfix.core.runner import Runner

RECORD = Path(__file__).resolve().parent.parent / "tests" / "records" / "gsplat.json"
TESTS = ("test_basic.py", "test_rasterization.py", "test_strategy.py", "test_2dgs.py")
"""Not those of f-theta cameras, of compression by another package, and of several GPUs."""
_DRIVER = '''# runs gsplat's tests: gsplat_tests.py RESULTS TEST...
import sys
from types import ModuleType

import pytest, torch


def render_weight_from_alpha(alphas, ray_indices, n_rays):
    """What nerfacc computes in CUDA alone, for gsplat's reference: weights and transmittances, samples of a ray in a row."""
    logs = torch.log1p(-alphas.double())
    before = torch.cumsum(logs, 0) - logs
    first = torch.searchsorted(ray_indices.contiguous(), ray_indices.contiguous())
    transmittances = torch.exp(before - before[first]).to(alphas.dtype)
    return alphas * transmittances, transmittances


def accumulate_along_rays(weights, values, ray_indices, n_rays):
    """[n_rays, channels] sums."""
    values = weights[:, None] if values is None else weights[:, None] * values
    return torch.zeros(n_rays, values.shape[-1], dtype=values.dtype).index_add(0, ray_indices, values)


nerfacc = ModuleType("nerfacc")
nerfacc.render_weight_from_alpha, nerfacc.accumulate_along_rays = render_weight_from_alpha, accumulate_along_rays
sys.modules["nerfacc"] = nerfacc
torch.manual_seed(0)  # their inputs are drawn before they seed, and a scale of exactly 0 has no precision
sys.exit(pytest.main(["-q", "--tb=short", "-p", "no:cacheprovider", f"--junitxml={sys.argv[1]}", *sys.argv[2:]]) > 1)
'''


def results_of(document: Path) -> dict[str, Any]:
    """What pytest wrote for other programs: the number that passed, and the others by name with the last line they said."""
    results: dict[str, Any] = {"passed": 0, "refused": {}, "skipped": {}, "failed": {}}
    for case in ElementTree.parse(document).iter("testcase"):  # nosec B314 - pytest's own, of this run
        child = next((item for item in case if item.tag in ("failure", "error", "skipped")), None)
        if child is None:
            results["passed"] += 1
            continue
        kind = "failed"
        if child.tag == "skipped":
            kind = "skipped"
        elif "NoKernels" in str(child.get("message")) or "NotImplementedError" in str(child.get("message")):
            kind = "refused"
        results[kind][str(case.get("name"))] = str(child.get("message")).splitlines()[0][:200]
    return results


def main() -> int:
    """Run them, and replace that part of the record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path)
    parser.add_argument("python", type=Path)
    parser.add_argument("--out", type=Path, default=Path("build") / "gsplat-tests")
    options = parser.parse_args()
    out, root = make_folder(options.out.resolve()), options.checkout.resolve()
    driver = out / "pytest_seeded.py"
    driver.write_text(_DRIVER, encoding="utf-8")
    results = out / "results.xml"
    tests = [str(root / "tests" / name) for name in TESTS]
    # as ``splatfix certify --repo`` runs a trainer
    inside, observed = make_folder(out / "inside"), make_folder(out / "observed")
    settings = {"out": str(observed), "checkout": str(root), "cpu": True, "extensions": ["gsplat"]}
    variables = stage_inside(inside, {**settings, "written": [str(out)]})
    variables["OMP_NUM_THREADS"] = "1"
    # no compiler is found by a program that looks for one
    variables["PATH"] = os.pathsep.join((str(inside / "bin"), str(options.python.parent)))
    variables["TORCHDYNAMO_DISABLE"] = "1"
    argv, log = [str(options.python), str(driver), str(results), *tests], out / "tests.log"
    done = Runner().run(argv, timeout=3 * 3600.0, env=variables, cwd=out, log=log)
    if not done.ok:
        sys.exit(f"{' '.join(argv)}: {done.why()}; see {log}")
    found = results_of(results)
    print(json.dumps(found, indent=1))
    record = object_in(RECORD) | {"date": datetime.date.today().isoformat(), "tests": found}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
