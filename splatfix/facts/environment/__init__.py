"""Probes of one Python environment, read from its files."""
