"""Runs independent jobs in parallel within a budget of compilers; the first failure stops the others."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Generic, TypeVar

from msgspec import Struct

from splatfix.core.errors import SplatfixError
from splatfix.core.threads import start

Result = TypeVar("Result")


class Piece(Struct, Generic[Result], frozen=True):
    """One piece of work."""

    cost: int
    """How many compilers it runs at once."""
    work: Callable[[threading.Event], Result]
    """Called in a thread of its own; it ends soon after the event is set."""
    begin: Callable[[], None]
    """Called in the caller's thread before the work starts."""
    end: Callable[[Result], None]
    """Called in the caller's thread when the work is done."""


def parallel(pieces: Sequence[Piece[Result]], budget: int) -> None:
    """Do all pieces, in order as far as ``budget`` allows; one that costs more than there is runs when nothing else does.

    One whose compiler the system killed for memory beside others is done once more, alone.

    Raises:
        Exception: the first error of a piece, when all others have been stopped and have ended.
    """
    waiting, lonely = list(range(len(pieces))), list[int]()
    running: dict[Future[Result], int] = {}
    had_company: set[int] = set()
    stop = threading.Event()

    def submit(index: int) -> None:
        future = Future[Result]()
        running[future] = index

        def work() -> None:
            try:
                future.set_result(pieces[index].work(stop))
            except BaseException as error:  # noqa: BLE001 - raised by who takes the result
                future.set_exception(error)

        # threads: they only wait for compilers, which are processes; where there are none, it is done now
        if not start(threading.Thread(target=work, name="build")):
            work()

    try:
        while waiting or lonely or running:
            free = budget - sum(pieces[index].cost for index in running.values())
            for index in tuple(waiting):
                if pieces[index].cost <= free or not running:
                    waiting.remove(index)
                    pieces[index].begin()
                    submit(index)
                    free -= pieces[index].cost
            if lonely and not running:
                index = lonely.pop(0)
                submit(index)
            if len(running) > 1:
                had_company.update(running.values())
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                index = running.pop(future)
                error = future.exception()
                killed = isinstance(error, SplatfixError) and error.details.get("cause") == "killed"
                if killed and index in had_company:
                    had_company.discard(index)
                    lonely.append(index)
                else:
                    pieces[index].end(future.result())
    except BaseException:
        stop.set()
        wait(running)
        raise
