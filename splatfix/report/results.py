"""The table of results: one row for each scene, the same in Markdown and HTML; what was not measured is –."""

from collections.abc import Sequence

from smoke_trainer.record import HostPeaks, TrainingRecord
from splatfix.certify.model import SceneRun
from splatfix.report.marks import ABSENT
from splatfix.report.wording import RESULTS_LEGEND, SHORT_RUN

SPREAD = {"PSNR": 0.045, "SSIM": 0.021}
"""How far runs of the quick suite with one seed lay apart, relative: tests/records/seed_spread.json."""


def row(run: SceneRun) -> tuple[str, ...]:
    """A scene's results, a cell for each of RESULTS: ``2,600 → 6,045`` is from the start to the end."""
    record = run.record
    heldout = record.heldout
    return (
        number(record.iterations, "{:,.0f}"),
        resolution(record) or ABSENT,
        number(len(record.split.train) or None, "{}"),
        _from_to(record.gaussians.initial, record.gaussians.final, "{:,.0f}"),
        _file_size(record.ply.bytes),
        f"{run.seconds:.0f} s",
        number(record.iterations_per_second, "{:.2f}"),
        _from_to(record.train_loss.first, record.train_loss.last, "{:.4f}"),
        number(record.training_views.psnr, "{:.2f} dB"),
        number(heldout.psnr, "{:.2f} dB"),
        number(heldout.ssim, "{:.4f}"),
        number(heldout.lpips, "{:.4f}"),
        _peaks(record),
    )


def legend(runs: Sequence[SceneRun]) -> str:
    """What the columns mean, for these scenes."""
    records = [run.record for run in runs]
    memory = "resident, Python and torch included"
    if any(record.memory.cuda for record in records):
        memory = "allocated on the GPU"
    text = RESULTS_LEGEND.format(memory=memory)
    lengths = [record.iterations for record in records if record.iterations is not None]
    # Kerbl et al. 2023 publish figures at 7,000 and 30,000
    if lengths and min(lengths) < 7_000:
        spread = " and ".join(f"{share:.1%} in {name}" for name, share in SPREAD.items())
        text = f"{SHORT_RUN.format(spread=spread)} {text}"
    lpips = {record.heldout.lpips_note for record in records} - {""}
    if lpips:
        text += f" LPIPS: {', '.join(sorted(lpips))}."
    return text


def resolution(record: TrainingRecord) -> str:
    """``1600x1064``; "" where it is not known."""
    if record.resolution is None:
        return ""
    return "x".join(map(str, record.resolution))


def number(value: object, form: str, absent: str = ABSENT) -> str:
    """A value in this form; – where there is none."""
    return absent if value is None else form.format(value)


def _from_to(first: float | None, last: float | None, form: str) -> str:
    if first is None and last is None:
        return ABSENT
    return f"{number(first, form)} → {number(last, form)}"


def _file_size(size: int | None) -> str:
    if size is None:
        return ABSENT
    if size < 1e5:
        return f"{size / 1e3:.0f} kB"
    return f"{size / 1e6:.2f} MB"


def _peaks(record: TrainingRecord) -> str:
    # On a GPU what tensors hold decides whether a scene fits; on a CPU it is all that is resident.
    cuda, host = record.memory.cuda, record.memory.host or HostPeaks()
    train, evaluation = host.train, host.eval
    if cuda:
        train, evaluation = cuda.train.allocated, cuda.eval.allocated
    if train is None and evaluation is None:
        return ABSENT
    sizes = (size and size / 2**20 for size in (train, evaluation))
    return " / ".join(number(size, "{:,.0f}") for size in sizes) + " MiB"
