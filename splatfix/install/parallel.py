"""Runs independent jobs in parallel within a budget of compilers; the first failure stops the others."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TypeVar

from splatfix.core.errors import SplatfixError
from splatfix.core.threads import start

Job = TypeVar("Job")
Result = TypeVar("Result")


def parallel(
    jobs: Sequence[Job],
    budget: int,
    cost: Callable[[Job], int],
    begin: Callable[[Job], None],
    work: Callable[[Job, threading.Event], Result],
    end: Callable[[Job, Result], None],
) -> None:
    """Do all jobs, in order as far as ``budget`` allows; one that costs more than there is runs when nothing else does.

    One whose compiler the system killed for memory beside others is done once more, alone. The first error of a job is raised
    when all others have been stopped and have ended.

    Args:
        cost: how many compilers a job runs at once.
        begin, end: called in the caller's thread before a job's work starts, and when it is done.
        work: called in a thread of its own; it ends soon after the event is set.
    """
    waiting, lonely = list(range(len(jobs))), list[int]()
    running: dict[Future[Result], int] = {}
    had_company: set[int] = set()
    stop = threading.Event()

    def submit(index: int) -> None:
        future = Future[Result]()
        running[future] = index

        def run() -> None:
            try:
                future.set_result(work(jobs[index], stop))
            except BaseException as error:  # noqa: BLE001 - raised by who takes the result
                future.set_exception(error)

        # threads: they only wait for compilers, which are processes; where there are none, it is done now
        if not start(threading.Thread(target=run, name="build")):
            run()

    try:
        while waiting or lonely or running:
            free = budget - sum(cost(jobs[index]) for index in running.values())
            for index in tuple(waiting):
                if cost(jobs[index]) <= free or not running:
                    waiting.remove(index)
                    begin(jobs[index])
                    submit(index)
                    free -= cost(jobs[index])
            if lonely and not running:
                submit(lonely.pop(0))
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
                    end(jobs[index], future.result())
    except BaseException:
        stop.set()
        wait(running)
        raise
