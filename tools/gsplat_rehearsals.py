"""Rehearses gsplat's and nerfstudio's own trainers on the CPU, unmodified, with splatfix's drop-in as gsplat's compiled module.

``python -m tools.gsplat_rehearsals SOURCES ENVIRONMENTS`` (``make gsplat``) writes ``tests/records/gsplat.json``. SOURCES has
the checkout ``gsplat`` at v1.5.3; ENVIRONMENTS the venvs ``trainer`` (gsplat 1.5.3 and what its examples ask for) and
``nerfstudio`` (nerfstudio 1.1.5). Both get the drop-in by ``splatfix install``.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from splatfix.core.files import make_folder
from splatfix.core.lenient import object_in
from tools.gsplat_trainers import (
    Schedule,
    arguments,
    evaluate_splatfacto,
    observed_run,
    simple_trainer_options,
    simple_trainer_stats,
    train_splatfacto,
)

RECORD = Path(__file__).resolve().parent.parent / "tests" / "records" / "gsplat.json"
SCENE, DIVISOR = "fruit", 2
SCHEDULE = Schedule(steps=600, start=100, every=50, stop=450, degree_every=150)


def row_of(name: str, argv: list[str], observed: dict[str, Any], began: float) -> dict[str, Any]:
    """What a training showed, for the record."""
    losses, tenth = observed["losses"], max(len(observed["losses"]) // 10, 1)
    # of a trainer that names no parameter groups the observer counts none; the shapes of its first are those of positions
    shapes = next(iter(observed["groups"].values()))["shape"]
    counts = [count for _, count in observed["counts"]] or [shape[0] for shape in shapes]
    return {
        "trainer": name,
        "arguments": argv,
        "steps": observed["backward"],
        "loss": [sum(losses[:tenth]) / tenth, sum(losses[-tenth:]) / tenth],
        "gaussians": [counts[0], counts[-1]],
        "groups": {
            key: [item["steps"], item["zero_steps"], item["non_finite_steps"]]
            for key, item in observed["groups"].items()
        },
        "weights": observed["weights"],
        "seconds": round(time.monotonic() - began, 1),
    }


def simple_trainer(
    kind: str, sources: Path, python: Path, scene: Path, out: Path, threads: int
) -> dict[str, Any]:
    """gsplat's ``examples/simple_trainer.py``: train, then evaluate again from the checkpoint that it left."""
    began, examples = time.monotonic(), sources / "gsplat" / "examples"
    script, folder, again = str(examples / "simple_trainer.py"), out / kind, out / f"{kind}-again"
    results = folder / "results"
    options = simple_trainer_options(kind, scene, DIVISOR, results, SCHEDULE)
    observed = observed_run(python, [script, *options], examples, make_folder(folder), threads)
    stats = simple_trainer_stats(results, SCHEDULE)
    (checkpoint,) = (results / "ckpts").glob("ckpt_*.pt")
    row = row_of(f"simple_trainer {kind}", options, observed, began)
    options = simple_trainer_options(kind, scene, DIVISOR, again / "results", SCHEDULE)
    observed_run(python, [script, *options, "--ckpt", str(checkpoint)], examples, make_folder(again), threads)
    reloaded = simple_trainer_stats(again / "results", SCHEDULE)
    return {
        **row,
        "psnr": stats["psnr"],
        "ssim": stats["ssim"],
        "reloaded": {"psnr": reloaded["psnr"], "gaussians": reloaded["num_GS"]},
    }


def splatfacto(python: Path, scene: Path, out: Path, threads: int) -> dict[str, Any]:
    """nerfstudio's splatfacto by its own command lines: ``ns-train``, then ``ns-eval`` from the checkpoint."""
    began, folder = time.monotonic(), make_folder(out / "splatfacto")
    options, observed = train_splatfacto(python, scene, DIVISOR, folder, SCHEDULE, threads=threads)
    row = row_of("splatfacto", options, observed, began)
    results = evaluate_splatfacto(python, folder, out / "splatfacto-again", threads)
    # its optimizers name no parameter groups, so the observer has only the last number
    points = int.from_bytes((scene / "sparse" / "0" / "points3D.bin").read_bytes()[:8], "little")
    row["gaussians"][0] = points
    return {**row, "psnr": results["psnr"], "ssim": results["ssim"]}


def problems(row: dict[str, Any]) -> list[str]:
    """What a training did not show; [] where it showed all: the loss fell, it densified, every gradient was finite, and its
    checkpoint draws what it drew. How its held-out PSNR compares with our trainer's: ``tools.gsplat_quality``."""
    failures = []
    if row["steps"] != SCHEDULE.steps:
        failures.append(f"{row['steps']} steps, not {SCHEDULE.steps}")
    first, last = row["loss"]
    if last > 0.6 * first:
        failures.append(f"the loss went from {first:.3f} to {last:.3f} only")
    initial, final = row["gaussians"]
    if final <= initial:
        failures.append(f"nothing densified: {initial} Gaussians at first and {final} at last")
    if any(not_finite for _, _, not_finite in row["groups"].values()):
        failures.append("gradients were not finite")
    # what ns-eval measures is the reloaded checkpoint already
    reloaded = row.get("reloaded", row)["psnr"]
    if abs(reloaded - row["psnr"]) > 0.1:
        failures.append(f"the reloaded checkpoint has {reloaded:.2f} dB, the training {row['psnr']:.2f}")
    return failures


def main() -> int:
    """Run what is asked for, and replace its rows of the record."""
    parser = arguments(__doc__, "gsplat")
    parser.add_argument(
        "--scene", type=Path, required=True, help="a mended copy: splatfix scenes fix SAMPLE --out SCENE"
    )
    parser.add_argument("--only", choices=("default", "mcmc", "splatfacto"))
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    out, scene = options.out.resolve(), options.scene.resolve()
    trainer, nerfstudio = (
        options.environments / name / "bin" / "python" for name in ("trainer", "nerfstudio")
    )
    rows = []
    for kind in ("default", "mcmc", "splatfacto"):
        if options.only not in (None, kind):
            continue
        if kind == "splatfacto":
            rows.append(splatfacto(nerfstudio, scene, out, options.threads))
        else:
            rows.append(simple_trainer(kind, options.sources.resolve(), trainer, scene, out, options.threads))
        write(rows[-1], (scene, out, options.sources.resolve()))
        print(json.dumps(rows[-1], indent=1))
    failures = [f"{row['trainer']}: {text}" for row in rows for text in problems(row)]
    print("\n".join(failures), file=sys.stderr)
    return 1 if failures else 0


def write(row: dict[str, Any], folders: tuple[Path, ...]) -> None:
    """Put a row into the record, with no folder of this machine in it."""
    record = object_in(RECORD) if RECORD.exists() else {}
    text = json.dumps(row)
    for name, folder in zip(("SCENE", "OUT", "SOURCES"), folders, strict=True):
        text = text.replace(str(folder), name)
    text = re.sub(r'"[^"]*/(ns-\w+)"', r'"\1"', text)
    rows = [item for item in record.get("rows", ()) if item["trainer"] != row["trainer"]]
    rows = sorted([*rows, json.loads(text)], key=lambda item: str(item["trainer"]))
    update_record({"rows": rows, "scene": f"{SCENE}, size divided by {DIVISOR}"})


def update_record(values: dict[str, Any]) -> None:
    """Replace these of the record."""
    record = object_in(RECORD) if RECORD.exists() else {}
    record |= {"about": "made by make gsplat", "date": datetime.date.today().isoformat(), **values}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
