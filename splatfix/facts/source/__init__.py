"""Readers of a checkout and of extension sources; nothing in them is executed."""
