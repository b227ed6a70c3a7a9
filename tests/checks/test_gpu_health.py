"""GPUs that answer and are hurt all the same, and disks that are full: the facts, and what is said of them."""

from types import SimpleNamespace
from typing import Any

from splatfix.core.runner import Completed
from splatfix.facts.machine import health
from splatfix.model import Disk, Fact, Xid
from tests.tables import data

LOG, DF = data(__file__)["texts"].values()


def asked(probe: Any, stdout: str, stderr: str = "", code: int | None = 0, there: bool = True) -> Fact[Any]:
    """By a Linux machine on which every program answers the same."""
    done = Completed(("x",), code, stdout, stderr, 0.0, "gone")
    fact: Fact[Any] = probe(SimpleNamespace(name="linux", exists=lambda _: there, run=lambda *_: done))
    return fact


def test_what_the_kernel_and_df_say() -> None:
    assert asked(health.xids, LOG).value == (Xid("0000:01:00", 31, 1), Xid("0000:10:1c", 79, 2))
    assert asked(health.xids, "", "", 1).value == (), "grep found none"
    for unread in (
        asked(health.xids, "", "dmesg: read kernel buffer failed: Operation not permitted\n", 1),
        asked(health.xids, "", "", None),
        asked(health.xids, LOG, there=False),
    ):
        assert unread.value is None and unread.error
    found = (Disk("/", 264232880 << 10, 1500000 << 10), Disk("/tmp", 65536 << 10, 0))
    assert asked(health.disks, DF).value == found
    assert asked(health.disks, "", "df: no such file", 1).value is None
