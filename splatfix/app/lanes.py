"""``splatfix lanes`` and ``splatfix certify --container``: the container lanes, and certification inside them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from splatfix.app.attest import open_key, sign_report
from splatfix.app.interrupts import on_interrupt
from splatfix.app.report import merge
from splatfix.app.result import Result
from splatfix.attest.keys import PrivateKey
from splatfix.attest.report import require_key_elsewhere
from splatfix.containers import LaneRequest, Running, find_lane, load_lanes
from splatfix.containers import certify_in_container as certify_in_lane
from splatfix.core.codec import to_json
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.words import few
from splatfix.report import certificate, console
from splatfix.report.console import escape, prose, show_error, table
from splatfix.report.documents import ENVELOPE
from splatfix.report.progress import lanes as lanes_progress


@dataclass(frozen=True)
class ContainerRequest:
    """What to certify inside which lanes; what is left out is the lane's own."""

    lanes: tuple[str, ...]
    out: Path = Path("splatfix-report")
    """With several lanes, each has its folder in it."""
    jobs: int = 1
    sign: Path | None = None
    """The private key to sign the reports with, on this machine."""
    suite: str | None = None
    targets: tuple[str, ...] = ()
    repo: Path | None = None
    extensions: tuple[str, ...] = ()
    docker_host: str | None = None
    base_image: str | None = None
    ca_certificates: Path | None = None
    keep: bool = False


def list_lanes() -> Result:
    """Every lane: what it builds with, whether it needs a GPU, and what it can prove without one."""
    lanes = load_lanes().values()
    rows = [
        (
            lane.name,
            lane.torch.removeprefix("torch=="),
            lane.gpu.value,
            ", ".join(lane.targets) or "-",
            lane.description,
        )
        for lane in lanes
    ]
    return Result(
        "lanes list",
        lambda: {"lanes": [to_json(lane) for lane in lanes]},
        lambda console: table(console, ("lane", "torch", "GPU", "builds for", "for"), rows),
    )


def show_lane(name: str) -> Result:
    """Everything that is known of one lane.

    Raises:
        SplatfixError: ``unknown-lane`` (exit code 2).
    """
    values: dict[str, Any] = to_json(find_lane(name))

    def text(console: Console) -> None:
        for key, value in values.items():
            said = few(list(map(str, value))) if isinstance(value, list) else str(value)
            if said and value:
                prose(console, f"{key:<14}", escape(said))

    return Result("lanes show", lambda: values, text)


def certify_in_container(asked: ContainerRequest) -> Result:
    """Build the lanes' images, certify inside them, and bring the reports back; several lanes end in one merged matrix.

    Raises:
        SplatfixError: of a single lane: no such lane or engine, an image that cannot be built, no report. Of several:
            no such lane, or a key that cannot be used; what became of each lane is told in the result.
    """
    key: PrivateKey | None = None
    running = Running()
    several = len(asked.lanes) > 1
    for name in asked.lanes:
        find_lane(name)
    if asked.sign is not None:
        require_key_elsewhere(asked.out, asked.sign)
        key = open_key(asked.sign)

    def certify(name: str, progress: Callable[[str], None]) -> Result:
        out = asked.out / name if several else asked.out
        request = LaneRequest(
            name,
            out.absolute(),
            asked.suite,
            asked.targets,
            asked.repo,
            asked.extensions,
            asked.docker_host,
            asked.base_image,
            asked.ca_certificates,
            asked.keep,
        )
        result = certify_in_lane(request, progress, running)
        if key is not None:
            sign_report(out, key)
        return _single(name, result.certificate, result.exit_code, out)

    with (
        on_interrupt("Interrupted: nothing was certified."),
        lanes_progress(console.err(), asked.lanes) as said,
    ):
        if not several:
            return certify(asked.lanes[0], lambda line: said(asked.lanes[0], line))
        ended = _all(
            asked.lanes, asked.jobs, lambda name: certify(name, lambda line: said(name, line)), running
        )
        return _merged(asked, ended)


def _single(lane: str, document: dict[str, Any], exit_code: int, out: Path) -> Result:
    content = {name: value for name, value in document.items() if name not in ENVELOPE}
    return Result(
        str(document.get("command", "certify")),
        lambda: content,
        lambda console: certificate.show_from_container(console, content, lane, out / "certificate.html"),
        exit_code,
    )


def _all(
    lanes: Sequence[str], jobs: int, certify: Callable[[str], Result], running: Running
) -> dict[str, Result | SplatfixError]:
    """What became of each lane, ``jobs`` at a time; with Ctrl-C, of those that had ended before, if there are any. What
    ends a lane without a certificate is shown at once.

    The threads do not outlive the process: an engine ends what they build.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    ended: dict[str, Result | SplatfixError] = {}

    def work() -> None:
        while True:
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                ended[name] = certify(name)
            except SplatfixError as error:
                ended[name] = error
                show_error(error, f"{name}: ")
            except KeyboardInterrupt:  # it was ended from the main thread
                return
            except Exception as error:  # noqa: BLE001  # one lane's bug shall not take the others' results
                ended[name] = crash = SplatfixError(
                    "crashed", f"Lane {name} crashed: {type(error).__name__}: {error}"
                )
                show_error(crash, f"{name}: ")

    for name in lanes:
        waiting.put(name)
    workers = [threading.Thread(target=work, daemon=True) for _ in range(min(jobs, len(lanes)))]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            while worker.is_alive():
                worker.join(0.2)  # so that Ctrl-C is heard
    except KeyboardInterrupt:
        running.end()
        if not ended:
            raise
    stopped = SplatfixError(
        "interrupted",
        "It was interrupted; what it left in its folder certifies nothing.",
        exit_code=Exit.INTERRUPTED,
    )
    return {name: ended.get(name, stopped) for name in lanes}


def _merged(asked: ContainerRequest, ended: dict[str, Result | SplatfixError]) -> Result:
    """The matrix of the certificates, with the lanes that gave none; the exit code of the worst."""
    out = asked.out
    good = [out / name for name, found in ended.items() if isinstance(found, Result)]
    bad = {name: found for name, found in ended.items() if isinstance(found, SplatfixError)}
    codes = {int(found.exit_code) for found in ended.values()}
    order = (Exit.INTERRUPTED, Exit.FAILURE, Exit.USAGE, Exit.UNDETERMINED)
    worst = next((code for code in order if code in codes), Exit.OK)
    result = merge(good, out, bad)
    if worst is Exit.INTERRUPTED:
        over = sum(int(found.exit_code) != Exit.INTERRUPTED for found in ended.values())
        what = f"Interrupted: of {len(ended)} lanes {over} had ended; the matrix has them all."
        return replace(
            result, exit_code=worst, error=SplatfixError("interrupted", what, exit_code=Exit.INTERRUPTED)
        )
    return replace(result, exit_code=max(worst, result.exit_code) if result.error else worst)
