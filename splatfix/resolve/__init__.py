"""From facts and a goal to a plan: an ordered list of typed actions, with the reason for each and for each road not taken."""

from splatfix.resolve.plan import (
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
    RoadNotTaken,
    VerifyWheel,
)
from splatfix.resolve.planner import make_plan

__all__ = [
    "Action",
    "BuildWheel",
    "CheckImport",
    "EditSource",
    "InstallWheel",
    "MakeSwap",
    "Plan",
    "ProvideToolkit",
    "Reason",
    "Request",
    "RoadNotTaken",
    "VerifyWheel",
    "make_plan",
]
