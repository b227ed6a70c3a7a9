"""``splatfix certify --container``: the container lanes, and certification inside them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console

from splatfix.app.interrupts import on_interrupt
from splatfix.app.report import merge
from splatfix.app.result import Result
from splatfix.certify import report_lock
from splatfix.certify.request import ContainerRequest as ContainerRequest  # built by the command line
from splatfix.containers import certify_in_container as certify_in_lane
from splatfix.core.errors import Exit, SplatfixError
from splatfix.knowledge.lanes import Lane, find_lane, load_lanes
from splatfix.report.certificate import LaneCertificateDocument
from splatfix.report.console import err, show_error, table
from splatfix.report.forms import ENVELOPE, writes
from splatfix.report.merging import MergeDocument

# A refused environment is a result; wrong usage and a missing engine say nothing of any environment.
_WORST_FIRST = (Exit.FAILURE, Exit.USAGE, Exit.UNDETERMINED)


class LanesDocument(Struct, frozen=True):
    """Every lane: what it builds with, whether it needs a GPU, and what it can prove without one."""

    lanes: tuple[Lane, ...]


def list_lanes() -> Result[LanesDocument]:
    """List every lane."""
    return Result("certify lanes", LanesDocument(tuple(load_lanes().values())))


@writes(LanesDocument)
def show_lanes(console: Console, document: LanesDocument) -> None:
    """Print a line for each."""
    rows = []
    for lane in document.lanes:
        torch, targets = lane.torch.removeprefix("torch=="), ", ".join(lane.targets) or "-"
        rows.append((lane.name, torch, lane.gpu.value, targets, lane.description))
    table(console, ("lane", "torch", "GPU", "builds for", "for"), rows)


def certify_in_container(request: ContainerRequest) -> Result[Any]:
    """Build the lanes' images, certify inside them, and bring the reports back; several lanes end in one merged matrix.

    Raises:
        SplatfixError: of a single lane: no such lane or engine, an image that cannot be built, no report. Of several:
            no such lane; what became of each lane is told in the result.
    """
    lanes = [find_lane(name) for name in request.lanes]
    several = len(lanes) > 1

    def certify(lane: Lane) -> Result[LaneCertificateDocument]:
        out = request.out / lane.name if several else request.out

        def tell(line: str) -> None:
            # the output of a container build: its own colours and brackets are no markup of ours
            err().print(f"{lane.name}: {line}", style="dim", markup=False, soft_wrap=True)

        made, exit_code = certify_in_lane(request, lane, out.absolute(), tell)
        content = {name: value for name, value in made.items() if name not in ENVELOPE}
        document = LaneCertificateDocument(lane.name, str(out / "certificate.html"), content)
        return Result("certify", document, exit_code)

    with on_interrupt("Interrupted: nothing was certified."), report_lock(request.out):
        if several:
            return _merged(request.out, _all(lanes, certify))
        return certify(lanes[0])


def _all(
    lanes: Sequence[Lane], certify: Callable[[Lane], Result[Any]]
) -> dict[str, Result[Any] | SplatfixError]:
    """Return what became of each lane; with Ctrl-C, of those that had ended before, if there are any. What ends a lane without
    a certificate is shown at once."""
    outcomes: dict[str, Result[Any] | SplatfixError] = {}
    try:
        for lane in lanes:
            try:
                outcomes[lane.name] = certify(lane)
            except Exception as error:  # noqa: BLE001 - one lane's bug shall not take the others' results
                if not isinstance(error, SplatfixError):
                    error = SplatfixError("crashed", f"Lane {lane.name} crashed: {error!r}")
                outcomes[lane.name] = error
                show_error(error, whose=f"{lane.name}: ")
    except KeyboardInterrupt:
        if not outcomes:
            raise
    stopped = SplatfixError.of("app.lane-interrupted")
    return {lane.name: outcomes.get(lane.name, stopped) for lane in lanes}


def _merged(out: Path, outcomes: dict[str, Result[Any] | SplatfixError]) -> Result[MergeDocument]:
    """Merge the certificates, with the lanes that gave none; the exit code is that of the worst."""
    refused = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, SplatfixError)}
    result = merge([out / name for name in outcomes if name not in refused], out, refused)
    codes = [int(outcome.exit_code) for outcome in outcomes.values()]
    over = len(codes) - codes.count(Exit.INTERRUPTED)
    if over < len(codes):
        error = SplatfixError.of("app.lanes-interrupted", lanes=len(codes), over=over)
        return replace(result, exit_code=Exit.INTERRUPTED, error=error)
    worst: int = next((code for code in _WORST_FIRST if code in codes), Exit.OK)
    if result.error:
        worst = max(worst, result.exit_code)
    return replace(result, exit_code=worst)
