"""Lanes: build an image from data, certify inside it, copy the report."""

from splatfix.containers.certify import certify_in_container
from splatfix.containers.lanes import GpuNeed, Lane, find_lane, load_lanes
