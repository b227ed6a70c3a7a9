"""Environments that are broken on purpose: none of them may be certified."""
