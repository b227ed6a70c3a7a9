"""Prebuilt wheels: listed by indexes, judged by name and by content before they are fetched whole."""

from splatfix.wheels.listing import chosen_indexes
from splatfix.wheels.model import Candidate, Search, Wanted
from splatfix.wheels.search import Finder, is_name, wanted_by_name, wanted_by_source

__all__ = [
    "Candidate",
    "Finder",
    "Search",
    "Wanted",
    "chosen_indexes",
    "is_name",
    "wanted_by_name",
    "wanted_by_source",
]
