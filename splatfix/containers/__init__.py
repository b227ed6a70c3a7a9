"""Lanes: build an image from data, certify inside it, bring the report back."""

from splatfix.containers.certify import ContainerResult, certify_in_container
from splatfix.containers.lanes import Lane, find_lane, load_lanes
from splatfix.containers.run import Limits

__all__ = ["ContainerResult", "Lane", "Limits", "certify_in_container", "find_lane", "load_lanes"]
