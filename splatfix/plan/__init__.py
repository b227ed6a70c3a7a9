"""From facts and a goal to a plan: an ordered list of typed actions, with the reason for each and for each road not taken.

``make_plan`` plans one installation of given sources; ``find_ways`` ranks every way out for the whole machine.
"""

from splatfix.plan.plan import (
    Action,
    BuildWheel,
    CheckImport,
    EditSource,
    InstallWheel,
    MakeSwap,
    Plan,
    ProvideToolkit,
    Reason,
    Request,
    VerifyWheel,
)
from splatfix.plan.planner import make_plan
from splatfix.plan.rank import aim_at, find_ways, ways_out_of
from splatfix.plan.ways import Advice, Lane, Road, WayOut, Ways

__all__ = [
    "Action",
    "Advice",
    "BuildWheel",
    "CheckImport",
    "EditSource",
    "InstallWheel",
    "Lane",
    "MakeSwap",
    "Plan",
    "ProvideToolkit",
    "Reason",
    "Request",
    "Road",
    "VerifyWheel",
    "WayOut",
    "Ways",
    "aim_at",
    "find_ways",
    "make_plan",
    "ways_out_of",
]
