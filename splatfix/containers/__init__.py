"""Lanes: build an image from data, certify inside it, copy the report."""

from splatfix.containers.certify import certify_in_container
