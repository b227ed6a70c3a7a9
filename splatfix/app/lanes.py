"""``splatfix certify --container``: the container lanes, and certification inside them."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console

from splatfix.app.interrupts import on_interrupt
from splatfix.app.report import merge
from splatfix.app.result import Result
from splatfix.certify import report_lock
from splatfix.containers import certify_in_container as certify_in_lane
from splatfix.containers.certify import ContainerRequest as ContainerRequest  # built by the command line
from splatfix.core.errors import Exit, SplatfixError
from splatfix.knowledge.lanes import Lane, find_lane, load_lanes
from splatfix.report.certificate import LaneCertificateDocument
from splatfix.report.console import err, show_error, table
from splatfix.report.forms import ENVELOPE, writes

# A refused environment is a result; wrong usage and a missing engine say nothing of any environment.
_WORST_FIRST = (Exit.FAILURE, Exit.USAGE, Exit.UNDETERMINED)


class LanesDocument(Struct, frozen=True):
    """Every lane: what it builds with, whether it needs a GPU, and what it can prove without one."""

    lanes: tuple[Lane, ...]


def list_lanes() -> Result[LanesDocument]:
    """List every lane."""
    return Result("certify lanes", LanesDocument(tuple(load_lanes().values())))


@writes(LanesDocument, command="certify lanes")
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

    outcomes: dict[str, Result[Any] | SplatfixError] = {}
    with on_interrupt("Interrupted: nothing was certified."), report_lock(request.out):
        if not several:
            return certify(lanes[0])
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
        over, stopped = len(outcomes), SplatfixError.of("app.lane-interrupted")
        outcomes |= {lane.name: stopped for lane in lanes if lane.name not in outcomes}
        refused = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, SplatfixError)}
        result = merge([request.out / name for name in outcomes if name not in refused], request.out, refused)
        if over < len(lanes):
            ended = SplatfixError.of("app.lanes-interrupted", lanes=len(lanes), over=over)
            return replace(result, exit_code=Exit.INTERRUPTED, error=ended)
        codes = {int(outcome.exit_code) for outcome in outcomes.values()}
        worst: int = next((code for code in _WORST_FIRST if code in codes), Exit.OK)
        if result.error:
            worst = max(worst, result.exit_code)
        return replace(result, exit_code=worst)
