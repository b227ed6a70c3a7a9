"""Lanes: build an image from data, certify inside it, copy the report."""

from splatfix.containers.certify import ContainerResult, LaneRequest, certify_in_container
from splatfix.containers.lanes import GpuUse, Lane, find_lane, load_lanes

__all__ = [
    "ContainerResult",
    "GpuUse",
    "Lane",
    "LaneRequest",
    "certify_in_container",
    "find_lane",
    "load_lanes",
]
