"""Lanes: build an image from data, certify inside it, copy the report."""

from splatfix.containers.certify import ContainerResult, certify_in_container
from splatfix.containers.lanes import Lane, find_lane, load_lanes

__all__ = ["ContainerResult", "Lane", "certify_in_container", "find_lane", "load_lanes"]
