"""Prebuilt wheels: listed by indexes, judged by name, fetched and judged by content."""
