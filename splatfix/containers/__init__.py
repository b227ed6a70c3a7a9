"""Lanes: build an image from data, certify inside it, copy the report."""

from splatfix.containers.certify import ContainerResult, LaneRequest, certify_in_container
from splatfix.containers.lanes import GpuUse, Lane, find_lane, load_lanes
from splatfix.containers.run import Running

__all__ = [
    "ContainerResult",
    "GpuUse",
    "Lane",
    "LaneRequest",
    "Running",
    "certify_in_container",
    "find_lane",
    "load_lanes",
]
